"""``memory/host-growth``: the training process's memory grows steadily, with every step."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotloop import units
from hotloop.diagnose import costs, says
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.memory_use import growth, in_span, room_bytes, severity_by_time
from hotloop.diagnose.source import text_of
from hotloop.diagnose.sources import tree_of
from hotloop.findings import Finding, Place

ID = "memory/host-growth"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Fit a line to the process's private memory over the second half; say when it meets the limit."""
    steps, limits = evidence.steps, evidence.limits
    if not costs.enough(evidence):
        return
    found = growth(*in_span(evidence, steps.pid))
    if found is None or found.grown_bytes < limits.growth_bytes:
        return
    room = room_bytes(evidence)
    left = room / found.bytes_per_s if room is not None else None
    place = kept_graph(evidence)
    per_step = found.bytes_per_s * steps.step_s
    yield Finding(
        id=ID,
        message=(
            f"The training process grows by {units.size(found.bytes_per_s * 60)} per minute "
            f"({units.size(per_step)} per step)"
            + (f" and meets the limit in {units.duration(left)}." if left is not None else ".")
        ),
        advice=(
            f"Keep numbers, not tensors: use .item() or .detach() at {says.at(place)}, which holds on to "
            "the graph of every "
            "step."
            if place is not None
            else "Look for what is kept from every step: losses or outputs with their graph, lists of "
            "metrics, a cache "
            "without a bound."
        ),
        evidence=(
            f"{units.size(found.start_bytes)} to {units.size(found.end_bytes)} of private memory over the "
            "last "
            f"{units.duration(found.seconds)}, still growing at the end",
            f"slope {units.size(found.bytes_per_s)}/s, 95 % interval {units.size(found.ci95[0])} to "
            f"{units.size(found.ci95[1])}/s",
            *((f"{units.size(room)} left at the end of the run",) if room is not None else ()),
        ),
        severity=severity_by_time(left) if steps.num_epochs >= 2 or place is not None else "info",
        where=place,
        data={"bytes_per_s": found.bytes_per_s, "seconds_to_limit": left, "bytes_per_step": per_step},
    )


def kept_graph(evidence: Evidence) -> Place | None:
    """Where the training loop keeps the tensor it calls ``backward()`` on: ``kept.append(loss)``, ``total +=
    loss``.
    """
    loop = evidence.steps.source_loop
    if loop is None:
        return None
    tree = tree_of(text_of(evidence, loop.file))
    if tree is None:
        return None
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.Module):
            line = _kept_in(node)
            if line is not None:
                return Place(file=loop.file, line=line, function=getattr(node, "name", ""))
    return None


def _kept_in(scope: ast.FunctionDef | ast.Module) -> int | None:
    calls = [
        node
        for node in ast.walk(scope)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]
    losses = {ast.unparse(call.func.value) for call in calls if call.func.attr == "backward"}  # type: ignore[attr-defined]
    for loop in (node for node in ast.walk(scope) if isinstance(node, ast.For | ast.While)):
        for node in ast.walk(loop):
            if isinstance(node, ast.AugAssign) and ast.unparse(node.value) in losses:
                return node.lineno
            if (
                isinstance(node, ast.Call)
                and isinstance(node.func, ast.Attribute)
                and node.func.attr == "append"
                and any(ast.unparse(argument) in losses for argument in node.args)
            ):
                return node.lineno
    return None
