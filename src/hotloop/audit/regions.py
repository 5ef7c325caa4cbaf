"""Training loops: the code that runs once per step, and whether a line in it runs at every step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

from hotloop.audit.module import Function, Loop, Module, chain

_LOOPS: Final = (ast.For, ast.AsyncFor, ast.While)
_REPEATS: Final = (*_LOOPS, ast.ListComp, ast.GeneratorExp)
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
_OPTIMIZER: Final = re.compile(
    r"(^|[._])(optim\w*|opt(_\w+|[A-Z_]\w*)?|\w+_opt|opt|sgd|adam\w*|solver|\w*scaler\w*|optimizer\w*)$", re.I
)
_NOT_OPTIMIZER: Final = re.compile(r"sched|(^|[._])env", re.I)
#: Functions that are one step by their name, wherever their loop and their optimizer are.
_ONE_STEP: Final = re.compile(
    r"_?(\w+_)?(train(ing)?_?(step|batch|iter|iteration|one_batch|on_batch)|fit_batch|optimize_parameters)"
    r"(_\w+)?$"
)
_BACKWARDS: Final = ("backward", "manual_backward")
#: A name of a switch that turns a way of computing on, not an occasional action.
_SWITCH: Final = re.compile(r"amp|fp16|bf16|half|cuda|gpu|distributed|mixed|scaler|clip|train", re.I)


#: What a condition on a setting is written with.
_OF_SETTINGS: Final = (
    ast.Name, ast.Attribute, ast.Constant, ast.Compare, ast.UnaryOp, ast.Not, ast.Load,
    ast.In, ast.NotIn, ast.Is, ast.IsNot, ast.Eq, ast.NotEq,
)  # fmt: skip
#: What changes as training goes on, and what is asked for to look at it closely.
_PASSING: Final = re.compile(r"epoch|step|iter|count|first|last|done|debug|verbose|profil|log|print", re.I)


#: A count that stays what it is: ``if accumulation_steps > 1``.
_COUNT: Final = re.compile(r"accum|world_size|n_?gpus?$|num_gpus", re.I)


@dataclass(frozen=True, kw_only=True)
class Region:
    """What runs once per step: a loop's body, or a function called once per step.

    ``backwards`` and ``steps`` are the calls of ``backward`` and of optimizers' ``step`` in it.
    """

    module: Module
    root: Loop | Function
    backwards: tuple[ast.Call, ...]
    steps: tuple[ast.Call, ...]
    calls: tuple[ast.Call, ...] = field(repr=False)

    @property
    def function(self) -> Function | None:
        """The function that the region is, or is part of."""
        return self.root if isinstance(self.root, _FUNCTIONS) else self.module.function_of(self.root)

    def contains(self, node: ast.AST) -> bool:
        """Whether ``node`` lies inside."""
        return self.root in self.module.ancestors(node)

    def every_step(self, node: ast.AST) -> bool:
        """Whether ``node`` surely runs at every step: not gated by a condition, a handler or a skip."""
        return self.under(node) == ()

    def under(self, node: ast.AST) -> tuple[str, ...] | None:
        """The settings with which ``node`` runs at every step, () where it does with any; None where it does
        not, or nothing says so.
        """
        settings: list[str] = []
        below = node
        for above in self.module.ancestors(node):
            skips = _skips_before(above, below)
            if not all(map(self._is_setting, skips)):
                return None
            settings += [ast.unparse(_negated(test)) for test in skips]
            if _gates(above, below) and not self._is_step(above, below):
                if not isinstance(above, ast.If | ast.IfExp) or not self._is_setting(above.test):
                    return None
                holds = below is above.body or (isinstance(above, ast.If) and below in above.body)
                settings.append(ast.unparse(above.test if holds else _negated(above.test)))
            if above is self.root:
                return None if isinstance(above, _LOOPS) and below in above.orelse else tuple(settings)
            if isinstance(above, *_NESTED) and above.name != "closure":
                return None
            below = above
        return None

    def _is_setting(self, test: ast.expr) -> bool:
        """Whether a condition is decided before the loop, by how the script was started."""
        nodes = list(ast.walk(test))
        if not all(isinstance(node, _OF_SETTINGS) for node in nodes) or _PASSING.search(ast.unparse(test)):
            return False
        names = {node.id for node in nodes if isinstance(node, ast.Name)}
        attributes = (node for node in nodes if isinstance(node, ast.Attribute))
        return names.isdisjoint(self._bound - {"self"}) and all(map(self._stays, attributes))

    @cached_property
    def _bound(self) -> set[str]:
        """Names that a step binds, its arguments among them."""
        stored = (node for node in ast.walk(self.root) if isinstance(node, ast.Name))
        given = (node.arg for node in ast.walk(self.root) if isinstance(node, ast.arg))
        return {node.id for node in stored if not isinstance(node.ctx, ast.Load)} | set(given)

    def _stays(self, node: ast.Attribute) -> bool:
        """Whether ``self.name`` is what ``__init__`` made it; what other objects have is taken to stay."""
        if not isinstance(node.value, ast.Name) or node.value.id != "self":
            return True
        owner = self.module.class_of(self.root)
        values = self.module.attribute_bindings(owner, node.attr) if owner else []
        made = self.module.function_of(values[0]) if len(values) == 1 and values[0] is not None else None
        return made is not None and made.name == "__init__"

    def _is_step(self, gate: ast.AST, below: ast.AST) -> bool:
        """Whether a condition decides about the step itself: a backward in its branch, and none outside."""
        if not isinstance(gate, ast.If):
            return False
        branch = gate.body if below in gate.body else gate.orelse
        above = [set(self.module.ancestors(call)) for call in self.backwards]
        return all(gate in nodes for nodes in above) and any(not nodes.isdisjoint(branch) for nodes in above)

    def interval(self, node: ast.AST) -> int | None:
        """Every how many steps ``node`` runs: 1, or N of one ``if step % N == 0``; None where unsure."""
        if self.every_step(node):
            return 1
        gates = []
        below = node
        for above in self.module.ancestors(node):
            if _skips_before(above, below) or isinstance(above, *_NESTED):
                return None
            if above is self.root:
                break
            if _gates(above, below):
                gates.append(above)
            below = above
        if len(gates) == 1 and isinstance(gates[0], ast.If) and node not in _walk_all(gates[0].orelse):
            return _modulus(self.module, gates[0].test)
        return None

    def calls_named(self, *names: str) -> Iterator[ast.Call]:
        """Calls in the region by the last part of what is called."""
        return (call for call in self.calls if chain(call.func).rpartition(".")[2] in names)


_NESTED: Final = ((ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef),)


def _walk_all(nodes: list[ast.stmt]) -> set[ast.AST]:
    return {part for node in nodes for part in ast.walk(node)}


def _modulus(module: Module, test: ast.expr) -> int | None:
    """N of ``step % N == 0`` or ``not step % N``; none where epochs are counted."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        side, other = test.left, test.comparators[0]
        if not isinstance(other, ast.Constant) or not isinstance(other.value, int):
            return None
    elif isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        side = test.operand
    else:
        return None
    if (
        not isinstance(side, ast.BinOp)
        or not isinstance(side.op, ast.Mod)
        or "epoch" in ast.dump(side).lower()
    ):
        return None
    value = module.constant(side.right)
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else None


