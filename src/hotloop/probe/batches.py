"""What a batch holds: its tensors and arrays by path, their bytes, the samples. Reads sizes, and of data only
what an attention mask leaves out.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any, Final

from hotloop.state.stored import attribute, children, is_tensor

#: A batch with more leaves than this is counted as far as the limit.
MAX_LEAVES: Final = 1000
MAX_DEPTH: Final = 8
#: So many numbers torch computes on in the calling thread; in a forked process others would not answer.
_ALONE: Final = 32767


def leaves(batch: Any, limit: int = MAX_LEAVES) -> Iterator[tuple[str, Any]]:
    """(path, value) of everything in nested mappings, sequences and dataclasses that is none of these.

    What may compute its entries on access is one leaf: asking could draw the script's random numbers.
    """
    stack: list[tuple[str, Any, int]] = [("", batch, 0)]
    budget = limit
    while stack and budget > 0:
        path, node, depth = stack.pop()
        inner = None if depth >= MAX_DEPTH else children(node)
        if inner is None:
            budget -= 1
            yield path, node
        else:
            start = f"{path}." if path else ""
            below = [(f"{start}{name}", value, depth + 1) for name, value in inner[:limit]]
            stack.extend(reversed(below))


def num_bytes(batch: Any) -> int:
    """Bytes of the tensors, arrays and byte strings in a batch."""
    return sum(_bytes(value) for _, value in leaves(batch))


def shape(value: Any) -> tuple[int, ...] | None:
    """The shape of a tensor or array, None of anything else."""
    found = attribute(value, "shape")
    return tuple(int(size) for size in found) if isinstance(found, tuple) else None


def fields(batch: Any) -> list[dict[str, Any]]:
    """One entry per tensor or array: path, dtype, shape, bytes, device, pinned, what a mask leaves."""
    found = []
    for path, value in leaves(batch):
        sizes = shape(value)
        if sizes is None:
            continue
        found.append(
            {
                "path": path,
                "dtype": str(attribute(value, "dtype", "")).replace("torch.", ""),
                "shape": list(sizes),
                "bytes": _bytes(value),
                "device": str(attribute(value, "device", "cpu")),
                "pinned": _pinned(value),
                **(_ones(value, sizes) if path.rpartition(".")[2] == "attention_mask" else {}),
            }
        )
    return found


def _bytes(value: Any) -> int:
    kind = next((kind for kind in (bytes, bytearray, str) if kind in type(value).__mro__), None)
    if kind is not None:
        return kind.__len__(value)
    size = attribute(value, "nbytes", 0)
    return size if isinstance(size, int) else 0


def _pinned(value: Any) -> bool:
    """Whether a host tensor is page-locked. Asked only with CUDA in use: asking makes a context."""
    torch = sys.modules["torch"]
    if not is_tensor(value) or attribute(value, "is_cuda", True) or not torch.cuda.is_initialized():
        return False
    with torch._C.DisableTorchFunction():
        return bool(value.is_pinned())


def _ones(mask: Any, sizes: tuple[int, ...]) -> dict[str, int]:
    """Of a mask of zeros and ones, a row for each sequence: columns with a one (``longest``), ones in all."""
    torch = sys.modules["torch"]
    if type(mask) is not torch.Tensor or not mask.is_cpu or len(sizes) != 2 or not 0 < sizes[1] <= _ALONE:
        return {}
    real, unseen = 0, torch._C
    try:
        with unseen.DisableTorchFunction(), unseen._DisableTorchDispatch():
            if mask.is_floating_point() or not sizes[0]:
                return {}
            used = mask[0]
            for part in mask.split(_ALONE // sizes[1]):
                least, most = part.aminmax()
                if least < 0 or most > 1:
                    return {}
                used, real = torch.maximum(used, part.amax(0)), real + int(part.sum())
            return {"longest": int(used.sum()), "real": real}
    except RuntimeError:  # a layout, or a kind of numbers, without these
        return {}
