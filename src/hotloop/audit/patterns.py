"""Rules of one frame: what is called at every step, for every sample, or anywhere; what a flag is set to."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Sequence
from typing import Final

from hotloop.audit.datasets import DatasetClass
from hotloop.audit.hits import Hit, Rule, at
from hotloop.audit.loaders import Loader
from hotloop.audit.module import Module
from hotloop.audit.program import Program
from hotloop.audit.regions import Region
from hotloop.findings import Severity
from hotloop.source.nodes import argument, last_name
from hotloop.source.values import UNKNOWN, constant

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


def environment(module: Module, assign: ast.Assign) -> tuple[object, object]:
    """Name and value of ``os.environ["NAME"] = value``, UNKNOWN for anything else."""
    target = assign.targets[0]
    if isinstance(target, ast.Subscript) and module.qualified(target.value) == "os.environ":
        return constant(module, target.slice), constant(module, assign.value)
    return UNKNOWN, UNKNOWN


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
