"""The module window: for a few steady updates, how long each submodule's forward and backward take.

Always-on timing of every submodule would cost more than the budget allows, so it runs for ``NUM_UPDATES``
updates after ``FIRST_UPDATE``. Off where host time says nothing (an
accelerator) and where a hook could change what runs (compiled, scripted, traced, FSDP, DDP with a static
graph).

Backward: a prehook on the node that made a leaf module's output fires when the gradient of that output is
complete. The time from one prehook to the next belongs to the module whose prehook came first.
"""

from __future__ import annotations

import sys
from _thread import get_ident
from collections.abc import Callable, Iterator
from typing import Any, Final

from hotloop.clock import now_ns
from hotloop.probe import batches
from hotloop.probe.probe import Probe
from hotloop.record.rows import MODULE, MODULE_BACKWARD, U16_MAX
from hotloop.state.modules import modules, named_modules, parameters
from hotloop.state.stored import is_tensor

FIRST_UPDATE: Final = 6
NUM_UPDATES: Final = 3
#: A window is closed early behind this many rows: accumulation over many batches, very deep models.
MAX_ROWS: Final = 20_000
_MAX_LEAVES: Final = 256
#: Wrappers under which the window stays shut.
WRAPPERS: Final = frozenset(
    ("FullyShardedDataParallel", "FSDPModule", "DataParallel", "OptimizedModule", "DeepSpeedEngine")
)

Call = Callable[..., Any]


