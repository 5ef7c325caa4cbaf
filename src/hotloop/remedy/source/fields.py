"""Fields of a sample that nothing reads, left out of the dictionary that ``__getitem__`` returns."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import libcst as cst

from hotloop.diagnose.collating import DEFAULT_COLLATE, collate_name
from hotloop.remedy.source import layout
from hotloop.remedy.source.code import Code, Function, last_name
from hotloop.remedy.source.loaders import driving
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scene import Built, Cannot
from hotloop.remedy.source.values import text_of

#: Calls that draw nothing, keep nothing and change nothing.
_MAKES: Final = frozenset([
    "FloatTensor", "LongTensor", "IntTensor", "DoubleTensor", "BoolTensor", "Tensor", "tensor", "as_tensor",
    "from_numpy", "array", "asarray", "ascontiguousarray", "int", "float", "str", "bool", "len", "float32",
    "int64", "astype", "copy", "clone", "long", "item", "tolist", "unsqueeze", "squeeze", "reshape", "view", "permute",
    "transpose", "contiguous", "get",
])  # fmt: skip


def drop_unused_fields(plan: Plan, value: Any) -> None:
    """The entry of each field goes out of the dictionary; what was computed for it before stays."""
    fields = [name.strip() for name in str(value or "").split(",") if name.strip()]
    if not fields:
        raise Cannot("which fields are not read is not known: give them")
    built = driving(plan)
    code, owner, made = _dictionary(plan, built)
    entries = {text_of(one.key): one for one in made.elements if isinstance(one, cst.DictElement)}
    stays: dict[str, Cannot] = {}
    goes = []
    for field in fields:
        try:
            entry = entries.get(field)
            if entry is None:
                raise Cannot(f"{field} is not written plainly there", str(code.path), code.line(made))
            _check(plan, code, owner, entry, field)
            goes.append(entry)
        except Cannot as cannot:
            stays[field] = cannot
    if not goes:
        raise next(iter(stays.values()))
    if len(goes) == len(made.elements):
        raise Cannot("nothing would be left of a sample", str(code.path), code.line(made))
    layout.without(plan, code, made, goes)
    for entry in goes:
        for name in sorted({one.value for one in code.nodes(cst.Name, entry.value)}):
            if _only_for(code, entry, name):
                plan.remark(f"{name} is still computed, and nothing else reads it: leave it out as well")
    for field, why in stays.items():
        plan.remark(f"{field} stays: {why.why} ({Path(why.file).name}:{why.line})")


def _dictionary(plan: Plan, built: Built) -> tuple[Code, cst.ClassDef, cst.Dict]:
    """The one dictionary that the ``__getitem__`` of the loader's dataset returns."""
    facts = built.settings.get("dataset") or {}
    file, line = facts.get("file"), facts.get("line")
    if collate_name(built.settings) not in DEFAULT_COLLATE:
        raise Cannot("a collate_fn of yours makes the batches of samples", str(file or ""), int(line or 0))
    if not file:
        raise Cannot("the samples are not made by a __getitem__ of yours")
    code = plan.scene.code(str(file))
    found = [
        one
        for one in code.nodes(cst.FunctionDef)
        if one.name.value == "__getitem__"
        and line in (code.line(one), code.line(one.name), *(code.line(d) for d in one.decorators))
    ]
    owner = code.above(found[0], cst.ClassDef) if len(found) == 1 else None
    if owner is None:
        raise Cannot("the __getitem__ of the dataset cannot be told", str(file), int(line or 0))
    returns = [one for one in code.nodes(cst.Return, found[0]) if code.function_of(one) is found[0]]
    if len(returns) != 1 or not isinstance(returns[0].value, cst.Dict):
        why = "__getitem__ does not return one dictionary that stands there"
        raise Cannot(why, str(file), code.line(found[0]))
    return code, owner, returns[0].value


