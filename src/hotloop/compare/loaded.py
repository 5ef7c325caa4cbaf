"""Loads a checkpoint in a training run's own Python: a script that ``compare.checkpoint`` runs, not a module.

``python -I loaded.py SOURCE PATH BESIDE`` prints whether PATH loads, and which of its tensors are others than
in BESIDE where that is given, as JSON on the last line.
"""

from __future__ import annotations

import json
import sys
from typing import Any, Final

_MAX_ENTRIES: Final = 20_000


def answer(path: str, beside: str) -> dict[str, Any]:
    """``error``: why it does not load; nothing else where there is nothing to compare it with."""
    import torch

    try:  # with weights_only nothing that a file says is executed, on "meta" nothing is allocated either
        torch.load(path, map_location="meta", weights_only=True)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}".splitlines()[0][:200]}
    return compared(torch, path, beside) if beside else {}


def compared(torch: Any, path: str, beside: str) -> dict[str, Any]:
    """How many tensors there are, and the paths of those that differ in any bit; nothing where one fails."""
    try:
        mine, other = tensors(torch, path), tensors(torch, beside)
        unlike = [name for name in mine if not torch.equal(bits(torch, mine[name]), bits(torch, other[name]))]
    except Exception:
        return {}
    return {"total": len(mine), "unlike": unlike}


def tensors(torch: Any, path: str) -> dict[str, Any]:
    """The tensors by their place; generators save their state as uint8, and are left out."""
    from hotloop.probe import batches

    saved = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    leaves = batches.leaves(saved, _MAX_ENTRIES)
    return {n: value for n, value in leaves if torch.is_tensor(value) and value.dtype is not torch.uint8}


def bits(torch: Any, tensor: Any) -> Any:
    """The tensor as bytes."""
    return tensor.detach().contiguous().reshape(-1).view(torch.uint8)


if __name__ == "__main__":
    sys.path.append(sys.argv[1])
    print("\n" + json.dumps(answer(*sys.argv[2:])))