def find(module: Module, called_in_loops: set[str]) -> list[Region]:
    """The regions of a module. ``called_in_loops``: last names of all calls in loops of the whole tree."""
    backwards = [call for name in _BACKWARDS for call in module.calls.get(name, ()) if _is_backward(call)]
    if not backwards:
        return []
    steps = [call for call in module.calls.get("step", ()) if is_optimizer_step(module, call)]
    roots: dict[ast.AST, None] = {}
    for call in backwards:
        root = _root(module, call, steps, called_in_loops)
        if root is not None:
            roots[root] = None
    return [_region(module, root, backwards, steps) for root in roots]  # type: ignore[arg-type]


def around(module: Module, call: ast.Call) -> Region | None:
    """The innermost loop that ``call`` stands in, as a region, where it runs once in every round."""
    for above in module.ancestors(call):
        if isinstance(above, _FUNCTIONS):
            return None
        if isinstance(above, _LOOPS):
            loop = _region(module, above, [], [])
            return loop if loop.every_step(call) else None
    return None


def of_function(module: Module, function: Function) -> Region:
    """A function that is run once per step, as a region."""
    return _region(module, function, [], [])


def is_optimizer_step(module: Module, call: ast.Call) -> bool:
    """Whether ``x.step()`` moves parameters: x is named or made as an optimizer or a gradient scaler."""
    if not isinstance(call.func, ast.Attribute):
        return False
    owner = chain(call.func.value)
    if _NOT_OPTIMIZER.search(owner):
        return False
    made = module.made_by(call.func.value)
    return bool(_OPTIMIZER.search(owner)) or (made.startswith("torch.optim.") and "sched" not in made)


