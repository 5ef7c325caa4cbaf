"""What the host is doing, as a phase, by the names of what the profiler recorded."""

from __future__ import annotations

import re
from typing import Final

import numpy as np
import numpy.typing as npt

from hotloop.logs.trace.table import RUNTIME, TELLING, Events, Ints, Label, Trace
from hotloop.phases import COLUMN

#: The phase of whatever encloses the event; without an enclosing phase an operator is forward work, and an
#: annotation tells nothing.
OPERATOR: Final = -1
TRANSPARENT: Final = -2

#: Inside these nothing else counts: a copy in the DataLoader is data loading.
STICKY: Final = tuple(
    COLUMN[name] for name in ("data_wait", "evaluation", "checkpoint", "logging", "collective")
)

#: First match wins. Words of the script's author count only where they stand alone: "## forward ##",
#: "eval_step", not "retrieval" or "## backward_hooks:x ##".
_ANNOTATIONS: Final = (
    (
        r"^enumerate\(DataLoader\)#"
        r"|(?<![a-z])(data_?(load(ing|er)?|wait)|(load|next|get|wait_for)_batch)(?![a-z])",
        "data_wait",
    ),
    (r"^Optimizer\.(step|zero_grad)#|^\W*(optimizer|optimizer_step|zero_grad)\W*$", "optimizer"),
    (r"^\W*backward\W*$", "backward"),
    (r"^\W*forward\W*$|^(DistributedDataParallel|FullyShardedDataParallel)\.forward", "forward"),
    (r"^(nccl|gloo|mpi|ucc|hccl|rccl|xccl):|^c10d::", "collective"),
    (r"(?<![a-z])(eval|evaluate|evaluation|validate|validation)(?![a-z])", "evaluation"),
    (r"(?<![a-z])(checkpoint|ckpt)(?![a-z])", "checkpoint"),
    (r"(?<![a-z])(logging|tensorboard|wandb)(?![a-z])", "logging"),
)
_OPERATORS: Final = (
    (r"^enumerate\(DataLoader\)#", "data_wait"),
    (r"^Optimizer\.(step|zero_grad)#", "optimizer"),
    (r"^autograd::engine::evaluate_function|^torch::autograd::|Backward\d*$", "backward"),
    (r"^c10d::|^(nccl|gloo):", "collective"),
    (r"^aten::_?pin_memory$", "transfer"),
)
#: torch copies with non_blocking=False as a copy and a wait, one right after the other.
_COPY_TO_WAIT_NS: Final = 50_000


def own_phases(trace: Trace) -> Ints:
    """The phase each host event stands for by itself: a column of ``hotloop.phases`` or a code above."""
    calls = trace.calls
    own = np.array([_by_name(label) for label in trace.labels], dtype=np.int8)[calls.label]
    waits, copies = (_labels(trace, pattern)[calls.label] for pattern in ("Synchronize", "Memcpy"))
    own[waits] = COLUMN["sync"]
    own[copies] = _directions(trace, calls.where(copies))
    (runtime,) = np.nonzero(_labels(trace, "")[calls.label])
    before, after = runtime[:-1], runtime[1:]
    adjoining = (
        waits[after]
        & (own[before] == COLUMN["transfer"])
        & (calls.thread[before] == calls.thread[after])
        & (calls.start[after] - calls.end[before] < _COPY_TO_WAIT_NS)
    )
    own[after[adjoining]] = COLUMN["transfer"]
    return own


def copy_direction(name: str) -> str:
    """``HtoD``, ``DtoH``, ``DtoD`` or "" for the name of a copy on the device."""
    found = re.search(r"HtoD|DtoH|DtoD|PtoP|HtoH", name)
    return found[0] if found else ""


def _directions(trace: Trace, copies: Events) -> Ints:
    """Phases of runtime calls that copy: to the device is transfer, to the host is a wait for its value."""
    phase = {"HtoD": COLUMN["transfer"], "DtoH": COLUMN["sync"]}
    by_label = np.array([phase.get(copy_direction(label.name), OPERATOR) for label in trace.labels])
    found = matching(copies.correlation, trace.device.correlation)
    label = trace.device.label[np.maximum(found, 0)] if len(trace.device) else np.zeros(len(found), np.int64)
    return np.where(found >= 0, by_label[label], OPERATOR)


