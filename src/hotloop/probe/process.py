"""What a process is: its rank, its parent, its environment."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from types import CodeType
from typing import Any, Final

from hotloop.probe.places import cwd
from hotloop.record.rows import SCHEMA_VERSION

_ENV_PREFIXES: Final = (
    "OMP_", "MKL_", "OPENBLAS_", "GOMP_", "KMP_", "NUMEXPR_", "CUDA_", "CUDNN_", "CUBLAS_", "NVIDIA_TF32",
    "NCCL_", "GLOO_", "PYTORCH_", "TORCH_", "TORCHINDUCTOR_", "ACCELERATE_",
    "SLURM_NTASKS", "SLURM_CPUS", "SLURM_PROCID",
)  # fmt: skip
_ENV_NAMES: Final = (
    "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "MASTER_ADDR", "MASTER_PORT",
    "PYTHONHASHSEED", "HOTLOOP_SEED", "HOTLOOP_PERTURB", "MALLOC_ARENA_MAX", "MALLOC_TRIM_THRESHOLD_",
    "MALLOC_MMAP_THRESHOLD_",
    "MALLOC_TOP_PAD_", "GLIBC_TUNABLES", "LD_PRELOAD", "TOKENIZERS_PARALLELISM", "HOTLOOP_EVALUATION",
)  # fmt: skip
#: The pid of the nearest observed process that is no helper; spawned and forkserver children read it.
MAIN_PID: Final = "HOTLOOP_MAIN_PID"
_MAX_SOURCE: Final = 400_000
#: Characters of an exception's text that are kept; allocators say what they have in the first thousand.
_MAX_MESSAGE: Final = 2000


def is_helper() -> bool:
    """Whether this is a server process of multiprocessing (forkserver, resource tracker)."""
    return any("multiprocessing.forkserver" in part or "resource_tracker" in part for part in sys.orig_argv)


def is_multiprocessing_child() -> bool:
    """Whether multiprocessing started this process with a new interpreter (spawn), or it is its server."""
    return "--multiprocessing-fork" in sys.orig_argv or is_helper()


def parent_main_pid() -> int | None:
    """The observed process that a spawned child belongs to; None for a process started in its own right."""
    if not is_multiprocessing_child():
        return None
    value = os.environ.get(MAIN_PID, "")
    return int(value) if value.isdigit() else os.getppid()


def rank() -> int:
    """The global rank from the environment, 0 where there is none."""
    return _env_int("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK") or 0


def facts(probe: Any) -> dict[str, Any]:
    """The fields of the ``process`` note."""
    torch = probe.torch
    distributed = getattr(torch, "distributed", None)
    rank_now, world = probe.rank, _env_int("WORLD_SIZE", "OMPI_COMM_WORLD_SIZE")
    if distributed is not None and distributed.is_available() and distributed.is_initialized():
        rank_now, world = distributed.get_rank(), distributed.get_world_size()
    return {
        "schema": SCHEMA_VERSION,
        "pid": os.getpid(),
        "ppid": os.getppid(),
        "parent_main_pid": probe.parent_main_pid,
        "role": probe.role,
        "rank": rank_now,
        "local_rank": _env_int("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK"),
        "world_size": world,
        "start_ns": probe.start_ns,
        "argv": list(getattr(sys, "argv", [])),
        "orig_argv": list(sys.orig_argv),
        "executable": sys.executable,
        "cwd": cwd(),
        "python": sys.version.split()[0],
        "env": {k: v for k, v in os.environ.items() if k in _ENV_NAMES or k.startswith(_ENV_PREFIXES)},
        "start_method": _start_method(),
        **probe.worker,
    }


def seed_facts(torch: Any) -> dict[str, Any]:
    """Seeds as they are at exit; reads, never draws."""
    seed = getattr(torch, "initial_seed", None)  # a stand-in for torch has none
    return {"torch_seed": seed()} if seed is not None else {}


def failure_facts(is_user: Callable[[CodeType], bool]) -> dict[str, Any]:
    """What the exception says that ends the script, where, and what memory the process had and might have
    had.
    """
    from hotloop.probe.observers.memory import status_bytes

    try:
        message = str(sys.last_value)
    except Exception:  # an exception of the script's own that cannot be shown
        message = ""
    memory: dict[str, int] = {}
    try:
        memory.update(status_bytes("VmPeak", "VmSize", "VmHWM", "VmRSS", "VmData"))
        memory.update(_limits())
    except (MemoryError, ImportError, OSError):  # there is none left to ask with
        pass
    if len(message) > _MAX_MESSAGE:  # a worker's exception: its traceback comes first, what it says last
        message = f"{message[: _MAX_MESSAGE // 4]} ... {message[-_MAX_MESSAGE * 3 // 4 :]}"
    place: dict[str, Any] | None = None
    trace = sys.last_traceback
    while trace is not None:  # the innermost line of the user's
        code = trace.tb_frame.f_code
        if is_user(code):
            place = {
                "file": os.path.abspath(code.co_filename),
                "line": trace.tb_lineno,
                "function": code.co_name,
            }
        trace = trace.tb_next
    return {"message": message, "place": place, "memory": memory}


def _limits() -> dict[str, int]:
    """The limits of this process on address space and data in bytes, where there are any."""
    import resource

    found = {name: resource.getrlimit(getattr(resource, name))[0] for name in ("RLIMIT_AS", "RLIMIT_DATA")}
    return {name: limit for name, limit in found.items() if 0 <= limit < 1 << 62}


def source_text(file: str) -> tuple[str, str] | None:
    """The text of a source file, as it runs, and SHA-256; None where it cannot be read or is too large."""
    from hashlib import sha256

    patch = sys.modules.get("hotloop_patch")
    data = patch.text_of(file) if patch is not None else None
    try:
        if data is None:
            if os.path.getsize(file) > _MAX_SOURCE:
                return None
            with open(file, "rb") as stream:
                data = stream.read()
    except (OSError, ValueError):
        from linecache import getlines  # a cell of a notebook

        if not (data := "".join(getlines(file)).encode("utf-8", "replace")):
            return None
    return data.decode("utf-8", "replace"), sha256(data).hexdigest()


def at_multiprocessing_exit(function: Callable[[], None]) -> None:
    """Have ``function`` called when a child of multiprocessing ends; those do not run ``atexit``."""
    module = sys.modules.get("multiprocessing.process")
    if module is None or module.parent_process() is None:
        return
    from multiprocessing.util import Finalize

    Finalize(None, function, exitpriority=-1000)


def _env_int(*names: str) -> int | None:
    for name in names:
        value = os.environ.get(name, "")
        if value.isdigit():
            return int(value)
    return None


def _start_method() -> str | None:
    context = sys.modules.get("multiprocessing.context")
    default = getattr(context, "_default_context", None)
    actual = getattr(default, "_actual_context", None)
    return getattr(actual, "_name", None)