def _check(plan: Plan, code: Code, owner: cst.ClassDef, entry: cst.DictElement, field: str) -> None:
    """Raises Cannot where a field may be read somewhere, or is made by what does more than that."""
    for call in code.nodes(cst.Call, entry.value):
        if last_name(call.func) not in _MAKES:
            why = f"{code.source(call.func)}() may do more than make {field}"
            raise Cannot(why, str(code.path), code.line(call))
    for kind in (cst.NamedExpr, cst.Await, cst.Yield):
        if any(code.nodes(kind, entry.value)):
            raise Cannot(f"{field} is made with effects of its own", str(code.path), code.line(entry))
    if any(_names(note.get("value"), field) for note in plan.scene.config):
        raise Cannot(f"{field} is named in the configuration", str(code.path), code.line(entry))
    inside = code.span(owner)
    for file in plan.scene.files():
        try:
            other = plan.scene.code(file)
        except Cannot:
            continue
        for node in _mentions(other, field):
            here = other is code and inside[0] <= code.span(node)[0] < inside[1]
            if not here:
                raise Cannot(f"{field} is named here too", str(other.path), other.line(node))
        whole = next(_taken_whole(plan, other), None)
        if whole is not None:
            raise Cannot("a batch may be read as a whole here", str(other.path), other.line(whole))
    own = [one for one in code.nodes(cst.Subscript, owner) if code.source(one.value) == "self"]
    if own or any(one.attr.value == "__getitem__" for one in code.nodes(cst.Attribute, owner)):
        raise Cannot("the dataset reads its own samples", str(code.path), code.line(own[0] if own else owner))


def _names(value: Any, field: str) -> bool:
    return value == field or (isinstance(value, list | tuple) and field in value)


def _mentions(code: Code, field: str) -> Iterator[cst.CSTNode]:
    """Where a file names a field in a way that may read it: not as a key of a dictionary it makes."""
    for text in code.nodes(cst.SimpleString):
        above = code.parents.get(text)
        if text_of(text) == field and not (isinstance(above, cst.DictElement) and above.key is text):
            yield text
    for name in code.nodes(cst.Name):
        above = code.parents.get(name)
        read = isinstance(above, cst.Attribute) and above.attr is name and last_name(above.value) != "self"
        if name.value == field and read:
            yield name


def _taken_whole(plan: Plan, code: Code) -> Iterator[cst.CSTNode]:
    """Where what a loop hands out goes elsewhere whole, or is told by its order."""
    loops: list[cst.For | cst.CompFor] = [*code.nodes(cst.For), *code.nodes(cst.CompFor)]
    handed = {name.value for loop in loops for name in code.nodes(cst.Name, loop.target)}
    keyed = {last_name(one.value) for one in code.nodes(cst.Subscript) if text_of(_index(one)) is not None}
    for call in code.nodes(cst.Call):
        owner = call.func.value if isinstance(call.func, cst.Attribute) else None
        if isinstance(owner, cst.Name) and owner.value in handed and last_name(call.func) == "values":
            yield call
        given = [arg for arg in call.args if last_name(arg.value) in handed & keyed]
        module, _, name = code.qualified(call.func).lstrip(".").rpartition(".")
        foreign = name and plan.scene.module(module, code.path) is None and not module.startswith("torch")
        spread = any(arg.star and last_name(arg.value) in handed for arg in call.args)
        if spread or (given and foreign):
            yield call


def _index(node: cst.Subscript) -> cst.CSTNode:
    index = node.slice[0].slice if len(node.slice) == 1 else node
    return index.value if isinstance(index, cst.Index) else index


def _only_for(code: Code, entry: cst.DictElement, name: str) -> bool:
    """Whether a name of the same function is read by nothing but one entry."""
    function: Function | None = code.function_of(entry)
    start, end = code.span(entry.value)
    for node in code.nodes(cst.Name, entry.value):
        if node.value != name:
            continue
        known = code.assignments(node, name)
        local = known and all(code.function_of(one.node) is function for one in known)
        if not local or any(isinstance(one.node, cst.Param) for one in known):
            return False
        reads = {access.node for one in known for access in one.references}
        return all(start <= code.span(read)[0] < end for read in reads)
    return False
