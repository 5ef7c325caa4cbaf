"""Checksums of trained parameters and buffers when their module goes, or at exit; generator states."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final
from zlib import crc32

from hotloop.probe.evidence import fingerprint

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

#: What wrappers put before the names of the module they wrap.
_WRAPPED: Final = ("module.", "_orig_mod.")
_MAX_ITEMS: Final = 20_000

#: (name, the dictionary that holds it, its key): follows a parameter that is replaced by another.
_Slot = tuple[str, Any, Any]


class TrainedState:
    """Holds on to the dictionaries of parameters, never to a module or an optimizer."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self.restart()

    def restart(self) -> None:
        """In a forked child: nothing was trained here."""
        self._watched: dict[int, tuple[weakref.ref[Any], str, list[_Slot]]] = {}
        self._optimizers: set[int] = set()
        self._first: dict[str, int] = {}
        self._count = 0

    def install(self, observer: str) -> None:
        """Look at every optimizer that steps."""
        probe = self._probe
        guarded = probe.hooks.guard(observer, self._new)

        def stepped(optimizer: Any, args: Any, kwargs: Any) -> None:
            if id(optimizer) not in self._optimizers:
                guarded(optimizer)

        module = sys.modules["torch.optim.optimizer"]
        probe.hooks.at_undo(module.register_optimizer_step_post_hook(stepped).remove)

    def finish(self) -> None:
        """At exit: what is trained now, and where the random generators stand."""
        for key in list(self._watched):
            self._write(key)
        if self._count:
            first = {f"{name}_first": state for name, state in self._first.items()}
            self._probe.note("generators", **self._generators(), **first)

    def _new(self, optimizer: Any) -> None:
        self._optimizers.add(id(optimizer))
        self._first = self._first or self._generators()
        for module in self._probe.modules.seen() if self._probe.modules is not None else ():
            if id(module) not in self._watched and any(p.requires_grad for p in module.parameters()):
                self._watch(module, type(module).__name__, list(_module_slots(module)))
        held = {id(slots[key]) for _, _, all_ in self._watched.values() for _, slots, key in all_}
        groups = optimizer.param_groups
        if not all(id(p) in held for group in groups for p in group["params"]):
            slots = [
                (f"group {number}.{index}", group["params"], index)
                for number, group in enumerate(groups)
                for index in range(len(group["params"]))
            ]
            self._watch(optimizer, type(optimizer).__name__, slots)

    def _watch(self, owner: Any, name: str, slots: list[_Slot]) -> None:
        key = id(owner)
        write = self._probe.hooks.guard("observers.evidence", self._write)
        self._watched[key] = (weakref.ref(owner, lambda _: write(key)), name, slots[:_MAX_ITEMS])

    def _write(self, key: int) -> None:
        entry = self._watched.pop(key, None)
        if entry is None:
            return
        self._optimizers.discard(key)
        _, name, slots = entry
        items = []
        with self._probe.torch._C.DisableTorchFunction(), self._probe.torch.no_grad():
            for label, holder, at in slots:
                tensor = _get(holder, at)
                if tensor is not None:
                    items.append([label, _checksum(tensor), str(tensor.dtype), list(tensor.shape)])
        self._count += 1
        self._probe.note("trained", of=name, updates=self._probe.updates, items=items)

    def _generators(self) -> dict[str, int]:
        torch = self._probe.torch
        found = {"torch": fingerprint.of_value(torch.get_rng_state(), full=True) or 0}
        python, numpy = sys.modules.get("random"), sys.modules.get("numpy.random")
        if python is not None:
            found["python"] = crc32(repr(python.getstate()).encode())
        if numpy is not None:
            name, keys, *rest = numpy.get_state()
            found["numpy"] = crc32(repr((name, rest)).encode(), crc32(keys.tobytes()))
        return found


def _module_slots(module: Any) -> Iterator[_Slot]:
    for path, inner in module.named_modules():
        for holder in (inner._parameters, inner._buffers):
            for key in holder:
                yield _plain(f"{path}.{key}" if path else key), holder, key


def _plain(name: str) -> str:
    for prefix in _WRAPPED:
        name = name.removeprefix(prefix).replace(f".{prefix}", ".")
    return name


def _get(holder: Any, at: Any) -> Any:
    try:
        return holder[at]
    except (KeyError, IndexError):
        return None


def _checksum(tensor: Any) -> int | None:
    """All values of a parameter, of the part that is here where it is sharded."""
    tensor = getattr(tensor, "_local_tensor", tensor).detach()
    try:
        return fingerprint.of_tensor(tensor if tensor.is_cpu else tensor.cpu(), full=True)
    except (RuntimeError, NotImplementedError):
        return None
