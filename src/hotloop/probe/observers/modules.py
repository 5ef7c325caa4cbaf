"""Forward passes: the outermost call of a module, what the module is, and ``train()``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import Any, Final

from hotloop import fast
from hotloop.hooks.wrapping import code_of, compile_beside, same_code
from hotloop.probe.counting import with_limit
from hotloop.probe.ending import ending, in_python
from hotloop.probe.probe import Probe
from hotloop.record.rows import (
    FORWARD,
    FORWARD_AUTOCAST,
    FORWARD_COMPILED,
    FORWARD_GRAD,
    FORWARD_PARAMS,
    FORWARD_TRAINING,
)
from hotloop.state.identity import Known, code_place
from hotloop.state.modules import buffers, modules, parameters

NAME: Final = "observers.modules"
#: Modules made over and over (a criterion built in the loop) share one id after this many of a kind.
_MAX_ALIKE: Final = 32

_TRAINS: Final = FORWARD_GRAD | FORWARD_TRAINING | FORWARD_PARAMS

#: ``Module.__call__`` as torch has it. Where it is still that, the wrapper does its work in its place: a call
#: less for every submodule in every step.
_KNOWN_CALL: Final = """
def _wrapped_call_impl(self, *args, **kwargs):
    if self._compiled_call_impl is not None:
        return self._compiled_call_impl(*args, **kwargs)
    else:
        return self._call_impl(*args, **kwargs)
"""
_KNOWN_BODY: Final = (
    "return (self._compiled_call_impl if self._compiled_call_impl is not None else self._call_impl)"
    "(*args, **kwargs)"
)

# Inner calls take the shortest way. The compile check comes first everywhere: dynamo would guard on what we
# read.
_CALL: Final = """
def {name}(self, *args, **kwargs):
    if is_compiling():
        return original(self, *args, **kwargs)
    where = inside[0]
    if where:
        if where == 3 and inside[1] is not None and get_ident() == owner[0]:
            return inside[1].call(self, original, args, kwargs)
        {call}
    start = called()
    if not start:
        {call}
    {stop_if_done}
    try:
        if inside[1] is not None:  # the window names inner modules by their path below this one
            inside[0] = 3
            return inside[1].call(self, original, args, kwargs)
        inside[0] = 1
        {call}
    finally:
        inside[0] = 0
        called(self, start)
