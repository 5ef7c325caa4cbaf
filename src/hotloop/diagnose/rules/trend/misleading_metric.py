"""``trend/misleading-metric``: a number the script prints about its own speed does not say what its name
says.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePath

from hotloop import units
from hotloop.diagnose import costs
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.source import text_of
from hotloop.findings import Finding, Place
from hotloop.written import tree_of

ID = "trend/misleading-metric"

_NOW = re.compile(
    r"^(time\.)?(time|perf_counter|monotonic|process_time|default_timer|timer)(_ns)?$|^timeit\.default_timer$"
)
_DATA_NAME = re.compile(
    r"(data|load|fetch|batch|input|io).*(time|_t|_s|_ms|dur|elapsed|sec)|^t_(data|load|fetch|input)",
    re.IGNORECASE,
)

#: What stands between steps and is none of them.
_PAUSES = ("evaluation", "checkpoint", "epoch_gap")


@dataclass(frozen=True, kw_only=True)
class _Timer:
    """``name = now() - since`` in a loop; ``since`` was last set at ``since_line``."""

    name: str
    line: int
    since: str


def check(evidence: Evidence) -> Iterator[Finding]:
    """Read the training loop's own timers where the recording holds its source."""
    steps = evidence.steps
    place = steps.source_loop or (steps.loaders[0].where if steps.loaders else None)
    if place is None or not costs.enough(evidence):
        return
    tree = tree_of(text_of(evidence, place.file))
    if tree is None:
        return
    loops = [node for node in ast.walk(tree) if isinstance(node, ast.For) and _drives(node, evidence, place)]
    for loop in loops:
        yield from _late_data_time(evidence, place.file, loop)
        yield from _cumulative_rate(evidence, place.file, loop)
    if steps.num_epochs > 1:
        yield from _one_epoch_over_all(place.file, tree)


def _drives(loop: ast.For, evidence: Evidence, place: Place) -> bool:
    """Whether the loop holds the line the steps are driven from and no inner ``for`` that holds it too."""

    def holds(node: ast.stmt) -> bool:
        return node.lineno <= place.line <= (node.end_lineno or node.lineno)

    inner = [node for node in ast.walk(loop) if isinstance(node, ast.For) and node is not loop]
    return evidence.steps.source_loop is not None and holds(loop) and not any(holds(node) for node in inner)


def _late_data_time(evidence: Evidence, file: str, loop: ast.For) -> Iterator[Finding]:
    """A «data time» whose clock is started inside the loop's body, when the batch is already there."""
    steps = evidence.steps
    if steps.share("data_wait") < evidence.limits.worth_fixing_ratio or steps.train_loader() is None:
        return
    started: dict[str, int] = {}
    for statement in loop.body:
        target = _assigned_now(statement)
        if target is not None:
            started[target] = statement.lineno
        timer = _elapsed(statement)
        if timer is None or timer.since not in started or not _DATA_NAME.search(timer.name):
            continue
        yield Finding(
            id=ID,
            message=(
                f"«{timer.name}» at {PurePath(file).name}:{timer.line} starts its clock after the batch has "
                "arrived: it cannot see "
                f"the {units.duration(steps.per_step('data_wait'))} each step waits for data."
            ),
            advice=(
                f"Set {timer.since} at the end of the previous iteration, before the loop asks for the next "
                "batch."
            ),
            evidence=(
                f"{timer.since} is set at line {started[timer.since]}, inside the loop over the batches",
                f"data_wait is {units.share(steps.share('data_wait'))} of the training span",
            ),
            severity="info",
            where=Place(file=file, line=timer.line),
            data={"kind": "data-time-after-batch"},
        )
        return