class Window:
    """``call`` stands in for module calls while ``probe.inside`` has this; ``update`` opens and closes it."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._updates = 0
        self._rounds = 0
        self._opened_at = -1  # in updates
        self._step = 0
        self._rows = 0
        self._depth = 0
        self._ids: dict[int, int] = {}  # id(module) -> name id; 0: not to be timed. Lives one window
        self._names: dict[tuple[str, str], int] = {}  # name and class -> name id
        self._depths: dict[int, int] = {}
        self._pending: tuple[int, int] | None = None  # name id and time of the last prehook
        self._noted: set[int] = set()
        self._leaf: set[int] = set()
        probe_guard = probe.hooks.guard
        self._begin = probe_guard("window", self._known)
        self._end = probe_guard("window", self._after)
        self._fired_guarded = probe_guard("window", self._fired)
        self._finish_guarded = probe_guard("window", self._finish_backward)

    def call(self, module: Any, original: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Run ``original(module, *args, **kwargs)``, timed where this module is worth it."""
        name = self._begin(module)
        if not name:
            return original(module, *args, **kwargs)
        self._depth += 1
        start = now_ns()
        try:
            result = original(module, *args, **kwargs)
        finally:
            stop = now_ns()
            self._depth -= 1
        self._end(module, name, start, stop, result, args)
        return result

    def update(self) -> None:
        """An optimizer stepped: open the window, move it on, or close it."""
        rounds = self._probe.count.turns
        if rounds == self._rounds:
            return  # one of several optimizers: a round of them is one update
        self._rounds = rounds
        self._updates += 1
        if self._opened_at >= 0:
            self._step += 1
            if self._updates - self._opened_at >= NUM_UPDATES or self._rows > MAX_ROWS:
                self._close()
        elif self._updates >= FIRST_UPDATE - 1:
            if not all(usable(self._probe.torch, module) for module in self._seen()):
                self._close()
                return
            self._opened_at = self._updates
            self._rows = self._depth = 0
            self._probe.inside[1] = self

    def _close(self) -> None:
        self._probe.inside[1] = None
        self._opened_at = -1
        self._probe.off_update(self.update)
        self._ids.clear()
        self._leaf.clear()
        self._pending = None

    def _known(self, module: Any) -> int:
        torch = sys.modules["torch"]
        if not torch.is_grad_enabled() or not module.training or self._pending is not None:
            return 0
        found = self._ids.get(id(module))
        if found is None:
            if self._depth:
                return 0  # made after the window opened, or hidden from named_modules
            if not usable(torch, module):
                self._close()
                return 0
            self._enter(module)
            found = self._ids.get(id(module), 0)
        return found

    def _seen(self) -> list[Any]:
        """The outermost modules that the observer of modules has seen."""
        modules = self._probe.modules
        return [] if modules is None else modules.seen()

    def _enter(self, root: Any) -> None:
        """Name the submodules of an outermost module; behind its class where it is not the first largest."""
        largest = max([*self._seen(), root], key=num_params)
        prefix = "" if largest is root else type(root).__name__
        for path, module in named_modules(root):
            key = (f"{prefix}.{path}".strip("."), type(module).__name__)
            if key not in self._names:
                if len(self._names) >= U16_MAX - 1:
                    break
                self._names[key] = len(self._names) + 1
                self._depths[self._names[key]] = path.count(".") + 1 if path else 0
            self._ids.setdefault(id(module), self._names[key])
            if sum(1 for _ in modules(module)) == 1:
                self._leaf.add(id(module))

    def _after(
        self, module: Any, name: int, start: int, stop: int, result: Any, args: tuple[Any, ...]
    ) -> None:
        self._probe.writer.row(MODULE, start, stop - start, self._step, 0, name)
        self._rows += 1
        if name not in self._noted:
            self._noted.add(name)
            self._note(module, name)
        if id(module) not in self._leaf:
            return
        before = {getattr(tensor, "grad_fn", None) for tensor in _tensors(args)}
        for tensor in _tensors(result):
            node = tensor.grad_fn
            if node is not None and node not in before:
                node.register_prehook(lambda gradients: self._fired_guarded(name))
                return

    def _note(self, module: Any, name: int) -> None:
        path, cls = next(key for key, value in self._names.items() if value == name)
        of_class = {"class": cls, "depth": self._depths[name], "num_params": num_params(module)}
        self._probe.note("name", id=name, name=path, **of_class)

    def _fired(self, name: int) -> None:
        """The gradient of a module's output is complete: its backward begins, the one before ends."""
        if self._probe.owner != get_ident() or self._opened_at < 0:
            return
        now = now_ns()
        if self._pending is None:
            # Runs when this backward is through; DDP's reducer ends its work in the same place.
            sys.modules["torch"].autograd.Variable._execution_engine.queue_callback(self._finish_guarded)
        self._write_pending(now)
        self._pending = (name, now)

    def _finish_backward(self) -> None:
        self._write_pending(now_ns())
        self._pending = None

    def _write_pending(self, now: int) -> None:
        if self._pending is not None:
            name, start = self._pending
            self._probe.writer.row(MODULE, start, now - start, self._step, 0, name, 0, MODULE_BACKWARD)
            self._rows += 1


def num_params(module: Any) -> int:
    """Parameters of a module and everything below it."""
    return sum(parameter.numel() for parameter in parameters(module))


def usable(torch: Any, root: Any) -> bool:
    """Whether timing the submodules of an outermost module is harmless and means something."""
    if torch.jit.is_tracing() or torch.jit.is_scripting():
        return False
    for module in modules(root):
        names = {base.__name__ for base in type(module).__mro__}
        if names & WRAPPERS or isinstance(module, torch.jit.ScriptModule):
            return False
        if (
            getattr(module, "_compiled_call_impl", None) is not None
            or getattr(module, "static_graph", False) is True
        ):
            return False
    return all(tensor.device.type == "cpu" for tensor in parameters(root))


def _tensors(value: Any) -> Iterator[Any]:
    """The tensors in an output or in arguments, of large ones the first."""
    return (leaf for _, leaf in batches.leaves(value, _MAX_LEAVES) if is_tensor(leaf))


def install(probe: Probe) -> None:
    """Let the window count the updates."""
    probe.on_update("window", Window(probe).update)