"""


def with_body(source: str, original: Any) -> str:
    """The source of the wrapper with the call of ``original``, or what ``original`` does, in its places."""
    known = same_code(getattr(original, "__code__", None), code_of(_KNOWN_CALL))
    return source.replace("{call}", _KNOWN_BODY if known else "return original(self, *args, **kwargs)")


class Entry(fast.Entry):
    """What is known of a module: its id, the module below its wrappers, and the flags that do not change."""

    __slots__ = ("wrapper",)

    def __init__(self, number: int, flags: int, wrapper: str) -> None:
        self.id = number
        self.flags = flags
        self.wrapper = wrapper
        self.noted = 0


class Modules:
    """Observes ``Module.__call__``."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._known: Known[Entry] = Known()
        self._alike: dict[tuple[str, int], list[int]] = {}
        self._count = 0
        self.num_autocast = 0  # training forwards under autocast
        self.autocast = ""  # its dtype, as first seen
        torch = probe.torch
        self._grad_enabled: Callable[[], bool] = torch.is_grad_enabled
        any_autocast = getattr(torch._C, "_is_any_autocast_enabled", None)
        self._autocast: Callable[[], bool] = any_autocast or torch.is_autocast_enabled
        self._tracing: Callable[[], Any] = torch._C._get_tracing_state
        self._ddp: Known[None] = Known()
        self._seconds = 0
        self._forward: Any = None  # what answers ordinary calls of modules

    def restart(self) -> None:
        """In a forked child: every module is new, its notes go to another file."""
        self._known.clear()
        self._alike.clear()
        self._count = 0
        self.num_autocast = 0

    # -- __call__ ------------------------------------------------------------------------------------------

    def stop_if_done(self) -> None:
        """Where there is no loader, ``--steps`` ends the run between two steps here."""
        if not self._probe.count.fed:
            self._probe.count.stop_if_done()

    def make_call(self, original: Any) -> Any:
        """The wrapper of ``Module.__call__``. Written out: it runs in every step, on a cold cache."""
        probe, hooks = self._probe, self._probe.hooks

        def autocasted(flags: int) -> int:
            if flags & _TRAINS == _TRAINS:
                self.num_autocast += 1
                self.autocast = self.autocast or autocast_dtype(probe.torch)
            return flags | FORWARD_AUTOCAST

        def note(module: Any, entry: Entry) -> None:
            if self._tracing() is None:  # while jit.trace records a graph, our questions would join it
                self._note(module, entry)

        known, new_entry = self._known.entries, self._new_entry
        asked = (known, self._grad_enabled, self._autocast, new_entry, note, autocasted)

        def called(frame: FrameType, stop: int, module: Any, start: int) -> None:
            entry = known.get(id(module)) or new_entry(module)
            flags = entry.flags
            if self._grad_enabled():
                flags |= FORWARD_GRAD
            if module.training:
                flags |= FORWARD_TRAINING
            if self._autocast():
                flags = autocasted(flags)
            if module._compiled_call_impl is not None:
                flags |= FORWARD_COMPILED
            if not entry.noted:
                note(module, entry)
            probe.emit(FORWARD, start, stop - start, 0, probe.site(frame), entry.id, 0, flags)

        wrapper = compile_beside(
            original,
            with_limit(with_body(_CALL, original), probe.count, "stop_if_done()"),
            inside=probe.inside,
            switch=hooks.switch(NAME),
            stop_if_done=self.stop_if_done,
            called=ending(probe, NAME, "called", FORWARD, *asked) or in_python(probe, NAME, called),
        )
        if fast.Hook is not None and not probe.count.may_end:
            # Dynamo sees the function, and runs it; other calls of modules are the hook's.
            self._forward = ending(
                probe, NAME, "forward", FORWARD, *asked, probe.inside, wrapper, original=original
            )
            fast.attach(wrapper, self._forward)
        return wrapper

    def entry(self, module: Any) -> Entry:
        """What is known of a module; its wrappers (DDP, compile) share its entry's id."""
        return self._known.get(module) or self._new_entry(module)

    def seen(self) -> list[Any]:
        """The outermost modules seen so far."""
        return [module for module, entry in self._known.values() if entry.noted]

    def _new_entry(self, module: Any) -> Entry:
        inner, wrapper, compiled = unwrapped(module)
        below = self._known.get(inner)
        if below is None:
            num_params = sum(1 for _ in parameters(inner))
            below = Entry(self._number(inner, num_params), FORWARD_PARAMS if num_params else 0, wrapper)
            self._known.put(inner, below)
        if inner is module:
            return below
        entry = Entry(below.id, below.flags | (FORWARD_COMPILED if compiled else 0), wrapper)
        self._known.put(module, entry)
        return entry

    def _number(self, module: Any, num_params: int) -> int:
        cls = type(module)
        alike = self._alike.setdefault((f"{cls.__module__}.{cls.__qualname__}", num_params), [])
        if len(alike) >= _MAX_ALIKE:
            return alike[-1]
        self._count += 1
        alike.append(self._count)
        return self._count

    # -- notes ---------------------------------------------------------------------------------------------

    def _note(self, module: Any, entry: Entry) -> None:
        entry.noted = 1
        if unwrapped(module)[1] == "DDP":
            self._seconds = 0
            self._ddp.put(_find(module, "DistributedDataParallel"), None)
        self._note_module(module, entry.id)

    def _note_module(self, module: Any, number: int) -> None:
        checkpointing = bool(self._probe.facts.get("checkpointing"))
        with self._probe.torch._C.DisableTorchFunction():  # no TorchFunctionMode of the script's sees us
            facts = module_facts(self._probe.torch, module, checkpointing)
        self._probe.note("module", id=number, **facts)

    def at_exit(self) -> None:
        """What only shows later: checkpointing begun after the first call, and DDP's own measurements."""
        if self._probe.facts.get("checkpointing"):
            for module, entry in self._known.values():
                if entry.noted and entry.flags & FORWARD_PARAMS:
                    self._note_module(module, entry.id)
        self._note_ddp()

    def each_second(self) -> None:
        """DDP's measurements also while it trains, ever less often: a model of ``main()`` is gone at exit."""
        self._seconds += 1
        if self._seconds & (self._seconds - 1) == 0:
            self._note_ddp()

    def _note_ddp(self) -> None:
        for module, _ in self._ddp.values():
            data = module._get_ddp_logging_data()
            if not data.get("iteration"):
                continue
            self._probe.note(
                "ddp",
                avg_backward_comm_s=data.get("avg_backward_comm_time", 0) / 1e9,
                avg_backward_compute_s=data.get("avg_backward_compute_time", 0) / 1e9,
                overlap_s=data.get("avg_backward_compute_comm_overlap_time", 0) / 1e9,
                iterations=data.get("iteration", 0),
            )


