"""Attention is written out as softmax of a matrix product."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable

from hotloop.diagnose.causes import at, cause
from hotloop.diagnose.discovery import rule
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.groups import LineGroup, grouped, select
from hotloop.diagnose.source import function_text
from hotloop.findings import Finding
from hotloop.measure.steps import LineCost
from hotloop.units import share

ID = "device/attention-not-fused"

#: A product with a transposed factor, or one that takes them as they are: scores.
_SCORES = re.compile(r"\b(bmm|baddbmm|einsum)\(|(@|\bmatmul\().*(transpose\(|permute\(|\.m?T\b|\.t\(\))")
_PRODUCT = re.compile(r" @ |\b(matmul|bmm|baddbmm|einsum)\(")
_SOFTMAX = re.compile(r"(?<!log_)(?<!gumbel_)softmax\(", re.I)
_FUSED = re.compile(r"scaled_dot_product_attention|flash_attn|xformers")


@rule(ID)
def check(evidence: Evidence) -> Iterable[Finding]:
    """A function of the model with softmax(q @ k^T) @ v that takes a visible part of forward."""
    steps, limits = evidence.steps, evidence.limits
    if evidence.on_accelerator:
        return  # the host's time in a line says nothing about the device's
    by_function: dict[tuple[str, str], list[LineCost]] = defaultdict(list)
    for line in select(steps, lambda line: line.phase == "forward"):
        by_function[line.place.file, line.place.function].append(line)
    for lines in by_function.values():
        group = grouped(lines)
        place = group.hottest.place
        visible = group.seconds >= limits.python_in_forward_ratio * steps.span_s
        if visible and _is_taken(group, function_text(evidence, place)):
            yield cause(
                evidence,
                ID,
                message=f"Attention is written out in {group.function or 'the model'}(){at(place)}.",
                numbers=[f"{share(group.seconds / steps.span_s)} of the span in this function's forward"],
                where=place,
                severity="info",
                data={"effect": "numeric", "unpriced": True},
            )


def _is_taken(group: LineGroup, text: str) -> bool:
    """Whether the function has attention written out and, of a branch for each, was seen in that one."""
    if not _is_written_out(text) or not _FUSED.search(text):
        return _is_written_out(text)
    sources = [line.source for line in group.lines]
    return any(map(_SOFTMAX.search, sources)) and not any(map(_FUSED.search, sources))


def _is_written_out(text: str) -> bool:
    """Whether a softmax stands between a product with a transposed factor and another product."""
    lines = text.splitlines()
    at = next((number for number, line in enumerate(lines) if _SOFTMAX.search(line)), len(lines))
    before, line, after = "\n".join(lines[:at]), "".join(lines[at : at + 1]), "\n".join(lines[at + 1 :])
    products = len(_PRODUCT.findall(line + after))
    return bool(products and _SCORES.search(before)) or (products > 1 and bool(_SCORES.search(line)))
