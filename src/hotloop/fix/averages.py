"""The moving average of weights, a loop over two models' parameters, as one call for each operation.

``for e, p in zip(ema.parameters(), model.parameters()): e.mul_(decay).add_(p, alpha=1 - decay)`` is the one
shape that is written: Adam's teachers, target networks and averaged models have it. Every other loop over
tensors is left to words.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import Any, Final

from hotloop.diagnose.limits import Limits
from hotloop.fix import blocks
from hotloop.fix.plan import Plan
from hotloop.fix.scene import Cannot
from hotloop.source.code import Code
from hotloop.source.nodes import last_name, literal, root_of
from hotloop.units import size

_ROUNDING: Final = 1e-9


#: The parts of ``decay * E + weight * P``, in any order.
_PARTS: Final = product(("E * D", "D * E"), ("P * W", "W * P"))
#: What one round is: ``E`` the average, ``P`` the other tensor, D and W numbers; whether list forms of these
#: operations give the same bits.
_SHAPES: Final = (
    ("E.mul_(D).add_(P, alpha=W)", True),
    ("E.mul_(D)\nE.add_(P, alpha=W)", True),
    ("E.lerp_(P, W)", True),
    *(
        (f"E.mul_(D){between}add_({scaled})", False)
        for between in (".", "\nE.")
        for scaled in ("W * P", "P * W")
    ),
    *(
        (form.format(total), False)
        for one, other in _PARTS
        for total in (f"{one} + {other}", f"{other} + {one}")
        for form in ("E.copy_({})", "E = {}")
    ),
)


@dataclass(frozen=True, kw_only=True)
class _Average:
    """What one round does: the averaged tensor ``into``, the other one ``given``, and the numbers.

    ``decay`` is None where the round is an interpolation already.
    """

    into: ast.expr
    given: ast.expr
    weight: ast.expr
    decay: ast.expr | None
    is_lerp: bool
    exact: bool


def foreach_loop(plan: Plan, value: Any) -> None:
    """Each operation of the loop for all tensors, with the same bits; as ``foreach-lerp`` also
    ``a * d + b * (1 - d)`` as one interpolation.
    """
    place = plan.scene.where.get(plan.remedy)
    if place is None:
        raise Cannot("the run has no loop over parameters that takes time")
    code = plan.scene.code(place.file)
    loops = [one for one in code.nodes(ast.For) if one.lineno <= place.line <= code.end(one)[0]]
    if not loops:
        raise Cannot("this line is in no loop over tensors", place.file, place.line)
    loop = loops[-1]

    def cannot(why: str) -> Cannot:
        return Cannot(why, place.file, loop.lineno)

    sides = _sides(code, loop)
    if sides is None:
        raise cannot("the loop does not go over the parameters of two models")
    first, second = (one.id for one, _ in sides)
    average = _read(loop, {"E": first, "P": second}) or _read(loop, {"E": second, "P": first})
    if average is None:
        raise cannot("what the loop does is no moving average")
    calls = _calls(plan, code, sides, average, cannot)
    blocks.require_own_line(code, loop)
    start, end = code.span(loop)
    new = f"{code.text.newline}{code.indent(start)}".join(
        blocks.laid_out(code, start, f"torch.{name}", given) for name, *given in calls
    )
    names = ", ".join(name for name, *_ in calls)
    plan.rewrite(code, start, end, new, f"the loop over its tensors: {names}")
    if not code.global_names("torch"):
        plan.statement(code, "import torch")


# -- the shape -----------------------------------------------------------------------------------------------


def _sides(code: Code, loop: ast.For) -> list[tuple[ast.Name, ast.Call]] | None:
    """The loop's two names, each with its ``model.parameters()``."""
    over = loop.iter
    if loop.orelse or code.builtin(getattr(over, "func", None)) != "zip" or not isinstance(over, ast.Call):
        return None
    target = loop.target
    if not isinstance(target, ast.Tuple) or any(one.arg != "strict" for one in over.keywords):
        return None
    pairs = [
        (name, given)
        for name, given in zip(target.elts, over.args, strict=False)
        if isinstance(name, ast.Name) and isinstance(given, ast.Call) and _is_parameters(given)
    ]
    return pairs if len(pairs) == len(target.elts) == len(over.args) == 2 else None


def _is_parameters(call: ast.Call) -> bool:
    plain = not call.args and not call.keywords and last_name(call.func) == "parameters"
    return plain and isinstance(root_of(call.func), ast.Name)


