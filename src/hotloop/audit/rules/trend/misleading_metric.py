"""``trend/misleading-metric`` in source: the host's clock around work that a GPU does later, and a data time
whose clock starts when the batch is there.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final

from hotloop.audit.hit import hit
from hotloop.audit.module import Function, Module
from hotloop.audit.regions import Region
from hotloop.audit.tree import Tree, uses_cuda
from hotloop.findings import Finding

ID = "trend/misleading-metric"
_CLOCKS: Final = frozenset(
    f"time.{name}{unit}" for name in ("time", "perf_counter", "monotonic") for unit in ("", "_ns")
)
#: What waits for the device, or asks its own clock.
_WAITS: Final = re.compile(
    r"synchronize|elapsed_time|\bEvent\(|\.item\(|\.cpu\(|\.tolist\(|\.numpy\(|\bfloat\("
)
_TIMER: Final = re.compile(r"tim(e|er|ed|ing)(_|\b)|prof|clock|stopwatch|measure|stage", re.IGNORECASE)
_WORK: Final = re.compile(r"fwd|forward|bwd|backward|compute|infer|gpu|model", re.IGNORECASE)
#: What a time is called that is meant to hold the wait for a batch, and what may be such a wait.
_DATA: Final = re.compile(
    r"(^|[._])(data|load(er|ing)?|fetch(ing)?)_?(time|wait|dur\w*|elapsed|secs?|seconds|ms|s|t)$",
    re.IGNORECASE,
)
_FETCHES: Final = re.compile(r"next|load|read|fetch|get_batch|sample|collate|open\(|data\[", re.IGNORECASE)
_ADVICE: Final = (
    "Record torch.cuda.Event(enable_timing=True) before and after, and read elapsed_time when it is printed; "
    "or call torch.cuda.synchronize() before both readings, in runs that only measure."
)


def check(tree: Tree) -> Iterator[Finding]:
    """Speak of timers around parts of a ``forward`` and around model calls, where nothing waits for CUDA."""
    timed = _timed_forward(tree)
    if timed is not None and tree.trains_on_cuda:
        for module in tree.modules:
            yield from (_manager(module, function, timed) for function in _managers(module))
    for region in tree.regions:
        if uses_cuda(region.module):
            yield from _around_calls(region)
    for region in (*tree.regions, *(loop for loop, _ in tree.outer)):
        if isinstance(region.root, ast.For):
            yield from _late_data_time(region.module, region.root)


def _manager(module: Module, function: Function, timed: str) -> Finding:
    owner = module.class_of(function)
    name = f"{owner.name}.{function.name}" if owner else function.name
    return hit(
        ID,
        module,
        function,
        "info",
        f"{name} reads the host's clock around parts of forward ({timed}): on a GPU they are only queued "
        "there, and a part is charged for those that it had to wait for.",
        _ADVICE,
    )


def _timed_forward(tree: Tree) -> str | None:
    """Where a ``forward`` enters something that is called like a timer."""
    for module in tree.modules:
        for statement in module.withs:
            function = module.function_of(statement)
            if function is None or function.name != "forward" or module.class_of(function) is None:
                continue
            calls = [item.context_expr for item in statement.items]
            if any(isinstance(call, ast.Call) and _TIMER.search(ast.unparse(call.func)) for call in calls):
                return f"{module.name}:{statement.lineno}"
    return None


def _managers(module: Module) -> Iterator[Function]:
    """Context managers that yield between two readings of the host's clock and wait for nothing."""
    for function in module.functions:
        marks = [module.dotted(one) for one in function.decorator_list]
        if "contextlib.contextmanager" not in marks or _WAITS.search(ast.unparse(function)):
            continue
        calls = (node for node in ast.walk(function) if isinstance(node, ast.Call))
        clocks = sorted(call.lineno for call in calls if _reads_clock(module, call))
        yields = [node.lineno for node in ast.walk(function) if isinstance(node, ast.Yield)]
        if len(yields) == 1 and clocks and clocks[0] <= yields[0] < clocks[-1]:
            yield function


def _around_calls(region: Region) -> Iterator[Finding]:
    """``start = now()``, a call of the model, ``forward_time = now() - start``, and nothing that waits."""
    body = getattr(region.root, "body", [])
    for first, statement in enumerate(body):
        since = _assigned_now(region.module, statement)
        if since is None:
            continue
        between: list[str] = []
        for other in body[first + 1 :]:
            if _elapsed(region.module, other, since):
                text = "\n".join(between)
                if between and not _WAITS.search(text) and _calls_work(text):
                    yield hit(
                        ID,
                        region.module,
                        other,
                        "info",
                        f"The time since {since} holds model work and nothing that waits for the device: on "
                        "a GPU it is the time to queue it.",
                        _ADVICE,
                    )
                break
            between.append(ast.unparse(other))


def _late_data_time(module: Module, loop: ast.For) -> Iterator[Finding]:
    """``data_time += now() - start`` where the loop over the batches sets ``start`` itself, before it."""
    batch = {node.id for node in ast.walk(loop.target) if isinstance(node, ast.Name)}
    started: dict[str, list[ast.stmt]] = {}
    for statement in loop.body:
        target = _target(statement)
        for since, between in started.items() if _DATA.search(target) else ():
            used = {node.id for other in between for node in ast.walk(other) if isinstance(node, ast.Name)}
            fetches = _FETCHES.search("\n".join(map(ast.unparse, between)))
            if _has_elapsed(module, statement, since) and used & batch and not fetches:
                yield hit(
                    ID,
                    module,
                    statement,
                    "info",
                    f"«{target}» starts its clock after the batch has arrived: {since} is set inside the "
                    "loop over the batches, so it cannot see how long a step waits for data.",
                    f"Set {since} at the end of the iteration before, before the loop asks for the batch.",
                )
                return
        for between in started.values():
            between.append(statement)
        since_now = _assigned_now(module, statement)
        if since_now is not None:
            started[since_now] = []


def _calls_work(text: str) -> bool:
    """Whether a model is called or gradients are computed."""
    return re.search(r"\b(self\.)?(model|net|network|generator|student)\(|\.backward\(", text) is not None


def _assigned_now(module: Module, node: ast.stmt) -> str | None:
    if isinstance(node, ast.Assign) and len(node.targets) == 1 and _reads_clock(module, node.value):
        return ast.unparse(node.targets[0])
    return None


def _elapsed(module: Module, node: ast.stmt, since: str) -> bool:
    """Whether a statement gives ``now() - since`` a name that speaks of computing."""
    return bool(_WORK.search(_target(node))) and _has_elapsed(module, node, since)


def _target(node: ast.stmt) -> str:
    """What a statement gives a value to, "" where it does not."""
    if not isinstance(node, ast.Assign | ast.AugAssign):
        return ""
    return ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)


def _has_elapsed(module: Module, node: ast.stmt, since: str) -> bool:
    return any(
        isinstance(part, ast.BinOp)
        and isinstance(part.op, ast.Sub)
        and _reads_clock(module, part.left)
        and ast.unparse(part.right) == since
        for part in ast.walk(node)
    )


def _reads_clock(module: Module, node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and module.dotted(node.func) in _CLOCKS
