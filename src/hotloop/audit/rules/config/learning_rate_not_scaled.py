"""``config/learning-rate-not-scaled``: another batch size than its base's, and the same learning rate."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePath
from typing import Any, Final

from hotloop.audit.configs import ConfigFile, Entry
from hotloop.audit.hit import at_entry
from hotloop.audit.loaders import EVALUATION
from hotloop.audit.tree import Tree
from hotloop.findings import Finding
from hotloop.probe.config import meaning_of

ID = "config/learning-rate-not-scaled"
#: Words of code and configuration that scale the rate themselves.
_SCALES: Final = re.compile(
    r"scale_?lr|lr_?scal|auto_scale|base_batch|linear_?scal|lr\s*\*=?[^\n]*batch|lr\s*=[^\n#]*batch", re.I
)
#: A batch of one GPU: the other configuration may be for another number of them.
_OF_ONE_GPU: Final = re.compile(r"per_?(gpu|device|rank|card|worker|replica)", re.I)
#: Numbers of GPUs in file names: ``4x4``, ``8xb32``, ``16gpus``.
_NUM_GPUS: Final = re.compile(r"\d+xb?\d+|\d+_?gpus?", re.I)
#: The batch has to grow or shrink by this much to matter.
_RATIO: Final = 2.0


def check(tree: Tree) -> Iterator[Finding]:
    """Speak of a configuration that names its base, batch size and all, and changes only the batch size."""
    if any(_SCALES.search(text) for text in tree.code):
        return
    for config in tree.configs:
        base = config.base
        if base is None or any(_SCALES.search(line) for c in (config, base) for line in c.lines):
            continue
        own, before = _only(config, "batch_size"), _only(base, "batch_size")
        rate, other = _only(base, "lr"), _only(config, "lr")
        if own is None or before is None or rate is None or (other is not None and other.value != rate.value):
            continue
        if _only(config, "gradient_accumulation") is not None or own.name != before.name:
            continue
        if _OF_ONE_GPU.search(own.key) or _num_gpus(config) != _num_gpus(base):
            continue
        ratio = own.value / before.value
        if ratio >= _RATIO or ratio <= 1 / _RATIO:
            yield at_entry(
                ID,
                config,
                own,
                "low",
                f"{own.key} becomes {own.value} here, {before.value} in {base.name}:{before.line}, and the "
                f"learning rate stays {rate.value:g} ({base.name}:{rate.line}): no code scales it.",
                f"For SGD scale it with the batch, to {rate.value * ratio:g}, with warm-up; for Adam by the "
                f"square root, to {rate.value * ratio**0.5:.3g}. Compare the loss by samples seen.",
            )


def _only(config: ConfigFile, meaning: str) -> Entry | None:
    """The one entry of a meaning, a number above 0; None where there are several or none."""
    found = [e for e in config.entries if meaning_of(e.key) == meaning and not EVALUATION.search(e.key)]
    return found[0] if len(found) == 1 and _positive(found[0].value) else None


def _num_gpus(config: ConfigFile) -> list[str]:
    return _NUM_GPUS.findall(PurePath(config.name).name)


def _positive(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and value > 0
