"""Attention is written out as softmax of a matrix product."""

from __future__ import annotations

import re
from collections.abc import Iterable

from hotloop.diagnose.causes import at, cause
from hotloop.diagnose.costs import enough
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.groups import LineGroup, select
from hotloop.diagnose.source import function_text
from hotloop.findings import Finding
from hotloop.measure.steps import LineCost
from hotloop.units import share

ID = "device/attention-not-fused"

_SOFTMAX = re.compile(r"softmax\(")
_SCORES = re.compile(
    r"@[^\n]*\.(transpose\(\s*-[12],\s*-[12]\s*\)|mT\b)|(matmul|bmm)\([^\n]*(transpose|mT|permute)"
)
_FUSED = re.compile(r"scaled_dot_product_attention|flash_attn|xformers")


def check(evidence: Evidence) -> Iterable[Finding]:
    """A function of the model with softmax(q @ k^T) @ v that takes a visible part of forward."""
    steps, limits = evidence.steps, evidence.limits
    if not enough(evidence) or evidence.on_accelerator:
        return  # the host's time in a line says nothing about the device's
    by_function: dict[tuple[str, str], list[LineCost]] = {}
    for line in select(steps, lambda line: line.phase == "forward"):
        by_function.setdefault((line.place.file, line.place.function), []).append(line)
    for lines in by_function.values():
        group = LineGroup(lines=tuple(sorted(lines, key=lambda line: -line.seconds)))
        if group.seconds < limits.python_in_forward_ratio * steps.span_s or not _is_attention(
            evidence, group
        ):
            continue
        place = group.hottest.place
        yield cause(
            evidence,
            ID,
            message=f"Attention is written out in {group.function or 'the model'}(){at(place)}.",
            advice="Use torch.nn.functional.scaled_dot_product_attention: one kernel.",
            numbers=[f"{share(group.seconds / steps.span_s)} of the span in this function's forward"],
            where=place,
            severity="info",
            data={"effect": "numeric"},
        )


def _is_attention(evidence: Evidence, group: LineGroup) -> bool:
    text = function_text(evidence, group.hottest.place)
    return bool(_SOFTMAX.search(text) and _SCORES.search(text)) and not _FUSED.search(text)
