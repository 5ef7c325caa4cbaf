"""Checksums of trained parameters and buffers when their module goes, or at exit; generator states."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final
from zlib import crc32

from hotloop.probe.evidence import fingerprint
from hotloop.probe.probe import Probe
from hotloop.state.generators import global_states
from hotloop.state.identity import Known
from hotloop.state.modules import modules, named_modules, parameters

#: What wrappers put before the names of the module they wrap.
_WRAPPED: Final = ("module.", "_orig_mod.")
_MAX_ITEMS: Final = 20_000

#: (name, the dictionary that holds it, its key): follows a parameter that is replaced by another.
_Slot = tuple[str, Any, Any]


@dataclass(slots=True)
class _Watched:
    """``slots`` are there for when the owner goes; as long as it is there it is asked itself.

    They keep the dictionaries of its modules, so each is let go as soon as its module is (``inner``).
    """

    ref: weakref.ref[Any]
    name: str
    slots: list[_Slot]
    inner: list[weakref.ref[Any]]


class TrainedState:
    """Holds on to the dictionaries of parameters, never to a module or an optimizer."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._stepped: Known[int] = Known()  # groups of each optimizer when it was looked at
        self._taking = False
        self.restart()

    def restart(self) -> None:
        """In a forked child: nothing was trained here."""
        self._watched: dict[int, _Watched] = {}
        self._stepped.clear()
        self._first: dict[str, int] = {}
        self._count = 0

    def install(self, observer: str) -> None:
        """Look at every optimizer that steps."""
        probe = self._probe
        guarded = probe.hooks.guard(observer, self._new)

        stepped = self._stepped.entries

        def look(optimizer: Any, args: Any, kwargs: Any) -> None:
            if stepped.get(id(optimizer)) != len(optimizer.param_groups):
                guarded(optimizer)

        module = sys.modules["torch.optim.optimizer"]
        probe.hooks.hand_over(module.register_optimizer_step_post_hook, look)

    def finish(self) -> None:
        """At exit: what is trained now, and where the random generators stand."""
        for key in list(self._watched):
            self._write(key)
        if self._count:
            first = {f"{name}_first": state for name, state in self._first.items()}
            self._probe.note("generators", **self._generators(), **first)

    def _new(self, optimizer: Any) -> None:
        """An optimizer stepped for the first time, or with more groups than before."""
        groups = optimizer.param_groups
        self._stepped.put(optimizer, len(groups))
        self._first = self._first or self._generators()
        trained = {id(parameter) for group in groups for parameter in group["params"]}
        for module in self._probe.modules.seen() if self._probe.modules is not None else ():
            if id(module) not in self._watched and any(id(p) in trained for p in parameters(module)):
                self._watch(module)
        if not self._holds(groups):
            for owner in [watched.ref() for watched in self._watched.values()]:
                if owner is not None:
                    self._watch(owner)
            if not self._holds(groups):
                self._watch(optimizer)

    def _holds(self, groups: Any) -> bool:
        slots = (slot for watched in self._watched.values() for slot in watched.slots)
        held = {id(_get(holder, at)) for _, holder, at in slots}
        return all(id(parameter) in held for group in groups for parameter in group["params"])

    def _watch(self, owner: Any) -> None:
        """Take the slots of a module or an optimizer, again if they were taken before."""
        key, guard = id(owner), self._probe.hooks.guard
        gone, replaced = (guard("observers.evidence", one) for one in (self._write, self._replaced))
        self._taking = True
        try:
            self._watched[key] = _Watched(
                ref=weakref.ref(owner, lambda _: gone(key)),
                name=type(owner).__name__,
                slots=self._slots(owner),
                inner=[weakref.ref(one, lambda _: replaced(key)) for one in self._inner(owner)],
            )
        finally:
            self._taking = False

    def _replaced(self, key: int) -> None:
        """A module inside of an owner went: alone, or with it, and then what it holds is written."""
        watched = self._watched.get(key)
        owner = watched.ref() if watched is not None else None
        if owner is None:
            self._write(key)
        elif not self._taking:  # some modules make those inside of them anew for whoever asks
            self._watch(owner)

    def _write(self, key: int) -> None:
        watched = self._watched.pop(key, None)
        if watched is None:
            return
        owner = watched.ref()
        items = []
        with self._probe.torch._C.DisableTorchFunction(), self._probe.torch.no_grad():
            for label, holder, at in watched.slots if owner is None else self._slots(owner):
                tensor = _get(holder, at)
                if tensor is not None:
                    items.append([label, _checksum(tensor), str(tensor.dtype), list(tensor.shape)])
        self._count += 1
        self._probe.note("trained", of=watched.name, updates=self._probe.updates, items=items)

    def _inner(self, owner: Any) -> list[Any]:
        """The modules inside of a module; none inside of an optimizer."""
        return list(modules(owner))[1:] if isinstance(owner, self._probe.torch.nn.Module) else []

    def _slots(self, owner: Any) -> list[_Slot]:
        if isinstance(owner, self._probe.torch.nn.Module):
            return list(islice(_module_slots(owner), _MAX_ITEMS))
        return [
            (f"group {number}.{index}", group["params"], index)
            for number, group in enumerate(owner.param_groups)
            for index in range(len(group["params"]))
        ][:_MAX_ITEMS]

    def _generators(self) -> dict[str, int]:
        names = {"random": "python", "numpy.random": "numpy"}
        states = global_states().items()
        return {names.get(name, name): crc32(repr(state).encode()) for name, state in states}


def _module_slots(module: Any) -> Iterator[_Slot]:
    for path, inner in named_modules(module):
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
