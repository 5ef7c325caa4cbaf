"""``input/padding``: all sequences are padded to one length, which those of a batch do not need."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hotloop.diagnose.costs import phase_interval
from hotloop.diagnose.device_state import computing_s, is_all_calls
from hotloop.diagnose.evidence import Evidence, cause, rule
from hotloop.diagnose.source import sources
from hotloop.findings import ENTRIES, Finding, Place
from hotloop.units import duration, share

#: Kernels like lengths that are multiples of it (``pad_to_multiple_of=8``).
_MULTIPLE = 8
#: Of the tokens that are left, the share of padding from which on the order of samples is worth a word.
_REST_RATIO = 1 / 3
#: How a tokenizer is asked for it (transformers).
_ASKED: Final = re.compile(r"\bpadding\s*=\s*[\"']max_length[\"']|\bpad_to_max_length\s*=\s*True")


@rule("input/padding", costed=True)
def check(evidence: Evidence) -> Iterator[Finding]:
    """Price the columns that no sequence of a batch reaches as their part of what forward and backward
    compute; attention grows faster than the length.
    """
    steps, loader = evidence.steps, evidence.steps.train_loader()
    padding = loader.padding if loader is not None else None
    if loader is None or padding is None or is_all_calls(evidence):
        return
    length = padding.length
    kept = min(length, math.ceil(padding.longest / _MULTIPLE) * _MULTIPLE)
    numbers = sum(_numbers(field, length) for field in loader.batch_fields)
    computing = max(0.0, computing_s(evidence) - steps.per_step("optimizer"))
    cost = computing * (length - kept) / (length + numbers)
    rest = 1.0 - padding.real / max(1.0, padding.longest)
    sort = f" Then batch sequences of like length: {share(rest)} of what is left is padding."
    yield cause(
        evidence,
        message=(
            f"{share(1.0 - padding.real / length)} of the tokens are padding: every sequence is padded to "
            f"{length}, the longest of a batch has {padding.longest:.0f} on average."
        ),
        advice=f"{ENTRIES[evidence.about].advice}{sort if rest >= _REST_RATIO else ''}",
        numbers=[
            f"forward and backward take {duration(computing)} per step, as if linear in the length",
            f"seen in {padding.num_batches} batch{'' if padding.num_batches == 1 else 'es'}",
        ],
        cost_s=cost,
        ci95=phase_interval(steps, cost, "forward", "backward"),
        where=_asked(evidence) or loader.where,
        data={
            "class": "device",
            "effect": "semantic",  # narrower batches are no longer the same, whatever the losses
            "at_least": True,
            "max_length": length,
            "longest": padding.longest,
            "real": padding.real,
        },
    )


def _asked(evidence: Evidence) -> Place | None:
    """The one line of the user's that asks a tokenizer for it."""
    found = [
        Place(file=file, line=number)
        for file, text in sources(evidence).items()
        for number, line in enumerate(text.splitlines(), 1)
        if _ASKED.search(line.partition("#")[0])
    ]
    return found[0] if len(found) == 1 else None


def _numbers(field: Mapping[str, Any], length: int) -> int:
    """Numbers of a sample in a field that is no sequence of this length: what is computed of them stays."""
    shape = field.get("shape") or ()
    return 0 if length in shape[1:2] else math.prod(shape[1:])
