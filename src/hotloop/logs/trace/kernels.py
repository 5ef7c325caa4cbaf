"""What a kernel is for, and whether it runs on tensor cores, by its name."""

from __future__ import annotations

import re
from typing import Final

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
