"""Memory order of weights and of what belongs to them.

Fused kernels pair the memory of a weight, its gradient and its state element by element: on a CPU without a
look at strides, on CUDA after refusing other ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def fits(parameter: Any, other: Any) -> bool:
    """Whether a tensor lies in memory as a parameter of its shape does; other shapes have no say."""
    if other.is_sparse or other.shape != parameter.shape or other.stride() == parameter.stride():
        return True
    pairs = zip(parameter.shape, parameter.stride(), other.stride(), strict=True)
    return all(mine == theirs for size, mine, theirs in pairs if size > 1)


def align(torch: Any, optimizer: Any) -> None:
    """Lay gradients and state out as their parameters are; values stay."""
    for group in optimizer.param_groups:
        for parameter in group["params"]:
            gradient = parameter.grad
            state = optimizer.state.get(parameter)
            values = list(state.values()) if isinstance(state, dict) else []
            for value in (gradient, *values):
                if isinstance(value, torch.Tensor) and not fits(parameter, value):
                    lay_out(value, parameter.stride())


def lay_out(tensor: Any, strides: Sequence[int]) -> None:
    """Give a tensor these strides; it stays the same object with the same values."""
    data = tensor.data
    tensor.data = data.new_empty_strided(data.shape, strides).copy_(data)