def loop_calls(module: Module) -> Iterator[str]:
    """Last names of the calls that stand in loops of this module."""
    for name, calls in module.calls.items():
        if any(isinstance(a, _REPEATS) for call in calls for a in module.ancestors(call)):
            yield name


def _is_backward(call: ast.Call) -> bool:
    return isinstance(call.func, ast.Attribute) and chain(call.func.value).rpartition(".")[2] not in (
        "ctx",
        "super",
        "autograd",
    )


def _root(module: Module, call: ast.Call, steps: list[ast.Call], called_in_loops: set[str]) -> ast.AST | None:
    """The innermost loop with a backward and a step; else the function with both, if loops call it, or a
    ``__call__`` that clears the gradients as well: a whole step as an object; else a function with a backward
    that is named as one step.
    """
    above_steps = {a for step in steps for a in module.ancestors(step)}
    crossed: Function | None = None
    for above in module.ancestors(call):
        if isinstance(above, _LOOPS) and above in above_steps and _may_cross(module, crossed, above):
            return above
        if isinstance(above, _FUNCTIONS):
            called = above in above_steps and (
                above.name in called_in_loops or (above.name == "__call__" and _clears(module, above))
            )
            if crossed is None and (called or _ONE_STEP.match(above.name)):
                return above
            crossed = above
        if isinstance(above, ast.ClassDef):
            return None
    return None


def _clears(module: Module, function: Function) -> bool:
    return any(function in module.ancestors(call) for call in module.calls.get("zero_grad", ()))


def _may_cross(module: Module, nested: Function | None, loop: ast.AST) -> bool:
    """A function defined in the loop and handed to ``step`` (a closure) belongs to the loop."""
    return nested is None or nested.name.endswith("closure")


def _region(
    module: Module, root: Loop | Function, backwards: list[ast.Call], steps: list[ast.Call]
) -> Region:
    def inside(node: ast.AST) -> bool:
        return root in module.ancestors(node)

    calls = sorted(
        (call for named in module.calls.values() for call in named if _in_lines(root, call) and inside(call)),
        key=lambda call: (call.lineno, call.col_offset),
    )
    return Region(
        module=module,
        root=root,
        backwards=tuple(call for call in backwards if inside(call)),
        steps=tuple(call for call in steps if inside(call)),
        calls=tuple(calls),
    )


def _in_lines(root: ast.AST, node: ast.AST) -> bool:
    first, last = root.lineno, root.end_lineno  # type: ignore[attr-defined]
    return bool(first <= node.lineno <= (last or first))  # type: ignore[attr-defined]


def _gates(above: ast.AST, below: ast.AST) -> bool:
    if isinstance(above, ast.If | ast.IfExp):
        return below is not above.test and not _is_switch(above.test)
    if isinstance(above, ast.BoolOp):
        return below is not above.values[0]
    return isinstance(above, ast.ExceptHandler | ast.Match)


def _is_switch(test: ast.expr) -> bool:
    """``if use_amp``, ``if scaler is not None``: a way of computing, the same at every step."""
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return _is_switch(test.operand)
    if isinstance(test, ast.Compare):
        value = test.comparators[0]
        if not isinstance(value, ast.Constant):
            return False
        if isinstance(value.value, int) and isinstance(test.left, ast.Name | ast.Attribute):
            return bool(_COUNT.search(chain(test.left)))
        return value.value is None and isinstance(test.ops[0], ast.Is | ast.IsNot) and _is_switch(test.left)
    return isinstance(test, ast.Name | ast.Attribute) and bool(_SWITCH.search(chain(test)))


def _negated(test: ast.expr) -> ast.expr:
    if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not):
        return test.operand
    return ast.UnaryOp(op=ast.Not(), operand=test)


def _skips_before(above: ast.AST, below: ast.AST) -> list[ast.expr]:
    """Conditions of each earlier ``if …: continue`` in the same block, which may skip ``below``."""
    for name in ("body", "orelse", "finalbody"):
        block = getattr(above, name, None)
        if isinstance(block, list) and below in block:
            return [
                s.test
                for s in block[: block.index(below)]
                if isinstance(s, ast.If)
                and isinstance(s.body[-1], ast.Continue | ast.Break | ast.Return)
                and not _leaves_for_good(s)
            ]
    return []


def _leaves_for_good(statement: ast.If) -> bool:
    """``if step > max: break`` ends the loop; what follows still runs at every step there is."""
    return isinstance(statement.body[-1], ast.Break)
