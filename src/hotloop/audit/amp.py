"""Mixed precision as it stands in source: autocast blocks, their data type, gradient scalers."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from hotloop.audit.module import Module, argument, chain
from hotloop.audit.regions import Region

AUTOCASTS: Final = (
    "torch.autocast",
    "torch.amp.autocast",
    "torch.cuda.amp.autocast",
    "torch.cpu.amp.autocast",
)
_HALF: Final = frozenset(["torch.float16", "torch.half"])


def autocast_blocks(module: Module) -> Iterator[tuple[ast.With | ast.AsyncWith, ast.Call]]:
    """``with`` statements that autocast, with the call that does."""
    for block in module.withs:
        for item in block.items:
            call = item.context_expr
            if isinstance(call, ast.Call) and module.dotted(call.func) in AUTOCASTS:
                yield block, call


def is_half(module: Module, autocast: ast.Call) -> bool:
    """Whether an autocast call surely means float16 on CUDA."""
    name = module.dotted(autocast.func)
    if module.constant(argument(autocast, "enabled")) is False:
        return False
    cuda = name == "torch.cuda.amp.autocast"
    dtype = argument(autocast, "dtype", 1)
    if dtype is not None:
        return module.dotted(dtype) in _HALF
    return cuda or module.constant(argument(autocast, "device_type", 0)) == "cuda"


def scaled_backwards(region: Region) -> Iterator[ast.Call]:
    """``scaler.scale(loss).backward()`` calls of a region."""
    for call in region.backwards:
        owner = call.func.value if isinstance(call.func, ast.Attribute) else None
        if isinstance(owner, ast.Call) and chain(owner.func).endswith(".scale"):
            yield call


def scaler_of(backward: ast.Call) -> str:
    """The scaler's name in ``scaler.scale(loss).backward()``."""
    owner = backward.func.value if isinstance(backward.func, ast.Attribute) else None
    return chain(owner.func).removesuffix(".scale") if isinstance(owner, ast.Call) else ""
