"""Loops over parameters written as one call for each operation: ``torch._foreach_mul_(grads, 0.1)``."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import libcst as cst
from libcst import metadata as meta

from hotloop.diagnose.limits import Limits
from hotloop.findings import Place
from hotloop.remedy.source import layout
from hotloop.remedy.source.code import Code, last_name
from hotloop.remedy.source.loops.iterated import Iterated
from hotloop.remedy.source.loops.listed import Body, Many, Number, Operation, Translator, call_of
from hotloop.remedy.source.loops.numbers import Numbers
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scene import Cannot
from hotloop.remedy.source.values import value_of
from hotloop.units import size

#: The list forms used here came with it.
_TORCH: Final = (2, 2)
_FULL: Final = frozenset(["float32", "float64", "complex64", "complex128"])
#: Names that say a copy of the weights may have another type than float32.
_OTHER_DTYPES: Final = (
    "half", "double", "bfloat16", "float16", "float64", "HalfTensor", "DoubleTensor", "BFloat16Tensor",
    "set_default_dtype", "set_default_tensor_type",
)  # fmt: skip
#: Names that say parameters are parts of tensors that several ranks hold.
_SHARDED: Final = ("fully_shard", "distribute_tensor", "parallelize_module", "FullyShardedDataParallel")
_WIDTH: Final = 88
_ROUNDING: Final = 1e-9
#: A list that is made on the way.
_RESULT: Final = re.compile(r"_foreach_\w*[a-z]\(|\[\S+ for ")
_IDS: Final = ("foreach-loop", "foreach-lerp")


def foreach_loop(plan: Plan, value: Any) -> None:
    """Each operation of the loop for all tensors, with the same bits."""
    _write(plan, lerp=False)


def foreach_lerp(plan: Plan, value: Any) -> None:
    """The same, and ``a * d + b * (1 - d)`` as one interpolation."""
    _write(plan, lerp=True)


def _write(plan: Plan, *, lerp: bool) -> None:
    place = plan.scene.where.get(plan.remedy)
    if place is None:
        raise Cannot("the run has no loop over parameters that takes time")
    _require_supported(plan)
    code, loop = _around_line(plan, place)
    _rewritten(plan, code, loop, lerp=lerp)
    others = [(code, one) for one in _beside(code, loop)]
    for also in (place for name in _IDS for place in plan.scene.asked_at.get(name, ())):
        try:
            others.append(_around_line(plan, also))
        except Cannot:
            continue
    done = {loop}
    for code, other in others:
        try:
            if other not in done:
                _rewritten(plan, code, other, lerp=lerp)
        except Cannot:
            continue
        finally:
            done.add(other)


def _around_line(plan: Plan, place: Place) -> tuple[Code, cst.For]:
    """The innermost loop around a line."""
    code = plan.scene.code(place.file)
    around = [one for one in code.nodes(cst.For) if code.line(one) <= place.line <= _last_line(code, one)]
    if not around:
        raise Cannot("this line is in no loop over tensors", place.file, place.line)
    return code, around[-1]


def _beside(code: Code, loop: cst.For) -> list[cst.For]:
    """The loops of the same block and of those around it, up to the next loop or function."""
    around = _around(code, loop)
    return [one for one in code.nodes(cst.For) if one is not loop and _around(code, one) is around]


def _around(code: Code, loop: cst.For) -> cst.CSTNode:
    found = code.parents[loop]
    while not isinstance(found, cst.For | cst.While | cst.FunctionDef | cst.Module):
        found = code.parents[found]
    return found


def _require_supported(plan: Plan) -> None:
    version = re.match(r"(\d+)\.(\d+)", str(plan.scene.process.first("torch").get("version") or ""))
    if version is not None and tuple(map(int, version.groups())) < _TORCH:
        raise Cannot(f"torch {version.group()} does not have all list forms: 2.2 has")
    for word in _SHARDED:
        for code in plan.scene.codes(word):
            line = next((code.line(name) for name in code.names() if name.value == word), 1)
            words = f"{word}: whether parts of tensors have a list form is not known"
            raise Cannot(words, str(code.path), line)
    if any(note.get("sharded") for note in plan.scene.process.notes.get("module", ())):
        raise Cannot("ranks hold parts of the parameters: whether these have a list form is not known")


def _rewritten(plan: Plan, code: Code, loop: cst.For, *, lerp: bool) -> None:
    """Write one loop. Raises Cannot."""
    if loop.orelse is not None or loop.asynchronous is not None:
        raise Cannot("the loop has an else, or waits", str(code.path), code.line(loop))
    if any(True for _ in code.nodes(cst.NamedExpr, loop)):
        raise Cannot("a name is bound within an expression", str(code.path), code.line(loop))
    function = code.function_of(loop)
    if function is None and code.above(loop, cst.ClassDef) is not None:
        raise Cannot("the loop is part of a class's body", str(code.path), code.line(loop))
    if function is not None and any("jit" in code.source(one.decorator) for one in function.decorators):
        raise Cannot("what torch.jit compiles has no list forms", str(code.path), code.line(function))
    torch = _torch(code, loop)
    reader = Translator(code, loop, Numbers(plan.scene), torch)
    bodies = reader.read()
    iterated = Iterated(plan, code, loop)
    iterated.require({name for body in bodies for name in body.written}, reader)
    changed = [one.into.key for body in bodies for one in body.operations if one.into is not None]
    if any(".grad" in key for key in changed):
        iterated.require_own_gradients()
    _require_unread(code, loop, reader.bound)
    one_dtype = _one_dtype(plan)
    for body in bodies:
        if not lerp:
            _require_exact(plan, code, loop, body)
        elif one_dtype and (iterated.kinds <= {"parameters"} or body.only_floating):
            body.operations = _averaged(code, body.operations)
        _require_quicker(plan, code, loop, body)
    lines = _whole_loop(code, loop, reader, bodies, torch)
    start = code.span(loop)[0]
    end = start + len(code.source(loop).rstrip())
    layout.require_own_line(code, loop)
    indent = code.indent(start)
    new = code.text.newline.join(f"{indent if at else ''}{line}" for at, line in enumerate(lines))
    calls = list(dict.fromkeys(re.findall(r"_foreach_\w+", new)))
    plan.rewrite(code, start, end, new, f"the loop over its tensors: {', '.join(calls)}")
    if not code.global_names("torch"):
        plan.statement(code, "import torch")


def _torch(code: Code, loop: cst.For) -> str:
    """What the file calls torch where a loop stands."""
    for one in code.assignments(loop, "torch"):
        if not isinstance(one, meta.ImportAssignment):
            raise Cannot("torch is another thing here", str(code.path), code.line(loop))
        line = code.parents.get(one.node)
        first = isinstance(line, cst.SimpleStatementLine) and code.parents.get(line) is code.module
        if not first or code.span(one.node) > code.span(loop):
            words = "torch is not imported at the top of the file, ahead of the loop"
            raise Cannot(words, str(code.path), code.line(one.node))
    return "torch"


def _dtypes(plan: Plan) -> set[str]:
    notes = plan.scene.process.notes.get("module", ())
    return {str(kind) for note in notes for kind in note.get("param_dtypes", ())}


def _one_dtype(plan: Plan) -> bool:
    """Whether all weights are float32: those of the run, and those of copies that no module was called of."""
    if _dtypes(plan) != {"float32"}:
        return False
    for word in _OTHER_DTYPES:
        for code in plan.scene.codes(word):
            for name in code.names():
                above = code.parents[name]
                whole = above if isinstance(above, cst.Attribute) and above.attr is name else name
                call = code.above(name, cst.Call)
                cast = call is not None and last_name(call.func) in ("autocast", "GradScaler")
                if name.value == word and not cast and not code.qualified(whole).startswith("numpy."):
                    return False
    return True


def _require_exact(plan: Plan, code: Code, loop: cst.For, body: Body) -> None:
    other = sorted(_dtypes(plan) - _FULL)
    if other:
        words = f"parameters are {other[0]}, which list forms round otherwise"
        raise Cannot(words, str(code.path), code.line(loop))
    for one in body.inexact:
        if one.on_cpu or plan.scene.device == "cuda":
            raise Cannot(one.why, str(code.path), code.line(one.node))


def _require_quicker(plan: Plan, code: Code, loop: cst.For, body: Body) -> None:
    """Raises Cannot on a CPU where the lists are so large that the loop has the better of its caches."""
    notes = plan.scene.process.notes.get("module", ())
    whole = max((float(note.get("param_bytes") or 0) for note in notes), default=0.0)
    texts = [text for one in body.operations for text in _texts(one)]
    made = sum(len(_RESULT.findall(text)) for text in texts) * whole
    changes = sum(one.into is not None for one in body.operations)
    limits = Limits()
    if plan.scene.device == "cuda":
        return
    if made > limits.list_results_bytes or (changes > 1 and whole > limits.list_operands_bytes):
        words = f"{size(whole)} of parameters: on a CPU a loop, which uses its cache again, is the faster"
        raise Cannot(words, str(code.path), code.line(loop), write="leave it as it is")


def _require_unread(code: Code, loop: cst.For, names: set[str]) -> None:
    """Raises Cannot where what the loop leaves in its names is read outside of it."""
    for name in sorted(names):
        for bound in code.assignments(loop, name):
            for access in bound.references:
                node = access.node
                if not code.holds(loop, node) and not _bound_anew(code, node, name):
                    words = f"{name} is read outside of the loop too"
                    raise Cannot(words, str(code.path), code.line(node))
    function = code.function_of(loop)
    shared: list[cst.Global | cst.Nonlocal] = [
        *code.nodes(cst.Global, function),
        *code.nodes(cst.Nonlocal, function),
    ]
    for statement in shared:
        if {item.name.value for item in statement.names} & names:
            raise Cannot("its names are not the function's own", str(code.path), code.line(statement))


def _bound_anew(code: Code, node: cst.CSTNode, name: str) -> bool:
    """Whether another loop around a read, or a statement of the same block before it, binds the name."""
    above: cst.CSTNode | None = code.parents.get(node)
    while above is not None and not isinstance(above, cst.FunctionDef | cst.Module):
        if isinstance(above, cst.For) and any(
            one.value == name for one in code.nodes(cst.Name, above.target)
        ):
            return not code.holds(above.iter, node)
        if isinstance(above, cst.IndentedBlock):
            for statement in above.body:
                if code.span(statement)[1] > code.span(node)[0]:
                    break
                small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
                if isinstance(small, cst.Assign) and any(
                    isinstance(one.target, cst.Name) and one.target.value == name for one in small.targets
                ):
                    return True
        above = code.parents.get(above)
    return False


def _last_line(code: Code, loop: cst.For) -> int:
    return code.line(loop) + code.source(loop).rstrip().count("\n")


# -- averages ------------------------------------------------------------------------------------------------


def _averaged(code: Code, operations: Sequence[Operation]) -> list[Operation]:
    """The operations with each average as one interpolation."""
    found: list[Operation] = []
    for one in operations:
        before = found[-1] if found else None
        weighed = _two_steps(code, before, one) if before is not None else None
        if weighed is not None:
            found[-1] = replace(one, name="lerp_", operands=weighed, keywords=())
        else:
            found.append(_one_step(code, one))
    return _needed(found)


def _two_steps(code: Code, first: Operation, second: Operation) -> tuple[Many, Number] | None:
    """``a.mul_(d)`` and ``a.add_(b, alpha=1 - d)``, or ``a.add_(b * (1 - d))``."""
    if first.name != "mul_" or second.name != "add_" or first.into is None or second.into is None:
        return None
    if first.into.text != second.into.text or not first.into.key:
        return None
    kept, added = first.operands[0], second.operands[0]
    if not isinstance(kept, Number) or not isinstance(added, Many):
        return None
    part: tuple[Many, Number] | None
    part = (added, second.keywords[0][1]) if second.keywords else _product(added)
    if part is None or _reads(part[0], first.into.text) or not _whole(code, kept, part[1]):
        return None
    return part


def _one_step(code: Code, one: Operation) -> Operation:
    """``a.copy_(a * d + b * (1 - d))``, ``a.data = ...`` of the same, ``a += (b - a) * (1 - d)``."""
    value = one.operands[0] if one.operands else None
    if not isinstance(value, Many):
        return one
    if one.name == "copy_" and one.into is not None and len(one.operands) == 1:
        sides = _sides(code, value, one.into.key)
        if sides is not None and sides[0].text == one.into.text and not _reads(sides[1], one.into.text):
            return replace(one, name="lerp_", operands=sides[1:])
    elif one.bound or (one.store is not None and not value.text.isidentifier()):
        sides = _sides(code, value, _kept(code, one))
        if sides is not None:
            text = call_of("torch", "lerp", sides)
            return replace(one, operands=(Many(text=text, new=True, operands=sides, of="lerp"),))
    elif one.name in ("add_", "sub_") and one.into is not None and not one.keywords:
        part = _product(value)
        if part is not None and part[0].of == "sub":
            left, right = part[0].operands
            new, old = (left, right) if one.name == "add_" else (right, left)
            both = isinstance(new, Many) and isinstance(old, Many) and old.text == one.into.text
            if both and isinstance(new, Many) and not _reads(new, one.into.text):
                return replace(one, name="lerp_", operands=(new, part[1]))
    return one


def _kept(code: Code, one: Operation) -> str:
    return "".join(code.source(one.store).split()) if one.store is not None else ""


def _sides(code: Code, value: Many, kept: str) -> tuple[Many, Many, Number] | None:
    """Of ``a * d + b * (1 - d)`` the two and the weight of the second; the first is ``kept``, if one is."""
    if value.of != "add" or len(value.operands) != 2:
        return None
    first, second = (_product(one) if isinstance(one, Many) else None for one in value.operands)
    if first is None or second is None or not _whole(code, first[1], second[1]):
        return None
    if second[0].key == kept and kept:
        first, second = second, first
    return first[0], second[0], second[1]


def _product(value: Many) -> tuple[Many, Number] | None:
    """A tensor times a number."""
    if value.of != "mul" or len(value.operands) != 2:
        return None
    first, second = value.operands
    if isinstance(first, Many) and isinstance(second, Number) and not second.tensor:
        return first, second
    return None


def _reads(value: Many, text: str) -> bool:
    return re.search(rf"\b{re.escape(text)}\b", value.text) is not None


def _whole(code: Code, kept: Number, part: Number) -> bool:
    """Whether two weights are one together: ``d`` and ``1 - d``, 0.999 and 0.001."""
    for first in (kept.node, _plain(code, kept.node)):
        for second in (part.node, _plain(code, part.node)):
            one, other = _value(first), _value(second)
            if one is not None and other is not None and abs(one + other - 1) < _ROUNDING:
                return True
            if _rest(code, first, second) or _rest(code, second, first):
                return True
    return False


def _rest(code: Code, one: cst.BaseExpression, other: cst.BaseExpression) -> bool:
    """Whether ``other`` is ``1 - one``."""
    return (
        isinstance(other, cst.BinaryOperation)
        and isinstance(other.operator, cst.Subtract)
        and _value(other.left) == 1
        and "".join(code.source(other.right).split()) == "".join(code.source(one).split())
    )


def _plain(code: Code, node: cst.BaseExpression) -> cst.BaseExpression:
    """What a name of the same function stands for where it is ``1 - x`` of another that is bound once."""
    bound = code.assignments(node, node.value) if isinstance(node, cst.Name) else []
    value = value_of(code, bound[0].node) if len(bound) == 1 else None
    if isinstance(value, cst.Integer | cst.Float):
        return value
    if not isinstance(value, cst.BinaryOperation) or not isinstance(value.right, cst.Name):
        return node
    once = len(code.assignments(value.right, value.right.value)) == 1
    return value if once and code.function_of(value) is code.function_of(node) else node


def _value(node: cst.BaseExpression) -> float | None:
    if isinstance(node, cst.Integer | cst.Float):
        return float(node.evaluated_value)
    return None


def _needed(operations: Sequence[Operation]) -> list[Operation]:
    """Without the values that nothing reads any more."""
    kept: list[Operation] = []
    for one in reversed(operations):
        texts = [text for later in kept for text in _texts(later)]
        if not one.bound or any(re.search(rf"\b{one.bound}\b", text) for text in texts):
            kept.append(one)
    return kept[::-1]


# -- what is written -----------------------------------------------------------------------------------------


def _texts(one: Operation) -> list[str]:
    into = [one.into.text] if one.into is not None else []
    given = [operand.text for operand in one.operands]
    return [one.bare, *into, *given, *(number.text for _, number in one.keywords)]


def _whole_loop(
    code: Code, loop: cst.For, reader: Translator, bodies: Sequence[Body], torch: str
) -> list[str]:
    """The comments of the loop, then a block for each of its ways."""
    iterable = _flat(code, loop.iter)
    lines = [one.value for one in code.nodes(cst.Comment, loop)]
    if len(bodies) > 1:  # it may be gone through once
        every = reader.fresh("every_round")
        lines.append(f"{every} = list({iterable})")
        iterable = every
    for body in bodies:
        lines += _lines(code, loop, reader, body, iterable, torch)
    if len(bodies) > 1 and not isinstance(_around(code, loop), cst.FunctionDef):
        lines.append(f"del {iterable}")
    return lines


def _lines(code: Code, loop: cst.For, reader: Translator, body: Body, iterable: str, torch: str) -> list[str]:
    unit = "\t" if "\t" in code.indent(code.span(loop)[0]) else code.module.default_indent
    room = max(_WIDTH, *map(len, code.text.text.splitlines())) - len(code.indent(code.span(loop)[0]))
    calls: list[str] = []
    for one in body.operations:
        calls += _call(code, reader, body, one, torch, unit)
    if body.without_grad:
        calls = [f"with {body.without_grad}:", *(f"{unit}{line}" for line in calls)]
    whole = "\n".join(calls)
    entries = {key: name for key, name in body.entries.items() if re.search(rf"\b{re.escape(name)}\b", whole)}
    target = _flat(code, loop.target)
    behind = "".join(f" if {one}" for one in body.conditions)
    keys, names = list(entries), list(entries.values())
    if len(keys) == 1:
        whole_list = names[0]
        first = f"list({iterable})" if keys[0] == target and not behind else ""
        parts = (keys[0], f"for {target} in {iterable}", behind.strip())
    else:
        whole_list = reader.fresh("pairs" if len(keys) == 2 else "rounds")
        same = target.strip("()").replace(" ", "") == ",".join(keys)
        first = f"list({iterable})" if same and not behind else ""
        parts = (f"({', '.join(keys)})", f"for {target} in {iterable}", behind.strip())
    lines: list[str] = []
    one_line = f"{whole_list} = {first}" if first else f"{whole_list} = [{' '.join(filter(None, parts))}]"
    if first or len(one_line) <= room:
        lines.append(one_line)
    else:
        lines += [f"{whole_list} = [", *(f"{unit}{part}" for part in parts if part), "]"]
    lines.append(f"if {whole_list}:")
    inner = [f"{', '.join(names)} = zip(*{whole_list})"] if len(keys) > 1 else []
    for call in calls:
        inner += _wrapped(call, room - len(unit), unit)
    if not isinstance(_around(code, loop), cst.FunctionDef):  # they would keep tensors to the next step
        bound = [one.bound for one in body.operations if one.bound]
        held = dict.fromkeys([whole_list, *names, *bound])
        inner.append(f"del {', '.join(held)}")
    return [*lines, *(f"{unit}{line}" for line in inner)]


def _call(code: Code, reader: Translator, body: Body, one: Operation, torch: str, unit: str) -> list[str]:
    if one.bare:
        return [one.bare]
    if one.bound:
        return [f"{one.bound} = {one.operands[0].text}"]
    if one.into is not None:
        return [call_of(torch, one.name, (one.into, *one.operands), one.keywords)]
    assert one.store is not None
    names = reader.names_of_round(one.store)
    lists = [body.entries[name] for name in names]
    value = reader.fresh("value")
    values, made = one.operands[0].text, []
    if not values.isidentifier():
        values, made = reader.fresh("values"), [f"{{}} = {values}"]
    over = f"zip({', '.join(lists)}, {values})"
    return [
        *(line.format(values) for line in made),
        f"for {', '.join(names)}, {value} in {over}:",
        f"{unit}{reader.spelled(one.store)} = {value}",
    ]


def _flat(code: Code, node: cst.CSTNode) -> str:
    text = code.source(node)
    if "\n" in text and "#" in text:
        raise Cannot("a comment stands within the expression", str(code.path), code.line(node))
    return re.sub(r"\s*\\?\r?\n\s*", " ", text).replace("( ", "(").replace(", )", ")").replace(" )", ")")


def _wrapped(call: str, room: int, unit: str) -> list[str]:
    """A call, its arguments on a line of their own where it is longer than the line may be."""
    begin = call.find("(")
    if len(call) <= room or begin < 0 or not call.endswith(")"):
        return [call]
    inside = call[begin + 1 : -1]
    if len(unit) + len(inside) <= room:
        return [call[: begin + 1], f"{unit}{inside}", ")"]
    lines = []
    for one in _arguments(inside):
        *first, last = _wrapped(one, room - len(unit) - 1, unit)
        lines += [*first, f"{last},"]
    return [call[: begin + 1], *(f"{unit}{line}" for line in lines), ")"]


def _arguments(text: str) -> list[str]:
    """Arguments apart, by the commas that stand in no bracket."""
    found, depth, begin = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "([{") - (char in ")]}")
        if char == "," and depth == 0:
            found.append(text[begin:at].strip())
            begin = at + 1
    return [*found, text[begin:].strip()]
