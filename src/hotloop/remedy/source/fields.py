"""Fields of a sample that nothing reads, left out of the dictionary that ``__getitem__`` returns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

import libcst as cst

from hotloop.remedy.source import layout
from hotloop.remedy.source.code import Code, Function, last_name
from hotloop.remedy.source.loaders import driving
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.samples import all_codes, maker, require_default_collate
from hotloop.remedy.source.scene import Built, Cannot
from hotloop.remedy.source.values import text_of, value_of

#: Calls that draw nothing, keep nothing and change nothing.
_MAKES: Final = frozenset([
    "FloatTensor", "LongTensor", "IntTensor", "DoubleTensor", "BoolTensor", "Tensor", "tensor", "as_tensor",
    "from_numpy", "array", "asarray", "ascontiguousarray", "int", "float", "str", "bool", "len", "float32",
    "int64", "astype", "copy", "clone", "long", "item", "tolist", "unsqueeze", "squeeze", "reshape", "view",
    "permute", "transpose", "contiguous", "get",
])  # fmt: skip

#: Built-in functions that read nothing of what they are given by its keys.
_ASKED: Final = frozenset(["print", "len", "isinstance", "type", "id", "dict"])


def drop_unused_fields(plan: Plan, value: Any) -> None:
    """The entry of each field goes out of the dictionary; what was computed for it before stays."""
    built = driving(plan)
    notes = plan.scene.process.notes.get("unread", ())
    seen = [note for note in notes if note.get("loader") == built.id]
    alike = _of_the_same_samples(plan, built)
    read = {str(name) for note in notes if note.get("loader") in alike for name in note.get("read", ())}
    given = [name.strip() for name in str(value or "").split(",") if name.strip()]
    fields = dict.fromkeys(given or [str(name) for note in seen for name in note.get("unread", ())])
    if not fields:
        raise Cannot("which fields are not read is not known: give them")
    code, owner, made = _dictionary(plan, built)
    entries = {text_of(one.key): one for one in made.elements if isinstance(one, cst.DictElement)}
    stays: dict[str, Cannot] = {}
    goes = []
    for field in fields:
        try:
            entry = entries.get(field)
            if field in read:
                raise Cannot(f"the run reads {field}", str(code.path), code.line(made))
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
    require_default_collate(built)
    code, owner, function = maker(plan, built)
    returns = [one for one in code.nodes(cst.Return, function) if code.function_of(one) is function]
    if len(returns) != 1 or not isinstance(returns[0].value, cst.Dict):
        why = "__getitem__ does not return one dictionary that stands there"
        raise Cannot(why, str(code.path), code.line(function))
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
    codes = all_codes(plan)
    spread = any(arg.star == "**" for other in codes for arg in other.nodes(cst.Arg))
    for other in codes:
        for node in (*_mentions(other, field), *(_named(other, field) if spread else ())):
            if other is not code or not code.holds(owner, node):
                raise Cannot(f"{field} is named here too", str(other.path), other.line(node))
    for other, taken in _Batches(plan, codes).taken_whole():
        raise Cannot("a batch may be read as a whole here", str(other.path), other.line(taken))
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


def _named(code: Code, field: str) -> Iterator[cst.CSTNode]:
    """Parameters and keywords of a field's name: what ``model(**batch)`` may fill."""
    for param in code.nodes(cst.Param):
        if param.name.value == field:
            yield param
    for arg in code.nodes(cst.Arg):
        if arg.keyword is not None and arg.keyword.value == field:
            yield arg


def _of_the_same_samples(plan: Plan, built: Built) -> frozenset[int]:
    """The loaders whose dataset is of the same class: what one of them reads must stay."""
    kind = (built.settings.get("dataset") or {}).get("class")
    notes = plan.scene.process.notes.get("loader", ())
    alike = (int(one["id"]) for one in notes if kind and (one.get("dataset") or {}).get("class") == kind)
    return frozenset([built.id, *alike])


