"""Results of a function of batches, by the samples of a batch: shuffled ones are put together from them."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from hotloop.remedy.live.arguments import Arguments, Look, Unfit
from hotloop.remedy.live.form import Pace
from hotloop.remedy.live.results import CHANGED

#: Calls whose samples are computed again one by one before anything is given again.
_CHECKED: Final = 2
_DEPENDS: Final = "what it gives for a sample depends on the others of its batch"


@dataclass(kw_only=True)
class Asked:
    """One call: its values in order, how they were arranged, and a key for each sample."""

    leaves: list[Any]
    spec: Any
    keys: list[bytes]
    look: Look | None = None
    found: tuple[Any] | None = None


class Rows:
    """Keeps what one function gives for each sample. ``why`` says why it ended."""

    def __init__(self, torch: Any, function: Callable[..., Any], arguments: Arguments, room: float) -> None:
        self.why = ""
        self.hits = 0
        self._torch, self._function, self._arguments, self._room = torch, function, arguments, room
        self._tree = importlib.import_module("torch.utils._pytree")
        self._known: dict[bytes, list[Any]] = {}
        self._spec: Any = None  # how results are arranged
        self._devices: list[Any] = []
        self._checked, self._pace = 0, Pace()

    @staticmethod
    def fits(torch: Any, given: Any, result: Any) -> bool:
        """Whether a result has an entry for each sample of what was given."""
        tree = importlib.import_module("torch.utils._pytree")
        leaves, results = tree.tree_leaves(given), tree.tree_leaves(result)
        counts = {len(leaf) if _is_batch(torch, leaf) else 0 for leaf in results}
        return len(counts) == 1 and counts <= {len(leaf) for leaf in leaves if _is_batch(torch, leaf)}

    def end(self, why: str) -> None:
        """Keep nothing from now on."""
        self.why = why
        self._known.clear()

    def ask(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Asked | None:
        """Look the samples of a call up. Raises Unfit."""
        leaves, spec = self._tree.tree_flatten((args, kwargs))
        counts = [len(leaf) for leaf in leaves if _is_batch(self._torch, leaf)]
        if not counts or any(getattr(leaf, "requires_grad", False) for leaf in leaves):
            return None
        asked = Asked(leaves=leaves, spec=spec, keys=self._keys(leaves, spec, counts[0]))
        kept = [self._known.get(key) for key in asked.keys] if self._checked >= _CHECKED else []
        if kept and all(one is not None for one in kept):
            self.hits += 1
            if self._pace.due():
                self._check_one(asked, kept)
                self._pace.done()
            columns = zip(zip(*kept, strict=True), self._devices, strict=True)
            stacked = [self._torch.stack(one).to(device) for one, device in columns]
            asked.found = (self._tree.tree_unflatten(stacked, self._spec),)
            return asked
        asked.look = self._arguments.look(leaves)
        return asked

    def learn(self, asked: Asked, result: Any) -> None:
        """Keep what a call gave for each of its samples. Raises Unfit."""
        if asked.look is None or asked.look != self._arguments.look(asked.leaves, asked.look):
            raise Unfit("it draws random numbers, or changes what it reads")
        results, spec = self._tree.tree_flatten(result)
        count = len(asked.keys)
        if asked.keys != self._keys(asked.leaves, asked.spec, count):
            raise Unfit("it changes what it is given or reads")
        if not results or not all(_is_batch(self._torch, leaf) and len(leaf) == count for leaf in results):
            raise Unfit("its results are not one for each sample")
        if any(leaf.requires_grad or not leaf.is_contiguous() for leaf in results):
            raise Unfit("its results are not plain tensors without a gradient")
        if self._spec not in (None, spec):
            raise Unfit("its results are of several forms")
        self._spec, self._devices = spec, [leaf.device for leaf in results]
        rows = [[leaf[number] for leaf in results] for number in range(count)]
        for number in range(count if self._checked < _CHECKED else 0):
            if not self._same(rows[number], self._alone(asked, number)):
                raise Unfit(_DEPENDS)
        self._checked += 1
        for key, row in zip(asked.keys, rows, strict=True):
            kept = self._known.get(key)
            if kept is not None and not self._same(kept, row):
                raise Unfit(f"{CHANGED}: kept ones were used until then")
            if kept is None and self._room > 0:
                self._known[key] = [leaf.to("cpu", copy=True) for leaf in row]
                self._room -= len(key) + sum(leaf.nbytes for leaf in row)
        if self._room <= 0 and not self.hits:
            raise Unfit("the memory for its results was full before a sample came a second time")

    def _check_one(self, asked: Asked, kept: Sequence[Any]) -> None:
        """Compute one of the samples of a batch again, another each time. Raises Unfit."""
        number = self.hits % len(kept)
        before = self._arguments.look(asked.leaves)
        if not self._same(kept[number], self._alone(asked, number)):
            raise Unfit(f"{CHANGED}: kept ones were used until then")
        if before != self._arguments.look(asked.leaves, before):
            raise Unfit("it draws random numbers, or changes what it reads")

    def _alone(self, asked: Asked, number: int) -> list[Any]:
        """What the function gives for one sample of a batch. Raises Unfit."""
        count = len(asked.keys)
        alone = [leaf[number : number + 1] if self._is_row(leaf, count) else leaf for leaf in asked.leaves]
        args, kwargs = self._tree.tree_unflatten(alone, asked.spec)
        try:
            found, spec = self._tree.tree_flatten(self._function(*args, **kwargs))
            return [leaf[0] for leaf in found] if spec == self._spec else []
        except Exception as error:
            raise Unfit(f"it cannot be called for one sample: {type(error).__name__}") from None

    def _is_row(self, leaf: Any, count: int) -> bool:
        return _is_batch(self._torch, leaf) and len(leaf) == count

    def _same(self, some: Sequence[Any], others: Sequence[Any]) -> bool:
        return len(some) == len(others) and all(
            one.shape == other.shape and one.dtype == other.dtype and self._bytes(one) == self._bytes(other)
            for one, other in zip(some, others, strict=True)
        )

    def _bytes(self, tensor: Any) -> bytes:
        whole = tensor.detach().cpu().contiguous().reshape(-1)
        data: bytes = whole.view(self._torch.uint8).numpy().tobytes()
        return data

    def _keys(self, leaves: Sequence[Any], spec: Any, count: int) -> list[bytes]:
        """One for each sample: what is its own, and what the whole call was given. Raises Unfit."""
        rows = [leaf for leaf in leaves if self._is_row(leaf, count)]
        kinds = [(str(leaf.dtype), tuple(leaf.shape[1:]), str(leaf.device)) for leaf in rows]
        whole = [None if self._is_row(leaf, count) else leaf for leaf in leaves]
        around = self._arguments.key(tuple(whole), {}, repr(spec), repr(kinds))
        common = hashlib.blake2b(around, digest_size=16)
        digests = [common.copy() for _ in range(count)]
        for leaf in rows:
            data, each = self._bytes(leaf), leaf[0].nbytes
            for number, digest in enumerate(digests):
                digest.update(data[number * each : (number + 1) * each])
        return [digest.digest() for digest in digests]


def _is_batch(torch: Any, leaf: Any) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dim() > 0 and len(leaf) > 0 and not leaf.is_sparse