def _cumulative_rate(evidence: Evidence, file: str, loop: ast.For) -> Iterator[Finding]:
    """A rate over all time since before the loop, read as the rate of now, where the two differ."""
    steps = evidence.steps
    total = steps.num_steps / max(1e-9, steps.end_s[-1] - steps.span[0])
    now = _rate_now(evidence)
    if now is None or now < total * (1 + 2 * evidence.limits.decay_ratio):
        return
    inner = {_assigned_now(node) for node in ast.walk(loop) if isinstance(node, ast.Assign)}
    for node in ast.walk(loop):
        since = _rate_since(node)
        if since is None or since in inner or not isinstance(node, ast.expr):
            continue
        yield Finding(
            id=ID,
            message=(
                f"The rate at {PurePath(file).name}:{node.lineno} is an average since {since}: at the end "
                "it stands for "
                f"{units.rate(total)} steps/s where the later steps ran at {units.rate(now)}."
            ),
            advice="Divide the steps since the last print by the time since the last print.",
            evidence=(
                f"{since} is set before the loop and never inside it; the average holds start-up, "
                "evaluation and "
                "every pause",
                f"{steps.num_steps} steps in {units.duration(steps.span_s)}; a step of the second half takes "
                f"{units.duration(1 / now)} without its pauses",
            ),
            severity="info",
            where=Place(file=file, line=node.lineno),
            data={"kind": "cumulative-average"},
        )
        return


def _rate_now(evidence: Evidence) -> float | None:
    """Steps per second of the second half, without its pauses; None with too few steps.

    A mean: where every n-th step makes the data of those after it, a median step does not.
    """
    steps = evidence.steps
    length = steps.end_s - steps.start_s
    for pause in _PAUSES:
        length = length - steps.phase(pause)
    later = length[steps.steady]
    later = later[len(later) // 2 :]
    if len(later) < evidence.limits.min_steps:
        return None
    return float(1.0 / max(1e-9, later.mean()))


def _one_epoch_over_all(file: str, tree: ast.Module) -> Iterator[Finding]:
    """``len(dataset) / elapsed`` where ``elapsed`` counts from before the loop: it falls by nature."""
    for loop in ast.walk(tree):
        if not isinstance(loop, ast.For | ast.While):
            continue
        inner = {_assigned_now(node) for node in ast.walk(loop) if isinstance(node, ast.Assign)}
        timers = [
            timer for node in ast.walk(loop) if isinstance(node, ast.stmt) and (timer := _elapsed(node))
        ]
        since_of = {timer.name: timer.since for timer in timers if timer.since.isidentifier()}
        for node in ast.walk(loop):
            if not (isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div) and _is_length(node.left)):
                continue
            since = since_of.get(ast.unparse(node.right)) or _since(node.right)
            if since is None or not since.isidentifier() or since in inner:
                continue
            name, size = f"{PurePath(file).name}:{node.lineno}", ast.unparse(node.left)
            yield Finding(
                id=ID,
                message=f"The rate at {name} divides {size}, one epoch, by all the time since {since}: "
                "it falls every epoch, whatever the speed.",
                advice=f"Set {since} at the start of every epoch.",
                evidence=(f"{since} is set before the loop at line {loop.lineno} and never inside it",),
                severity="info",
                where=Place(file=file, line=node.lineno),
                data={"kind": "one-epoch-over-all-time"},
            )
            return


def _is_length(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "len"


def _is_now(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and not node.args and bool(_NOW.match(ast.unparse(node.func)))


def _assigned_now(node: ast.stmt | ast.AST) -> str | None:
    """``name`` in ``name = time.time()``."""
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and _is_now(node.value):
        return ast.unparse(node.targets[0])
    return None


def _elapsed(node: ast.stmt) -> _Timer | None:
    """``name`` and ``since`` in ``name = now() - since``, ``name += ...`` and ``name.update(now() -
    since)``.
    """
    if isinstance(node, ast.Assign) and len(node.targets) == 1:
        name, value = ast.unparse(node.targets[0]), node.value
    elif isinstance(node, ast.AugAssign):
        name, value = ast.unparse(node.target), node.value
    elif isinstance(node, ast.Expr) and isinstance(node.value, ast.Call) and node.value.args:
        name, value = ast.unparse(node.value.func).rsplit(".", 1)[0], node.value.args[0]
    else:
        return None
    since = _since(value)
    return _Timer(name=name, line=node.lineno, since=since) if since is not None else None


def _since(node: ast.expr) -> str | None:
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
        return _since(node.left) or _since(node.right)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and _is_now(node.left):
        return ast.unparse(node.right)
    return None


def _rate_since(node: ast.AST) -> str | None:
    """``since`` in ``anything / (now() - since)``."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        return _since(node.right)
    return None
