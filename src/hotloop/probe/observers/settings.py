"""The settings in effect: versions and every flag of torch that changes speed, at the first step and at exit.

Only reads, and only what reading does not initialize: no CUDA context is made, no random number drawn.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from types import FrameType
from typing import Any, Final

from hotloop.probe.probe import Probe

#: name in the note -> path below ``torch``; called where it is a function. Missing in some versions: left
#: out.
FLAGS: Final = {
    "matmul_allow_tf32": "backends.cuda.matmul.allow_tf32",
    "cudnn_allow_tf32": "backends.cudnn.allow_tf32",
    "cudnn_benchmark": "backends.cudnn.benchmark",
    "cudnn_deterministic": "backends.cudnn.deterministic",
    "float32_matmul_precision": "get_float32_matmul_precision",
    "deterministic_algorithms": "are_deterministic_algorithms_enabled",
    "grad_anomaly": "is_anomaly_enabled",
    "threads": "get_num_threads",
}


def install(probe: Probe) -> None:
    """Write the ``torch`` note at the first update and, where anything changed, at exit."""
    said: list[dict[str, Any]] = []

    set_by: dict[str, tuple[Any, str, int]] = {}

    def was_set(names: tuple[str, ...], frame: FrameType) -> None:
        user = probe.user_frame(frame)
        if user is None:
            return
        now = flags(probe.torch, names)
        for name, value in now.items():
            set_by[name] = (value, os.path.abspath(user.f_code.co_filename), user.f_lineno)

    watch_setters(probe, was_set)

    def first() -> None:
        probe.off_update(first)
        said.append(say("first_step"))

    def say(when: str) -> dict[str, Any]:
        found = flags(probe.torch)
        probe.note("torch", when=when, set_by=set_by, **versions(probe.torch), **found)
        return found

    def last() -> None:
        if probe.role == "main" and (probe.training_started or said):
            say("exit")
            autocast(probe)

    def restart() -> None:
        said.clear()
        probe.off_update(first)
        probe.on_update("settings", first)

    probe.on_update("settings", first)
    probe.on_exit("settings", last)
    probe.on_fork("settings", restart)


def autocast(probe: Probe) -> None:
    """Write the share of training forwards that ran under autocast: one or more forwards per backward."""
    modules, backwards = probe.modules, probe.count.backwards
    if modules is not None and backwards:
        probe.note("autocast", dtype=modules.autocast, share=min(1.0, modules.num_autocast / backwards))


def watch_setters(probe: Probe, was_set: Callable[[tuple[str, ...], FrameType], None]) -> None:
    """Call ``was_set`` with the flags that a line of the script has just set."""
    torch, hooks = probe.torch, probe.hooks
    cudnn = vars(type(torch.backends.cudnn))
    properties = {
        id(cudnn.get(name)): (f"cudnn_{name}",) for name in ("benchmark", "deterministic", "allow_tf32")
    }

    def watch(owner: Any, name: str, which: Callable[[tuple[Any, ...], FrameType], tuple[str, ...]]) -> None:
        def begin(args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
            names = which(args, frame)
            return (names, frame) if names else None

        def end(token: Any, start: int, stop: int, result: Any) -> None:
            was_set(*token)

        hooks.around(owner, name, "settings", begin, end)

    precision = ("matmul_allow_tf32", "float32_matmul_precision")
    watch(torch.autograd.set_detect_anomaly, "__init__", lambda *_: ("grad_anomaly",))
    watch(torch.autograd.detect_anomaly, "__enter__", lambda *_: ("grad_anomaly",))
    watch(torch.backends.ContextProp, "__set__", lambda args, _: properties.get(id(args[0]), ()))
    matmul = torch.backends.cuda.cuBLASModule
    watch(matmul, "__setattr__", lambda args, _: precision if args[1:2] == ("allow_tf32",) else ())
    watch(torch, "set_float32_matmul_precision", lambda *_: precision)
    watch(torch, "use_deterministic_algorithms", lambda *_: ("deterministic_algorithms",))

    def of_user(args: tuple[Any, ...], frame: FrameType) -> tuple[str, ...]:
        # Loaders' workers and remedies set it as well.
        return ("threads",) if probe.user_frame(frame) is frame else ()

    watch(torch, "set_num_threads", of_user)


def flags(torch: Any, names: Iterable[str] = FLAGS) -> dict[str, Any]:
    """Those flags of ``FLAGS`` that this torch has."""
    found = {}
    for name in names:
        path = FLAGS[name]
        try:
            value = torch
            for part in path.split("."):
                value = getattr(value, part)
            value = value() if callable(value) else value
        except (AttributeError, RuntimeError, AssertionError):
            continue  # not in this version, or the old and the new TF32 switch were mixed
        found[name] = value if isinstance(value, (bool, int, float)) else str(value).replace("torch.", "")
    return found


def versions(torch: Any) -> dict[str, Any]:
    """Versions, and the device if one is in use already."""
    cuda = torch.cuda
    in_use = cuda.is_initialized()
    return {
        "version": str(torch.__version__),
        "cuda": torch.version.cuda,
        "device_count": cuda.device_count() if in_use else 0,
        "device_name": cuda.get_device_name() if in_use else None,
    }
