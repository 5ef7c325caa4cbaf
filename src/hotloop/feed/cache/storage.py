"""The places of the samples in the arena, and two ways to hand them out.

:class:`Stack` gives every sample the next free stretch, for good: nothing is wasted and nothing moves. With
eviction :class:`Blocks` hands out small equal blocks, so that a sample of any size fits where others went;
the size of a block comes from the first sample: equal samples are each one stretch and waste nothing.
"""

from __future__ import annotations

import itertools
import time

import numpy as np
from numpy.typing import NDArray

from hotloop.feed.cache.arena import SampleArena
from hotloop.feed.cache.table import CLAIMED, READY, Header, Table
from hotloop.feed.layout import ALIGNMENT
from hotloop.feed.memory import SharedFile, round_up

#: Where the chain of blocks begins in the shared file.
CHAIN_OFFSET = 1 << 41


class Stack:
    """One sample behind the other, never taken back: what the policy ``keep`` needs.

    All of it happens under the lock, except :meth:`read` and :meth:`write`.
    """

    def __init__(self, file: SharedFile, table: Table, arena: SampleArena) -> None:
        self._file = file
        self._table = table
        self._header = table.header
        self.arena = arena

    def allocate(self, item: int, num_bytes: int) -> bool:
        """Give a sample its place: ``offset``, ``num_bytes`` and ``scattered`` of its row. False: no room."""
        start = self._header[Header.USED]
        end = start + round_up(num_bytes, ALIGNMENT)
        if not self.arena.reserve(end):
            return False
        self._table.offset[item] = start
        self._table.num_bytes[item] = num_bytes
        self._header[Header.USED] = end
        return True

    def release(self, item: int) -> None:
        """Take a sample's place back: only what lies on top can be had."""
        end = int(self._table.offset[item]) + round_up(int(self._table.num_bytes[item]), ALIGNMENT)
        if end == self._header[Header.USED]:
            self._header[Header.USED] = int(self._table.offset[item])

    def held_bytes(self, items: NDArray[np.int64]) -> NDArray[np.int64]:
        """What each of these samples takes of the arena."""
        return -(-self._table.num_bytes[items] // ALIGNMENT) * ALIGNMENT

    def available_bytes(self) -> int:
        """About how much could still be handed out."""
        return self.arena.room_bytes - self._header[Header.USED]

    def read(self, item: int) -> NDArray[np.uint8] | None:
        """A private copy of a sample's bytes; None where its row makes no sense (it is being evicted)."""
        one = self._table.one
        offset, num_bytes = one["offset"][item], one["num_bytes"][item]
        end = offset + num_bytes
        if num_bytes < 0 or offset < 0 or end > self._header[Header.FRONTIER]:
            return None
        return self.arena.bytes(end)[offset:end].copy()

    def write(self, item: int, parts: list[NDArray[np.uint8]]) -> None:
        """Fill a sample's place, which it has claimed; all of it is new memory."""
        self.arena.write_fresh(parts, self._table.one["offset"][item])

    def repair(self) -> None:
        """Work out again what is free, from the rows of the samples."""
        table = self._table
        held = np.flatnonzero((table.state == READY) | (table.state == CLAIMED))
        ends = table.offset[held] + self.held_bytes(held)
        self._header[Header.USED] = int(ends.max(initial=0))


class Blocks(Stack):
    """Equal blocks, chained: what policies that evict need."""

    def __init__(self, file: SharedFile, table: Table, arena: SampleArena) -> None:
        super().__init__(file, table, arena)
        self._chain: NDArray[np.uint32] = np.empty(0, np.uint32)
        self._links = memoryview(b"")

    def allocate(self, item: int, num_bytes: int) -> bool:
        """Free blocks first, then new ones."""
        header = self._header
        if not header[Header.BLOCK_BYTES]:
            header[Header.BLOCK_BYTES] = best_block_bytes(num_bytes)
        size = header[Header.BLOCK_BYTES]
        count = max(1, -(-num_bytes // size))
        reused = min(count, header[Header.FREE_BLOCKS])
        if not self._reserve_blocks(count - reused):
            return False
        first_new = header[Header.USED] // size
        links = self._links_upto(first_new + count - reused)
        head, chosen = header[Header.FREE_HEAD], []
        for _ in range(reused):
            chosen.append(head)
            head = links[head]
        chosen += range(first_new, first_new + count - reused)
        is_scattered = chosen != list(range(chosen[0], chosen[0] + count))
        if is_scattered:
            for block, following in itertools.pairwise(chosen):
                links[block] = following
        one = self._table.one
        one["offset"][item] = chosen[0] * size
        one["num_bytes"][item] = num_bytes
        one["scattered"][item] = is_scattered
        header[Header.FREE_HEAD] = head if header[Header.FREE_BLOCKS] > reused else -1
        header[Header.FREE_BLOCKS] -= reused
        header[Header.USED] += (count - reused) * size
        return True

    def _reserve_blocks(self, count: int) -> bool:
        if not count:
            return True
        end = self._header[Header.USED] + count * self._header[Header.BLOCK_BYTES]
        return self._reserve_chain() and self.arena.reserve(end)

    def _reserve_chain(self) -> bool:
        """Room for the chain of as many blocks as the limit allows: it counts, so it comes first."""
        header = self._header
        had = header[Header.CHAIN_BYTES]
        most = (self.arena.room_bytes + had) // (header[Header.BLOCK_BYTES] + 4)
        needed = round_up(4 * most)
        if needed > had:
            if header[Header.OVERHEAD] + header[Header.FRONTIER] + needed - had > header[Header.LIMIT]:
                return False
            try:
                self._file.reserve(needed, offset=CHAIN_OFFSET)
            except OSError:
                return False
            header[Header.OVERHEAD] += needed - had
            header[Header.CHAIN_BYTES] = needed
        return True

    def release(self, item: int) -> None:
        """Put a sample's blocks on the free list, the first on top."""
        blocks = self._blocks(item)
        header = self._header
        chain = self._chain_upto(int(blocks.max()) + 1)
        chain[blocks[:-1]] = blocks[1:]
        chain[blocks[-1]] = max(header[Header.FREE_HEAD], 0)
        header[Header.FREE_HEAD] = int(blocks[0])
        header[Header.FREE_BLOCKS] += len(blocks)

    def held_bytes(self, items: NDArray[np.int64]) -> NDArray[np.int64]:
        """Whole blocks."""
        size = max(self._header[Header.BLOCK_BYTES], 1)
        return np.maximum(-(-self._table.num_bytes[items] // size), 1) * size

    def available_bytes(self) -> int:
        """Free blocks, and what the arena may still grow by unless it is paused."""
        header = self._header
        free = header[Header.FREE_BLOCKS] * header[Header.BLOCK_BYTES]
        if time.monotonic_ns() < header[Header.PAUSED_UNTIL_NS]:
            return free
        return free + max(0, self.arena.room_bytes - header[Header.USED])

    def read(self, item: int) -> NDArray[np.uint8] | None:
        """A private copy; block by block where they do not follow each other."""
        if not self._table.one["scattered"][item]:
            return super().read(item)
        num_bytes, size = self._table.one["num_bytes"][item], self._header[Header.BLOCK_BYTES]
        blocks = self._blocks(item)
        end = (int(blocks.max()) + 1) * size
        if end > self._header[Header.FRONTIER] or num_bytes > len(blocks) * size:
            return None
        rows = self.arena.bytes(end)[:end].reshape(-1, size)
        return np.take(rows, blocks, axis=0).reshape(-1)[:num_bytes]

    def write(self, item: int, parts: list[NDArray[np.uint8]]) -> None:
        """Most of it is memory that was used before, so copying beats the file."""
        table, size = self._table, self._header[Header.BLOCK_BYTES]
        offset, num_bytes = table.one["offset"][item], table.one["num_bytes"][item]
        if not table.one["scattered"][item]:
            _fill(self.arena.bytes(offset + num_bytes)[offset:], parts)
            return
        joined = np.empty(num_bytes, np.uint8)
        _fill(joined, parts)
        blocks = self._blocks(item)
        memory = self.arena.bytes((int(blocks.max()) + 1) * size)
        for position, block in enumerate(blocks.tolist()):
            piece = joined[position * size : (position + 1) * size]
            memory[block * size : block * size + piece.size] = piece

    def repair(self) -> None:
        """Chain up all blocks that no sample holds."""
        header, table = self._header, self._table
        if not header[Header.BLOCK_BYTES]:
            return
        held = np.flatnonzero((table.state == READY) | (table.state == CLAIMED))
        size = header[Header.BLOCK_BYTES]
        edges = np.zeros(header[Header.FRONTIER] // size + 2, np.int64)
        first = table.offset[held] // size
        in_one = table.scattered[held] == 0
        np.add.at(edges, first[in_one], 1)
        np.add.at(edges, first[in_one] + self.held_bytes(held)[in_one] // size, -1)
        is_taken = np.cumsum(edges) > 0
        for item in held[~in_one].tolist():
            is_taken[self._blocks(item)] = True
        num_blocks = int(np.flatnonzero(is_taken).max(initial=-1)) + 1
        is_free = ~is_taken[:num_blocks]
        free = np.flatnonzero(is_free)
        chain = self._chain_upto(num_blocks)
        chain[free[:-1]] = free[1:]
        header[Header.USED] = num_blocks * size
        header[Header.FREE_HEAD] = int(free[0]) if free.size else -1
        header[Header.FREE_BLOCKS] = int(free.size)

    def _blocks(self, item: int) -> NDArray[np.int64]:
        """The numbers of a sample's blocks; of one that is being evicted, any numbers within the chain."""
        size = self._header[Header.BLOCK_BYTES]
        first = self._table.one["offset"][item] // size
        count = max(1, -(-self._table.one["num_bytes"][item] // size))
        if not self._table.one["scattered"][item]:
            return np.arange(first, first + count, dtype=np.int64)
        links = self._links_upto(first + 1)
        blocks = [first]
        for _ in range(count - 1):
            following = links[blocks[-1]]
            if following >= len(links):
                break
            blocks.append(following)
        return np.array(blocks, np.int64)

    def _chain_upto(self, num_blocks: int) -> NDArray[np.uint32]:
        if num_blocks > self._chain.size:
            size = self._header[Header.BLOCK_BYTES]
            most = round_up(4 * max(num_blocks, self._header[Header.MAX_BYTES] // size))
            chain = self._file.map(most, offset=CHAIN_OFFSET).array().view(np.uint32)
            self._links = memoryview(chain)  # type: ignore[arg-type]
            self._chain = chain  # last: other threads look at its length
        return self._chain

    def _links_upto(self, num_blocks: int) -> memoryview:
        """The chain for single numbers."""
        self._chain_upto(num_blocks)
        return self._links


def best_block_bytes(num_bytes: int) -> int:
    """A block for samples of about this size: 4 to 16 to a sample, as few bytes over as can be."""
    units = max(1, -(-num_bytes // ALIGNMENT))
    if units < 16:
        return units * ALIGNMENT
    parts = min(range(16, 3, -1), key=lambda count: -(-units // count) * count - units)
    return -(-units // parts) * ALIGNMENT


def _fill(memory: NDArray[np.uint8], parts: list[NDArray[np.uint8]]) -> None:
    position = 0
    for part in parts:
        memory[position : position + part.size] = part
        position += part.size