def _read(loop: ast.For, names: Mapping[str, str]) -> _Average | None:
    """The average that the body of a loop is; ``names`` are those of the tensors ``E`` and ``P``."""
    for shape, exact in _SHAPES:
        found: dict[str, ast.expr] = {}
        body = ast.parse(shape).body
        if len(body) == len(loop.body) and all(map(partial(_fits, names, found), body, loop.body)):
            decay = found.get("D")
            is_lerp = decay is None or _are_one(decay, found["W"])
            into, given, weight = (found[letter] for letter in "EPW")
            return _Average(into=into, given=given, weight=weight, decay=decay, is_lerp=is_lerp, exact=exact)
    return None


def _fits(names: Mapping[str, str], found: dict[str, ast.expr], shape: ast.AST, node: ast.AST) -> bool:
    """Whether a node has a shape; ``found`` gets what stands for its letters."""
    if isinstance(shape, ast.Name) and isinstance(node, ast.expr):
        found.setdefault(shape.id, node)
        if shape.id in names:
            bound = isinstance(shape.ctx, ast.Store) and isinstance(node, ast.Name)
            return not bound and _is(node, names[shape.id])
        used = {one.id for one in ast.walk(node) if isinstance(one, ast.Name)}
        calls = any(isinstance(one, ast.Call) for one in ast.walk(node))
        return not calls and used.isdisjoint(names.values())
    if type(shape) is not type(node):
        return False
    for name, value in ast.iter_fields(shape):
        other = getattr(node, name)
        pairs = list(zip(value, other, strict=False)) if isinstance(value, list) else [(value, other)]
        if isinstance(value, list) and len(value) != len(other):
            return False
        for one, two in pairs if name != "ctx" else ():
            if not (_fits(names, found, one, two) if isinstance(one, ast.AST) else one == two):
                return False
    return True


def _is(node: ast.expr, name: str) -> bool:
    """Whether an expression is a tensor of the loop: ``p``, ``p.data``, ``p.detach()``."""
    if isinstance(node, ast.Call) and last_name(node.func) == "detach" and not node.args:
        node = node.func
    if isinstance(node, ast.Attribute) and node.attr in ("data", "detach"):
        node = node.value
    return isinstance(node, ast.Name) and node.id == name


def _are_one(decay: ast.expr, weight: ast.expr) -> bool:
    """Whether two numbers are ``d`` and ``1 - d``."""
    if literal(decay) and literal(weight):
        total = ast.literal_eval(decay) + ast.literal_eval(weight)
        return bool(abs(total - 1) < _ROUNDING)
    for one, other in ((decay, weight), (weight, decay)):
        if isinstance(one, ast.BinOp) and isinstance(one.op, ast.Sub) and isinstance(one.left, ast.Constant):
            return one.left.value == 1 and ast.dump(one.right) == ast.dump(other)
    return False


# -- whether it may be written -------------------------------------------------------------------------------


def _calls(
    plan: Plan,
    code: Code,
    sides: list[tuple[ast.Name, ast.Call]],
    average: _Average,
    cannot: Callable[[str], Cannot],
) -> list[tuple[str, ...]]:
    """The calls in place of the loop, each with its arguments. Raises Cannot."""
    numeric = plan.remedy == "foreach-lerp"
    notes = plan.scene.process.notes.get("module", ())
    over = {name.id: code.source(call) for name, call in sides}
    into, given = (_list(code, node, over) for node in (average.into, average.given))
    weight = code.source(average.weight)
    if average.is_lerp and ((average.decay is None and average.exact) or numeric):
        return [("_foreach_lerp_", into, given, weight)]
    if average.decay is None or not (average.exact or numeric):
        raise cannot("list forms round otherwise: foreach-lerp writes it")
    whole = max((float(note.get("param_bytes") or 0) for note in notes), default=0.0)
    if plan.scene.device != "cuda" and whole > Limits().list_operands_bytes:
        raise cannot(
            f"{size(whole)} of parameters: on a CPU a loop, which uses its cache again, is the faster"
        )
    return [
        ("_foreach_mul_", into, code.source(average.decay)),
        ("_foreach_add_", into, given, f"alpha={weight}"),
    ]


def _list(code: Code, node: ast.expr, over: dict[str, str]) -> str:
    """The list of all tensors that an expression of one round is."""
    name = next(one.id for one in ast.walk(node) if isinstance(one, ast.Name))
    if isinstance(node, ast.Name):
        return f"list({over[name]})"
    return f"[{code.source(node)} for {name} in {over[name]}]"