def matching(wanted: Ints, among: Ints) -> Ints:
    """Position in ``among`` of each wanted correlation id, -1 where there is none."""
    if not len(among):
        return np.full(len(wanted), -1, dtype=np.int64)
    order = np.argsort(among, kind="stable")
    at = np.minimum(np.searchsorted(among[order], wanted), len(among) - 1)
    return np.where((among[order][at] == wanted) & (wanted > 0), order[at], -1)


def _labels(trace: Trace, pattern: str) -> npt.NDArray[np.bool_]:
    """Which labels are runtime calls whose name matches."""
    return np.array(
        [label.kind == RUNTIME and bool(re.search(pattern, label.name)) for label in trace.labels], dtype=bool
    )


def _by_name(label: Label) -> int:
    if label.category == "user_annotation":
        return _first(_ANNOTATIONS, label.name, TRANSPARENT)
    if label.category == "python_function":
        return _first(TELLING, label.name, TRANSPARENT)
    return _first(_OPERATORS, label.name, TRANSPARENT if label.name.startswith("ProfilerStep") else OPERATOR)


def _first(patterns: tuple[tuple[str, str], ...], name: str, otherwise: int) -> int:
    found = (phase for pattern, phase in patterns if re.search(pattern, name, re.IGNORECASE))
    phase = next(found, None)
    return otherwise if phase is None else COLUMN[phase]


#: First match wins. The names are those of cuBLAS, cuDNN, CUTLASS, FlashAttention, ATen, Triton (Inductor),
#: NCCL and their ROCm counterparts.
_FAMILIES: Final = (
    ("collective", r"nccl|rccl|all_?reduce_kernel|one_shot_all|two_shot_all"),
    ("memcpy", r"^Memcpy|^hipMemcpy|^CopyDevice|^CopyHost"),
    ("memset", r"^Memset"),
    ("attention", r"flash|fmha|attention|sdpa|mha_(fwd|bwd)"),
    ("conv", r"conv|fprop|dgrad|wgrad|winograd|im2col|col2im|scudnn"),
    ("gemm", r"gemm|gemv|cublas|nvjet|cutlass|splitk|dot_kernel|Cijk_|matmul|_mm_|wgmma|xmma|triton_tem"),
)
_PATTERNS: Final = tuple((family, re.compile(pattern, re.IGNORECASE)) for family, pattern in _FAMILIES)

#: Kernels that run on tensor cores, by the names cuBLAS, cuDNN, CUTLASS and FlashAttention give them.
_TENSOR_CORE: Final = re.compile(
    r"tensorop|s1688|s16816|h1688|h16816|i16832|s884|h884|xmma|wgmma|hmma|imma|gmma|_tf32|bf16gemm|"
    r"flash_(?:fwd|bwd)|fmha|nvjet|sm(?:80|90|100)_.*(?:gemm|fprop|dgrad|wgrad)",
    re.IGNORECASE,
)
#: Matrix work in float32 on ordinary cores.
_PLAIN_FLOAT32: Final = re.compile(r"(^|_)sgemm|scudnn|implicit_convolve_sgemm", re.IGNORECASE)

_NAMESPACES: Final = re.compile(r"^void |\w+::|\(anonymous namespace\)::")

#: Families whose work could run on tensor cores.
MATRIX: Final = ("gemm", "conv", "attention")


def family(kernel: str) -> str:
    """gemm, conv, attention, collective, memcpy, memset; ``other`` for the rest."""
    return next((name for name, pattern in _PATTERNS if pattern.search(kernel)), "other")


def on_tensor_cores(kernel: str) -> bool:
    """Whether a kernel runs on tensor cores."""
    return _TENSOR_CORE.search(kernel) is not None


def is_plain_float32(kernel: str) -> bool:
    """Whether a matrix kernel surely computes in float32 without tensor cores (neither TF32 nor half)."""
    return _PLAIN_FLOAT32.search(kernel) is not None and not on_tensor_cores(kernel)


def short_name(kernel: str) -> str:
    """A kernel's name without return type and namespaces."""
    return cut(_NAMESPACES.sub("", kernel))


def cut(name: str, width: int = 52) -> str:
    """A name of at most ``width`` characters."""
    return name if len(name) <= width else name[: width - 1] + "…"
