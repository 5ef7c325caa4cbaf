"""Training loops: the code that runs once per step, and whether a line in it runs at every step."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from hotloop.audit.module import Module
from hotloop.source.nodes import (
    COMPREHENSIONS,
    DEFINITIONS,
    FUNCTIONS,
    LOOPS,
    Function,
    Loop,
    chain,
    is_none,
    last_name,
)
from hotloop.source.values import constant, made_by

_OPTIMIZER: Final = re.compile(
    r"(^|[._])(optim\w*|opt(_\w+|[A-Z_]\w*)?|\w+_opt|opt|sgd|adam\w*|solver|\w*scaler\w*|optimizer\w*)$", re.I
)
_NOT_OPTIMIZER: Final = re.compile(r"sched|(^|[._])env", re.I)
#: Functions that are one step by their name, wherever their loop and their optimizer are.
_ONE_STEP: Final = re.compile(
    r"_?(\w+_)?(train(ing)?_?(step|batch|iter|iteration|one_batch|on_batch)|fit_batch|optimize_parameters)"
    r"(_\w+)?$"
)
#: A name of a switch that turns a way of computing on, not an occasional action.
_SWITCH: Final = re.compile(r"amp|fp16|bf16|half|cuda|gpu|distributed|mixed|scaler|clip|train", re.I)
#: A count that stays what it is: ``if accumulation_steps > 1``.
_COUNT: Final = re.compile(r"accum|world_size|n_?gpus?$|num_gpus", re.I)


@dataclass(frozen=True, kw_only=True)
class Region:
    """What runs once per step: a loop's body, or a function called once per step.

    ``backwards`` and ``steps`` are the calls of ``backward`` and of optimizers' ``step`` in it.
    """

    module: Module
    root: Loop | Function
    backwards: tuple[ast.Call, ...] = ()
    steps: tuple[ast.Call, ...] = ()

    @cached_property
    def calls(self) -> list[ast.Call]:
        """Every call in it."""
        return self.module.nodes(ast.Call, self.root)

    @property
    def function(self) -> Function | None:
        """The function that the region is, or is part of."""
        return self.module.enclosing(self.root)

    @cached_property
    def losses(self) -> set[str]:
        """The names that ``backward`` is called on."""
        owners = [c.func.value for c in self.backwards if isinstance(c.func, ast.Attribute)]
        return {owner.id for owner in owners if isinstance(owner, ast.Name)}

    def calls_named(self, *names: str) -> list[ast.Call]:
        """Calls in the region by the last part of what is called."""
        return [call for call in self.calls if last_name(call.func) in names]

    def every_step(self, node: ast.AST) -> bool:
        """Whether ``node`` surely runs at every step: not gated by a condition, a handler or a skip."""
        return self.interval(node) == 1

    def interval(self, node: ast.AST) -> int | None:
        """Every how many steps ``node`` runs: 1, or N of one ``if step % N == 0``; None where unsure."""
        gate: ast.expr | None = None
        below = node
        for above in self.module.ancestors(node):
            if _skips_before(above, below):
                return None
            if _gates(above, below) and not self._is_step(above, below):
                if gate is not None or not isinstance(above, ast.If) or below not in above.body:
                    return None
                gate = above.test
            if above is self.root:
                ends = isinstance(above, LOOPS) and below in above.orelse
                return None if ends else _modulus(self.module, gate) if gate is not None else 1
            if isinstance(above, DEFINITIONS) and above.name != "closure":
                return None
            below = above
        return None

    def _is_step(self, gate: ast.AST, below: ast.AST) -> bool:
        """Whether a condition decides about the step itself: a backward in its branch, and none outside."""
        if not isinstance(gate, ast.If):
            return False
        branch = gate.body if below in gate.body else gate.orelse
        holds = self.module.holds
        inside = any(holds(statement, call) for statement in branch for call in self.backwards)
        return inside and all(holds(gate, call) for call in self.backwards)


def find(module: Module, called_in_loops: set[str]) -> list[Region]:
    """The regions of a module. ``called_in_loops``: last names of all calls in loops of the whole tree."""
    backwards = [c for c in (*module.calls("backward"), *module.calls("manual_backward")) if _is_backward(c)]
    if not backwards:
        return []
    steps = [call for call in module.calls("step") if is_optimizer_step(module, call)]
    roots = dict.fromkeys(_root(module, call, steps, called_in_loops) for call in backwards)
    return [
        Region(
            module=module,
            root=root,
            backwards=tuple(call for call in backwards if module.holds(root, call)),
            steps=tuple(call for call in steps if module.holds(root, call)),
        )
        for root in roots
        if root is not None
    ]


def is_optimizer_step(module: Module, call: ast.Call) -> bool:
    """Whether ``x.step()`` moves parameters: x is named or made as an optimizer or a gradient scaler."""
    if not isinstance(call.func, ast.Attribute):
        return False
    owner = chain(call.func.value)
    if _NOT_OPTIMIZER.search(owner):
        return False
    made = made_by(module, call.func.value)
    return bool(_OPTIMIZER.search(owner)) or (made.startswith("torch.optim.") and "sched" not in made)


def loop_calls(module: Module) -> Iterator[str]:
    """Last names of the calls that stand in loops of this module."""
    for kind in (*LOOPS, *COMPREHENSIONS):
        for loop in module.nodes(kind):
            yield from (last_name(call.func) for call in module.nodes(ast.Call, loop))


def _is_backward(call: ast.Call) -> bool:
    owner = chain(call.func.value) if isinstance(call.func, ast.Attribute) else "ctx"
    return owner.rpartition(".")[2] not in ("ctx", "super", "autograd")


def _root(
    module: Module, call: ast.Call, steps: list[ast.Call], called_in_loops: set[str]
) -> Loop | Function | None:
    """The innermost loop with a backward and a step; else the function with both, if loops call it, or a
    ``__call__`` that clears the gradients as well: a whole step as an object; else a function with a backward
    that is named as one step.
    """
    crossed: Function | None = None
    for above in module.ancestors(call):
        has_step = any(module.holds(above, step) for step in steps)
        if isinstance(above, LOOPS) and has_step and (crossed is None or crossed.name.endswith("closure")):
            return above
        if isinstance(above, FUNCTIONS):
            clears = any(module.holds(above, one) for one in module.calls("zero_grad"))
            called = above.name in called_in_loops or (above.name == "__call__" and clears)
            if crossed is None and ((has_step and called) or _ONE_STEP.match(above.name)):
                return above
            crossed = above
        if isinstance(above, ast.ClassDef):
            return None
    return None


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
        if isinstance(value, ast.Constant) and isinstance(value.value, int):
            return isinstance(test.left, ast.Name | ast.Attribute) and bool(_COUNT.search(chain(test.left)))
        return is_none(value) and isinstance(test.ops[0], ast.Is | ast.IsNot) and _is_switch(test.left)
    return isinstance(test, ast.Name | ast.Attribute) and bool(_SWITCH.search(chain(test)))


def _skips_before(above: ast.AST, below: ast.AST) -> bool:
    """Whether an earlier ``if …: continue`` in the same block may skip ``below``.

    ``if step > max: break`` is none: it ends the loop, and what follows still runs at every step there is.
    """
    blocks = (getattr(above, name, None) for name in ("body", "orelse", "finalbody"))
    block = next((block for block in blocks if isinstance(block, list) and below in block), [])
    return any(
        isinstance(statement, ast.If) and isinstance(statement.body[-1], ast.Continue | ast.Return)
        for statement in block[: block.index(below) if block else 0]
    )


def _modulus(module: Module, test: ast.expr) -> int | None:
    """N of ``step % N == 0`` or ``not step % N``; none where epochs are counted."""
    if isinstance(test, ast.Compare) and len(test.ops) == 1 and isinstance(test.ops[0], ast.Eq):
        side = test.left if isinstance(getattr(test.comparators[0], "value", None), int) else None
    else:
        side = test.operand if isinstance(test, ast.UnaryOp) and isinstance(test.op, ast.Not) else None
    if not isinstance(side, ast.BinOp) or not isinstance(side.op, ast.Mod):
        return None
    value = constant(module, side.right)
    counts = isinstance(value, int) and not isinstance(value, bool) and value > 0
    return value if counts and "epoch" not in ast.unparse(side).lower() else None