class _Batches:
    """Names that may stand for a batch: what loops hand out, also where it is a parameter of that name."""

    def __init__(self, plan: Plan, codes: Sequence[Code]) -> None:
        self._scene, self._codes = plan.scene, codes
        self._targets = {
            name for code in codes for target in _targets(code) for name in code.nodes(cst.Name, target)
        }
        self._handed = {name.value for name in self._targets}
        subscripts = [one for code in codes for one in code.nodes(cst.Subscript)]
        self._keyed = {last_name(one.value) for one in subscripts if text_of(_index(one)) is not None}
        self._defined = {one.name.value for code in codes for one in code.nodes(cst.FunctionDef)}
        self._defined |= {one.name.value for code in codes for one in code.nodes(cst.ClassDef)}

    def taken_whole(self) -> Iterator[tuple[Code, cst.CSTNode]]:
        """Calls that are given a batch whole and are not the user's, or that take its values in order; and
        what copies all of it into something else: a comprehension, ``{**batch}``.
        """
        for code in self._codes:
            for copied in code.nodes(cst.StarredDictElement):
                if self._is_one(code, copied.value):
                    yield code, copied
            for part in code.nodes(cst.CompFor):
                for call in code.nodes(cst.Call, part.iter):
                    owner = call.func.value if isinstance(call.func, cst.Attribute) else None
                    if owner is not None and last_name(call.func) == "items" and self._is_one(code, owner):
                        yield code, call
            for call in code.nodes(cst.Call):
                owner = call.func.value if isinstance(call.func, cst.Attribute) else None
                values = owner is not None and last_name(call.func) == "values" and self._is_one(code, owner)
                given = [arg for arg in call.args if self._is_one(code, arg.value)]
                spread = any(arg.star for arg in given)
                keyed = any(last_name(arg.value) in self._keyed for arg in given)
                if values or spread or (keyed and not self._is_own(code, call)):
                    yield code, call

    def _is_one(self, code: Code, node: cst.CSTNode) -> bool:
        if not isinstance(node, cst.Name) or node.value not in self._handed:
            return False
        bound = [one.node for one in code.assignments(node, node.value)]
        return any(one in self._targets or isinstance(one, cst.Param) for one in bound)

    def _is_own(self, code: Code, call: cst.Call) -> bool:
        """Whether what is called is read here with the rest, or reads no keys."""
        name, whole = last_name(call.func), code.qualified(call.func)
        if whole:
            module = whole.lstrip(".").rpartition(".")[0]
            torch = module.startswith("torch") and name != "save"
            return torch or self._scene.module(module, code.path) is not None
        if isinstance(call.func, cst.Name) and not code.assignments(call.func, name):
            return name in _ASKED
        return name in self._defined or (isinstance(call.func, cst.Name) and "forward" in self._defined)


def _targets(code: Code) -> list[cst.CSTNode]:
    return [*(one.target for one in code.nodes(cst.For)), *(one.target for one in code.nodes(cst.CompFor))]


def _index(node: cst.Subscript) -> cst.CSTNode:
    index = node.slice[0].slice if len(node.slice) == 1 else node
    return index.value if isinstance(index, cst.Index) else index


def _is_call(node: cst.CSTNode | None) -> bool:
    return isinstance(node, cst.Call)


def _only_for(code: Code, entry: cst.DictElement, name: str) -> bool:
    """Whether what a call gave in the same function is read by nothing but one entry."""
    function: Function | None = code.function_of(entry)
    for node in code.nodes(cst.Name, entry.value):
        if node.value != name:
            continue
        known = code.assignments(node, name)
        values = [value_of(code, one.node) for one in known if code.function_of(one.node) is function]
        if not known or len(values) != len(known) or not all(map(_is_call, values)):
            return False
        reads = {access.node for one in known for access in one.references}
        return all(code.holds(entry.value, read) for read in reads)
    return False
