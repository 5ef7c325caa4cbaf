"""Loads checkpoints in a training run's own Python: a script that ``compare.checkpoint`` runs, not a module.

``python -I loaded.py SOURCE layouts PATH...`` prints what each holds, ``... values BASE CANDIDATE`` which
tensors of one are not the other's, as JSON on the last line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from typing import Any, Final

_MAX_ENTRIES: Final = 20_000


def layouts(torch: Any, paths: list[str]) -> list[dict[str, Any]]:
    """``[path, dtype, shape]`` of what each file holds, or why it does not load."""
    from hotloop.probe.evidence.checkpoints import layout

    answers: list[dict[str, Any]] = []
    for path in paths:
        try:  # with weights_only nothing that a file says is executed, on "meta" nothing is allocated either
            answers.append({"layout": layout(torch.load(path, map_location="meta", weights_only=True))})
        except Exception as error:
            answers.append({"error": f"{type(error).__name__}: {error}"})
    return answers


def values(torch: Any, paths: list[str]) -> list[dict[str, Any]]:
    """How many tensors there are, and the paths of those that differ in any bit."""
    first, second = (dict(_tensors(torch, path)) for path in paths)
    unlike = [
        name for name, a in first.items() if not torch.equal(_bits(torch, a), _bits(torch, second[name]))
    ]
    return [{"total": len(first), "unlike": unlike}]


def _tensors(torch: Any, path: str) -> Iterator[tuple[str, Any]]:
    from hotloop.probe import batches

    try:
        saved = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except RuntimeError:  # the format before torch 1.6
        saved = torch.load(path, map_location="cpu", weights_only=True)
    for name, value in batches.leaves(saved, _MAX_ENTRIES):
        if torch.is_tensor(value) and value.dtype is not torch.uint8:  # generators save their state as uint8
            yield name, value.detach()


def _bits(torch: Any, tensor: Any) -> Any:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def main() -> None:
    """Answer on standard output."""
    _, source, what, *paths = sys.argv
    sys.path.append(source)
    import torch

    try:
        answers = {"layouts": layouts, "values": values}[what](torch, paths)
    except Exception as error:
        answers = [{"error": f"{type(error).__name__}: {error}"}]
    print("\n" + json.dumps(answers))


if __name__ == "__main__":
    main()
