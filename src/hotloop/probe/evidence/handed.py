"""Order and content of the batches that loaders hand out, and of what modules are called with."""

from __future__ import annotations

from collections import deque
from time import perf_counter_ns
from typing import Any, Final

from hotloop.hooks.wrapping import RAISED
from hotloop.probe import batches
from hotloop.probe.evidence import fingerprint
from hotloop.probe.probe import Probe
from hotloop.record.rows import CONTENT, ORDER
from hotloop.state.identity import Known

#: All values of every so many batches of a loader are read, else a sample of them.
_ALL_EVERY: Final = 50


class Handed:
    """Writes ORDER and CONTENT rows."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._asked: Known[deque[tuple[int, int]]] = Known()  # batches asked for and not handed out yet
        self.restart()

    def restart(self) -> None:
        """In a forked child: its loaders are others."""
        self._asked.clear()
        self._counts: dict[int, int] = {}

    def end_index(self, iterator: Any, start: int, stop: int, index: Any) -> None:
        """An iterator took the indices of its next batch from the sampler, perhaps long before it is due."""
        if index is RAISED:
            return
        found = fingerprint.of_index(index)
        if found is None:
            return
        asked = self._asked.get(iterator)
        if asked is None:
            asked = deque()
            self._asked.put(iterator, asked)
        asked.append(found)

    def end_reset(self, iterator: Any, start: int, stop: int, result: Any) -> None:
        """Persistent workers begin a new pass: what an abandoned one had asked for is never handed out."""
        asked = self._asked.get(iterator)
        if asked is not None:
            asked.clear()

    def end_next(self, iterator: Any, start: int, stop: int, batch: Any) -> None:
        """A batch was handed out."""
        if batch is RAISED:
            return
        probe = self._probe
        loader = probe.loaders.loader_of(iterator) if probe.loaders is not None else 0
        asked = self._asked.get(iterator)
        if asked:
            crc, total = asked.popleft()
            probe.emit(ORDER, perf_counter_ns(), 0, crc, 0, loader, total)
        self.content(batch, loader)

    def content(self, batch: Any, loader: int) -> None:
        """Write the checksums of a batch."""
        number = self._counts[loader] = self._counts.get(loader, -1) + 1
        full = not number % _ALL_EVERY
        if not number:
            paths = [path for path, _ in batches.leaves(batch)][: fingerprint.MAX_LEAVES]
            self._probe.note("leaves", loader=loader, paths=paths)
        unseen = self._probe.torch._C
        with unseen.DisableTorchFunction(), unseen._DisableTorchDispatch():
            for leaf, crc in fingerprint.of_batch(batch, full=full):
                self._probe.emit(CONTENT, perf_counter_ns(), 0, crc, 0, loader, leaf)
