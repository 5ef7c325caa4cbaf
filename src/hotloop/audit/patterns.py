"""What a rule yields: a place, and words of its own where the finding's do not do."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from hotloop.audit.configs import ConfigFile, Entry
from hotloop.audit.datasets import DatasetClass
from hotloop.audit.loaders import Loader
from hotloop.audit.module import Module
from hotloop.audit.program import Program
from hotloop.audit.regions import Region
from hotloop.findings import ENTRIES, Finding, Place, Severity
from hotloop.source.nodes import argument, last_name
from hotloop.source.values import constant


@dataclass(frozen=True, kw_only=True)
class Hit:
    """One place. ``message`` and ``advice`` stand for the finding's title and advice; ``lines`` are further
    places of the same cause.
    """

    where: Place
    severity: Severity
    message: str = ""
    advice: str = ""
    lines: tuple[int, ...] = ()
    column: int = 1
    end_line: int = 1


Rule = Callable[[Program], Iterable[Hit]]


def at(
    module: Module,
    node: ast.AST,
    severity: Severity,
    message: str = "",
    advice: str = "",
    *,
    also: Sequence[ast.AST] = (),
) -> Hit:
    """A hit at ``node``; ``also`` are further places of the same cause, named by line."""
    line = module.line(node)
    function = module.enclosing(node)
    return Hit(
        where=Place(file=module.name, line=line, function=function.name if function else ""),
        severity=severity,
        message=message,
        advice=advice,
        lines=tuple(sorted({module.line(other) for other in also} - {line})),
        column=module.begin(node)[1] + 1,
        end_line=module.end(node)[0] if isinstance(node, ast.expr) else line,
    )


def at_entry(config: ConfigFile, entry: Entry, severity: Severity, message: str, advice: str = "") -> Hit:
    """A hit at the line of a configured value."""
    where = Place(file=config.name, line=entry.line)
    return Hit(where=where, severity=severity, message=message, advice=advice, end_line=entry.line)


def finding(finding_id: str, hit: Hit) -> Finding:
    """The finding that a hit of a rule is."""
    home = ENTRIES[finding_id]
    lines = list(hit.lines)
    also = f"also at line{'s' * (len(lines) > 1)} {', '.join(map(str, lines))}"
    return Finding(
        id=finding_id,
        message=hit.message or home.title,
        advice=hit.advice or home.advice,
        evidence=(also,) if lines else (),
        severity=hit.severity,
        where=hit.where,
        data={"column": hit.column, "end_line": hit.end_line, "lines": lines},
    )


# Rules of one frame


#: One severity down: what happens every few steps instead of at each.
_LESS: Final[dict[Severity, Severity]] = {"high": "medium", "medium": "low", "low": "low", "info": "info"}


def every_step(
    severity: Severity,
    *called: str,
    methods: tuple[str, ...] = (),
    when: Callable[[Program, Region, ast.Call], bool] | None = None,
    most: int = 1,
    message: str = "",
) -> Rule:
    """One hit for each training region with calls that surely run at every step.

    They are of ``called`` by full name, of ``methods`` with an argument, or those ``when`` is true of. With
    ``most``, also those behind a literal ``if step % N == 0`` with N up to ``most``. ``message`` may hold
    ``{}`` for the call, and ``{when}``.
    """

    def matches(program: Program, region: Region, call: ast.Call) -> bool:
        if isinstance(call.func, ast.Attribute) and call.func.attr in methods:
            return bool(call.args)
        return region.module.dotted(call.func) in called or (when is not None and when(program, region, call))

    def rule(program: Program) -> Iterator[Hit]:
        for region in program.regions:
            found = [
                (steps, call)
                for call in region.calls
                if matches(program, region, call) and 0 < (steps := region.interval(call) or 0) <= most
            ]
            if not found:
                continue
            steps, call = found[0]
            name = ast.unparse(call.func)
            often = "at every step" if steps == 1 else f"every {steps} steps"
            words = message.format(name if len(name) <= 60 else last_name(call.func), when=often)
            less = severity if steps == 1 else _LESS[severity]
            yield at(region.module, call, less, words, also=[other for _, other in found[1:]])

    return rule


def each_sample(severity: Severity, matches: Callable[[DatasetClass, ast.Call], str | bool]) -> Rule:
    """The first call of each dataset, in the code of a sample, that matches; what it says where it does."""

    def rule(program: Program) -> Iterator[Hit]:
        for dataset in program.datasets:
            for call in dataset.sample_calls:
                if words := matches(dataset, call):
                    yield at(dataset.module, call, severity, words if isinstance(words, str) else "")
                    break

    return rule


def each_loader(severity: Severity, test: Callable[[Program, Loader], str | bool]) -> Rule:
    """Every loader of which the test says something."""

    def rule(program: Program) -> Iterator[Hit]:
        for loader in program.loaders:
            if words := test(program, loader):
                yield at(loader.module, loader.call, severity, words if isinstance(words, str) else "")

    return rule


def each_region(severity: Severity, test: Callable[[Program, Region], Sequence[ast.AST]]) -> Rule:
    """The first of the nodes that a test names in each training region; the others are further places."""

    def rule(program: Program) -> Iterator[Hit]:
        for region in program.regions:
            if nodes := test(program, region):
                yield at(region.module, nodes[0], severity, also=nodes[1:])

    return rule


def fixed_file(dataset: DatasetClass, call: ast.Call, called: frozenset[str]) -> str:
    """The full name of what is called, where it is one of these and given the same path for every sample."""
    name = dataset.module.dotted(call.func)
    return name if name in called and call.args and dataset.is_fixed(call.args[0]) else ""


def anywhere(
    severity: Severity, *called: str, given: tuple[str, object] | None = None, where_trained: bool = False
) -> Rule:
    """One hit for each file with calls by full name, with an argument of this literal value."""

    def rule(program: Program) -> Iterator[Hit]:
        for module in program.training if where_trained else program.modules:
            calls = [
                call for call in module.calls_to(*called) if given is None or gives(module, call, *given)
            ]
            if calls:
                yield at(module, calls[0], severity, also=calls[1:])

    return rule


def gives(module: Module, call: ast.Call, name: str, value: object, position: int | None = None) -> bool:
    """Whether an argument of a call is surely this literal."""
    return constant(module, argument(call, name, position)) is value


def flag_settings(module: Module) -> Iterator[tuple[str, ast.Assign, object]]:
    """Assignments to ``torch.backends.*``: name, statement, literal value or UNKNOWN."""
    for assign in module.nodes(ast.Assign):
        for target in assign.targets:
            name = module.qualified(target) if isinstance(target, ast.Attribute) else ""
            if name.startswith("torch.backends."):
                yield name, assign, constant(module, assign.value)


def unconditional(module: Module, node: ast.AST) -> bool:
    """Whether ``node`` runs whenever its function does: no condition, loop or handler around it, no early
    return.
    """
    below = node
    for above in module.ancestors(node):
        if isinstance(above, ast.FunctionDef | ast.AsyncFunctionDef | ast.Module):
            before = above.body[: above.body.index(below)] if below in above.body else []
            return not any(module.nodes(ast.Return, statement) for statement in before)
        if isinstance(above, ast.If) and "__name__" not in ast.unparse(above.test):
            return False
        if isinstance(above, ast.IfExp | ast.ExceptHandler | ast.For | ast.While | ast.Lambda | ast.ClassDef):
            return False
        below = above
    return True


def in_training(program: Program, module: Module, node: ast.AST) -> bool:
    """Whether ``node`` surely runs in a training program: in a file that trains, or in a function it
    calls.
    """
    function = module.function_of(node)
    if not program.regions or not unconditional(module, node):
        return False
    if function is None:
        return module in program.training
    own = function.name == "main" or any(region.function is function for region in program.regions)
    return own or any(where in program.training for where, _ in program.callers(function))
