"""Attention is written out as softmax of a matrix product."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from hotloop.diagnose.evidence import Evidence, at, cause, rule
from hotloop.diagnose.groups import grouped, select
from hotloop.diagnose.source import text_of
from hotloop.findings import Finding, Place
from hotloop.measure.steps import LineCost
from hotloop.source.attention import written_out
from hotloop.source.code import code_of
from hotloop.source.nodes import FUNCTIONS
from hotloop.units import share

_FUSED = re.compile(r"scaled_dot_product_attention|flash_attn|xformers")


@rule("device/attention-not-fused")
def check(evidence: Evidence) -> Iterable[Finding]:
    """A function of the model with softmax(q @ k^T) @ v that takes a visible part of forward."""
    steps, limits = evidence.steps, evidence.limits
    if evidence.on_accelerator:
        return  # the host's time in a line says nothing about the device's
    by_function: dict[tuple[str, str], list[LineCost]] = defaultdict(list)
    for line in select(steps, lambda line: line.phase == "forward"):
        by_function[line.place.in_function].append(line)
    for lines in by_function.values():
        group = grouped(lines)
        visible = group.seconds >= limits.python_in_forward_ratio * steps.span_s
        if visible and (place := _written_out(evidence, group.hottest.place)):
            yield cause(
                evidence,
                message=f"Attention is written out in {group.function or 'the model'}(){at(place)}.",
                numbers=[f"{share(group.seconds / steps.span_s)} of the span in this function's forward"],
                where=place,
                severity="info",
                data={"effect": "numeric", "unpriced": True},
            )


def _written_out(evidence: Evidence, place: Place) -> Place | None:
    """Where the function of a line has attention written out; None where a branch calls a fused one."""
    code = code_of(text_of(evidence, place.file))
    around = [one for one in code.at_line(place.line) if isinstance(one, FUNCTIONS)] if code else []
    if code is None or not around or _FUSED.search(code.source(around[-1])):
        return None
    softmax = written_out(code, around[-1])
    return replace(place, line=code.line(softmax)) if softmax is not None else None
