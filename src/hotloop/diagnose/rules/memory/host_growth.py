"""``memory/host-growth``: the training process's memory grows steadily, with every step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from hotloop import units
from hotloop.diagnose import costs, says
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.memory_use import growth, in_span, paced, room_bytes, severity_by_time
from hotloop.diagnose.source import text_of
from hotloop.findings import Finding, Place
from hotloop.written import tree_of

ID = "memory/host-growth"


def check(evidence: Evidence) -> Iterator[Finding]:
    """Fit a line to the process's private memory over the second half; say when it meets the limit."""
    steps, limits = evidence.steps, evidence.limits
    if not costs.enough(evidence):
        return
    place = kept_graph(evidence)
    seconds, values = in_span(evidence, steps.pid)
    found = growth(paced(evidence, seconds), values, goes_on=place is None)
    if found is None or found.grown_bytes < limits.growth_bytes:
        return
    room = room_bytes(evidence)
    left = room / found.bytes_per_s if room is not None else None
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
        severity=severity_by_time(left) if place is not None or _settled(evidence) else "info",
        where=place,
        data={"bytes_per_s": found.bytes_per_s, "seconds_to_limit": left, "bytes_per_step": per_step},
    )


def _settled(evidence: Evidence) -> bool:
    """Whether growth can no longer be a first epoch that fills caches, or a start that takes its time."""
    steps, limits = evidence.steps, evidence.limits
    loader = steps.train_loader()
    first = loader.batches_per_epoch if loader is not None else 0
    begun = steps.num_epochs >= 2 and steps.num_steps - first >= limits.min_steps
    return begun and steps.span_s >= limits.settled_span_s


def kept_graph(evidence: Evidence) -> Place | None:
    """Where the training loop keeps a tensor with its graph: ``kept.append(loss)``, ``total += loss``.

    That is what ``backward()`` is called on, and what a model returned and the loss was made of.
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
    kept = _with_graph(scope)
    for loop in (node for node in ast.walk(scope) if isinstance(node, ast.For | ast.While)):
        for node in ast.walk(loop):
            if isinstance(node, ast.AugAssign) and _carries(node.value, kept):
                return node.lineno
            call = _method(node, "append")
            if call is not None and any(_carries(argument, kept) for argument in call.args):
                return call.lineno
    return None


def _carries(value: ast.expr, kept: set[str]) -> bool:
    """Whether an expression is arithmetic with such a tensor; a function may make a number of it."""
    parts = [value]
    while parts:
        part = parts.pop()
        if ast.unparse(part) in kept:
            return True
        if isinstance(part, ast.BinOp):
            parts += [part.left, part.right]
        elif isinstance(part, ast.UnaryOp):
            parts.append(part.operand)
    return False


def _with_graph(scope: ast.FunctionDef | ast.Module) -> set[str]:
    """Names of tensors that carry the graph of a step."""
    calls = (_method(node, "backward") for node in ast.walk(scope))
    losses = {ast.unparse(call.func).removesuffix(".backward") for call in calls if call is not None}
    assigned = [node for node in ast.walk(scope) if isinstance(node, ast.Assign) and len(node.targets) == 1]
    behind: set[str] = set()
    for node in assigned:
        if ast.unparse(node.targets[0]) in losses:
            behind |= {name.id for name in ast.walk(node.value) if isinstance(name, ast.Name)}
    returned = {
        ast.unparse(node.targets[0])
        for node in assigned
        if isinstance(node.value, ast.Call) and _is_model(node.value.func)
    }
    return losses | (behind & returned)


def _is_model(called: ast.expr) -> bool:
    """Whether what is called may be a module: ``model(x)``, ``self.net(x)``; not a method of a tensor or
    library.
    """
    name = ast.unparse(called)
    return bool(
        re.fullmatch(
            r"(self\.)?[a-z_]*(model|net|module|generator|discriminator|encoder|decoder)[a-z_0-9]*", name
        )
    )


def _method(node: ast.AST, name: str) -> ast.Call | None:
    """The node if it calls a method of this name."""
    known = isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == name
    return node if known and isinstance(node, ast.Call) else None