def _find(module: Any, cls: str) -> Any:
    while type(module).__name__ != cls:
        module = getattr(module, WRAPPERS[type(module).__name__][1])
    return module


def install(probe: Probe) -> None:
    """Observe this process's modules."""
    hooks = probe.hooks
    cls = probe.torch.nn.Module
    modules = Modules(probe)
    probe.modules = modules
    hooks.patch(cls, "__call__", modules.make_call)
    hooks.patch(cls, "_wrapped_call_impl", lambda _: vars(cls)["__call__"])  # pickled under this name
    probe.on_fork(NAME, modules.restart)
    probe.on_exit(NAME, modules.at_exit)
    probe.on_second(NAME, modules.each_second)


WRAPPERS: Final = {
    "DistributedDataParallel": ("DDP", "module"),
    "FullyShardedDataParallel": ("FSDP", "module"),
    "DataParallel": ("DataParallel", "module"),
    "OptimizedModule": ("", "_orig_mod"),
}


def module_facts(torch: Any, module: Any, checkpointing: bool) -> dict[str, Any]:
    """The fields of a ``module`` note."""
    inner, wrapper, compiled = unwrapped(module)
    file, line = code_place(getattr(type(inner), "forward", None))
    params = list(parameters(inner))
    dtypes: dict[str, int] = {}
    for param in params:
        name = str(param.dtype).replace("torch.", "")
        dtypes[name] = dtypes.get(name, 0) + _numel(param)
    convs = [m for m in modules(inner) if type(m).__name__.removeprefix("Lazy")[:4] == "Conv"]
    ndims = sorted(
        {w.dim() - 2 for m in convs if (w := getattr(m, "weight", None)) is not None and w.dim() > 2}
    )
    return {
        "class": type(inner).__name__,
        "place": {"file": file, "line": line},
        "num_params": sum(dtypes.values()),
        "num_trainable": sum(_numel(p) for p in params if p.requires_grad),
        "param_bytes": sum(_numel(p) * p.element_size() for p in params),
        "trainable_bytes": sum(_numel(p) * p.element_size() for p in params if p.requires_grad),
        "buffer_bytes": sum(_numel(b) * b.element_size() for b in buffers(inner)),
        "param_dtypes": dtypes,
        "devices": sorted({str(p.device) for p in params}),
        "compiled": compiled or inner._compiled_call_impl is not None,
        "wrapper": wrapper,
        "sharded": wrapper == "FSDP" or is_sharded(inner, params),
        "channels_last": _channels_last(torch, params),
        "has_conv": bool(convs),
        "conv_ndim": ndims[-1] if ndims else 0,
        "checkpointing": checkpointing,
    }


def _channels_last(torch: Any, params: list[Any]) -> bool:
    last = torch.channels_last
    filters = [p for p in params if p.dim() == 4 and p.shape[1] > 1 and p.shape[2] * p.shape[3] > 1]
    return bool(filters) and all(p.is_contiguous(memory_format=last) for p in filters)


def unwrapped(module: Any) -> tuple[Any, str, bool]:
    """The module below DDP, FSDP, DataParallel and compile wrappers, the name of the wrapper, whether
    compiled.
    """
    wrapper, compiled = "", False
    while True:
        cls = type(module)
        known = WRAPPERS.get(cls.__name__)
        if known is None or not cls.__module__.startswith("torch."):
            return module, wrapper, compiled
        wrapper = known[0] or wrapper
        compiled = compiled or not known[0]
        module = getattr(module, known[1])


def is_sharded(module: Any, params: list[Any]) -> bool:
    """Whether ranks hold parts of its parameters, and gather them in forward: FSDP2, tensor parallel."""
    return any(type(param).__name__ == "DTensor" for param in params) or any(
        base.__name__ == "FSDPModule" for one in modules(module) for base in type(one).__mro__
    )


def _numel(param: Any) -> int:
    try:
        return int(param.numel())
    except (RuntimeError, ValueError):  # an uninitialized lazy parameter has no size yet
        return 0


def autocast_dtype(torch: Any) -> str:
    """What the autocast that is entered computes in."""
    for device in ("cuda", "cpu", "xpu", "mps"):
        with suppress(RuntimeError, TypeError):
            if torch.is_autocast_enabled(device):
                return str(torch.get_autocast_dtype(device)).replace("torch.", "")
    return ""
