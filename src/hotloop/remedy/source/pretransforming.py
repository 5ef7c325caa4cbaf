"""A scaler called in ``__getitem__``: done once, where the dataset is built, for everything that it holds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import libcst as cst

from hotloop.feed.budget import memory_budget
from hotloop.remedy.source import layout
from hotloop.remedy.source.code import Code, Function, is_member, is_self, last_name
from hotloop.remedy.source.held import Held, is_changed
from hotloop.remedy.source.loaders import driving
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.samples import all_codes, maker
from hotloop.remedy.source.scene import Cannot
from hotloop.remedy.source.values import text_of, value_of
from hotloop.units import size

Facts = Mapping[str, Any]

#: Scalers of scikit-learn that treat every value by itself: a row among others comes out as it does alone.
_SCALERS: Final = frozenset(["StandardScaler", "MinMaxScaler", "RobustScaler", "MaxAbsScaler"])
#: Types in which one value's result does not depend on what is computed beside it.
_DTYPES: Final = frozenset(
    ["float32", "float64", "int8", "int16", "int32", "int64", "uint8", "uint16", "uint32"]
)
_NUMBERS: Final = frozenset(["int", "float", "numpy.float64", "numpy.float32"])
_ARITHMETIC: Final = (cst.Add, cst.Subtract, cst.Multiply, cst.Divide)
_BLOCKS: Final = (cst.IfExp, cst.Lambda, cst.BaseComp, cst.BooleanOperation, cst.Await)


@dataclass(frozen=True, kw_only=True)
class _Transform:
    """The expression that transforms a sample: ``whole``, of ``given``, by these attributes."""

    whole: cst.BaseExpression
    given: cst.BaseExpression
    by: tuple[str, ...]
    is_scaler: bool


@dataclass(frozen=True, kw_only=True)
class _Source:
    """Where what is transformed comes from: ``self.ATTRIBUTE[INDEX]``, and of a dictionary there its ``key``.

    ``read`` is the expression that reads it, ``shaped`` what gives a row two dimensions, ``names`` the
    variables on the way.
    """

    attribute: str
    index: cst.Subscript
    read: cst.BaseExpression
    key: str = ""
    shaped: bool = False
    names: tuple[cst.Name, ...] = ()


def pretransform(plan: Plan, value: Any) -> None:
    """The whole is transformed at the end of ``__init__``; ``__getitem__`` reads what came of it."""
    built = driving(plan)
    code, owner, getitem = maker(plan, built)
    held = Held(codes=all_codes(plan), code=code, owner=owner)
    known = _facts(plan, code, getitem)
    found = _found(plan, code, getitem, known)
    guard = _guard(code, getitem, found.whole)
    source = _source(code, getitem, found)
    tested = _attributes(code, guard.test) if guard is not None else []
    apart = {one for one in code.nodes(cst.Attribute, source.index) if one.attr.value == source.attribute}
    held.require_unchanged([source.attribute, *found.by, *tested], apart)
    if found.is_scaler:
        held.require_fitted()
    for facts in known:
        _require_alike(code, found, source, facts)
    _require_key_unchanged(held, source)
    _require_names_unchanged(code, found, source)
    alone = _is_alone(held, code, getitem, found, source, apart)
    in_place = alone and (not source.key or _are_distinct(held, source.attribute, source.key))
    _require_room(code, found, source, known, in_place=in_place)
    _Rewrite(plan, held, getitem, found, source, guard).write(in_place=in_place, known=known[0])


def _facts(plan: Plan, code: Code, getitem: Function) -> list[dict[str, Facts]]:
    """What the datasets of this class held in the run, that of training first."""
    lines = (code.line(getitem), code.line(getitem.name), *(code.line(one) for one in getitem.decorators))
    lead = driving(plan).id
    notes = sorted(plan.scene.process.notes.get("loader", ()), key=lambda note: note.get("id") != lead)
    sets = [note.get("dataset") or {} for note in notes]
    found = [
        one["held"]
        for one in sets
        if one.get("file") == str(code.path) and one.get("line") in lines and one.get("held")
    ]
    if not found:
        raise Cannot("what the dataset holds was not recorded: run again, then fix", str(code.path), lines[0])
    return found


# -- what is there -------------------------------------------------------------------------------------------


def _found(plan: Plan, code: Code, getitem: Function, known: Sequence[dict[str, Facts]]) -> _Transform:
    """The one transform in ``__getitem__``, or that which the finding names. Raises Cannot."""
    found = list(_transforms(code, getitem, known))
    scalers = [one for one in found if one.is_scaler]
    found = scalers or [one for one in found if _is_known(code, getitem, one)]
    place = plan.scene.where.get(plan.remedy)
    if place is not None and place.file == str(code.path) and len(found) > 1:
        found = [one for one in found if code.line(one.whole) <= place.line <= code.end(one.whole)[0]]
    if len(found) != 1:
        words = (
            "several transforms stand in __getitem__"
            if found
            else "no scaler of what the dataset holds is called in __getitem__ plainly"
        )
        raise Cannot(words, str(code.path), code.line(getitem))
    return found[0]


def _is_known(code: Code, getitem: Function, found: _Transform) -> bool:
    """Whether arithmetic is done with an item of what the dataset holds, and not with an index."""
    try:
        _source(code, getitem, found)
    except Cannot:
        return False
    return True


def _transforms(code: Code, getitem: Function, known: Sequence[dict[str, Facts]]) -> Iterator[_Transform]:
    classes = {
        name: {str(facts[name].get("class")) for facts in known if name in facts}
        for facts in known
        for name in facts
    }
    for call in code.nodes(cst.Call, getitem):
        owner = call.func.value if isinstance(call.func, cst.Attribute) else None
        name = _attribute_of_self(owner)
        scaler = any(one.startswith("sklearn.preprocessing.") for one in classes.get(name, ()))
        if scaler and last_name(call.func) == "transform" and len(call.args) == 1 and not call.args[0].star:
            yield _Transform(whole=call, given=call.args[0].value, by=(name,), is_scaler=True)
    for operation in code.nodes(cst.BinaryOperation, getitem):
        if isinstance(code.parents.get(operation), cst.BinaryOperation):
            continue
        given = _operand(operation, classes)
        if given is not None:
            nodes = [one for one in code.nodes(cst.Attribute, operation) if is_self(one.value)]
            by = tuple(dict.fromkeys(one.attr.value for one in nodes if not code.holds(given, one)))
            if by:
                yield _Transform(whole=operation, given=given, by=by, is_scaler=False)


def _operand(node: cst.BaseExpression, classes: Mapping[str, set[str]]) -> cst.BaseExpression | None:
    """The one part of an arithmetic expression that is neither a number nor an attribute."""
    if not isinstance(node, cst.BinaryOperation) or not isinstance(node.operator, _ARITHMETIC):
        return None
    sides = [one for one in (node.left, node.right) if not _is_fixed(one, classes)]
    if len(sides) != 1:
        return None
    side = sides[0]
    if isinstance(side, cst.BinaryOperation):
        return _operand(side, classes)
    return side if isinstance(side, cst.Name | cst.Subscript) else None


def _is_fixed(node: cst.BaseExpression, classes: Mapping[str, set[str]]) -> bool:
    if isinstance(node, cst.Integer | cst.Float):
        return True
    if isinstance(node, cst.BinaryOperation):
        arithmetic = isinstance(node.operator, _ARITHMETIC)
        return arithmetic and _is_fixed(node.left, classes) and _is_fixed(node.right, classes)
    kinds = classes.get(_attribute_of_self(node), set())
    return bool(kinds) and kinds <= {*_NUMBERS, "numpy.ndarray", "torch.Tensor"}


def _attribute_of_self(node: cst.CSTNode | None) -> str:
    return node.attr.value if isinstance(node, cst.Attribute) and is_self(node.value) else ""


def _attributes(code: Code, node: cst.CSTNode) -> list[str]:
    """Attributes of the dataset in an expression."""
    return [one.attr.value for one in code.nodes(cst.Attribute, node) if is_self(one.value)]


def _guard(code: Code, getitem: Function, whole: cst.BaseExpression) -> cst.If | None:
    """The ``if`` that the transform stands under by itself; None where it runs always. Raises Cannot."""
    statement = code.statement_of(whole)
    above: cst.CSTNode | None = code.parents.get(whole)
    while above is not None and above is not statement:
        if isinstance(above, _BLOCKS):
            raise Cannot("the transform is made only sometimes", str(code.path), code.line(whole))
        above = code.parents.get(above)
    assert statement is not None
    block = code.parents.get(statement)
    holder = code.parents.get(block) if block is not None else None
    if holder is getitem:
        return None
    if isinstance(holder, cst.If) and code.parents.get(code.parents.get(holder, holder)) is getitem:
        body = holder.body.body if isinstance(holder.body, cst.IndentedBlock) else ()
        alone = len(body) == 1 and holder.orelse is None and not _is_elif(code, holder)
        if alone and _is_plain_test(code, holder.test):
            return holder
    raise Cannot("the transform is made only sometimes", str(code.path), code.line(whole))


def _is_elif(code: Code, node: cst.If) -> bool:
    return isinstance(code.parents.get(node), cst.If)


def _is_plain_test(code: Code, test: cst.BaseExpression) -> bool:
    """Whether a condition is an attribute, or whether that is None."""
    if isinstance(test, cst.Comparison) and len(test.comparisons) == 1:
        one = test.comparisons[0]
        none = isinstance(one.comparator, cst.Name) and one.comparator.value == "None"
        return none and isinstance(one.operator, cst.Is | cst.IsNot) and bool(_attribute_of_self(test.left))
    return bool(_attribute_of_self(test))


def _source(code: Code, getitem: Function, found: _Transform) -> _Source:
    """What is transformed, followed to the attribute that holds it. Raises Cannot."""
    node, shaped = _unshaped(found.given)
    direct = _item_of_self(node)
    if direct is not None:
        return _Source(attribute=direct, index=_subscript(node), read=node, shaped=shaped)
    if isinstance(node, cst.Subscript) and isinstance(node.value, cst.Name) and (key := _key(node)):
        entry, index = _bound(code, getitem, node.value, found)
        attribute = _item_of_self(index)
        if attribute is not None:
            return _Source(
                attribute=attribute,
                index=_subscript(index),
                read=node,
                key=key,
                shaped=shaped,
                names=(entry,),
            )
    if isinstance(node, cst.Name):
        name, value = _bound(code, getitem, node, found)
        if shaped:
            raise _unknown(code, found)
        attribute = _item_of_self(value)
        if attribute is not None:
            return _Source(attribute=attribute, index=_subscript(value), read=value, names=(name,))
        if isinstance(value, cst.Subscript) and isinstance(value.value, cst.Name) and (key := _key(value)):
            entry, index = _bound(code, getitem, value.value, found)
            attribute = _item_of_self(index)
            if attribute is not None:
                return _Source(
                    attribute=attribute, index=_subscript(index), read=value, key=key, names=(name, entry)
                )
    raise _unknown(code, found)


def _unknown(code: Code, found: _Transform) -> Cannot:
    shown = " ".join(code.source(found.given).split())
    return Cannot(
        f"{shown} is not plainly an item of what the dataset holds", str(code.path), code.line(found.whole)
    )


def _unshaped(node: cst.BaseExpression) -> tuple[cst.BaseExpression, bool]:
    """``X`` of ``X.reshape(1, -1)``."""
    if (
        isinstance(node, cst.Call)
        and isinstance(node.func, cst.Attribute)
        and last_name(node.func) == "reshape"
    ):
        given = [arg.value for arg in node.args]
        if (
            len(given) == 2
            and _is_int(given[0], "1")
            and isinstance(given[1], cst.UnaryOperation)
            and _is_int(given[1].expression, "1")
        ):
            return node.func.value, True
    return node, False


def _is_int(node: cst.CSTNode, text: str) -> bool:
    return isinstance(node, cst.Integer) and node.value == text


def _item_of_self(node: cst.BaseExpression) -> str | None:
    """The attribute of ``self.ATTRIBUTE[one index]``."""
    if isinstance(node, cst.Subscript) and len(node.slice) == 1:
        return _attribute_of_self(node.value) or None
    return None


def _subscript(node: cst.BaseExpression) -> cst.Subscript:
    assert isinstance(node, cst.Subscript)
    return node


def _key(node: cst.Subscript) -> str:
    index = node.slice[0].slice if len(node.slice) == 1 else None
    return (text_of(index.value) or "") if isinstance(index, cst.Index) else ""


def _bound(
    code: Code, getitem: Function, name: cst.Name, found: _Transform
) -> tuple[cst.Name, cst.BaseExpression]:
    """What a variable was given in ``__getitem__``, where that is said once and for all. Raises Cannot."""
    own = code.statement_of(found.whole)
    assert own is not None
    values = []
    for one in code.assignments(name, name.value):
        value = value_of(code, one.node)
        statement = code.statement_of(one.node)
        if statement is own:
            continue
        block = code.parents.get(statement) if isinstance(statement, cst.SimpleStatementLine) else None
        at_top = block is not None and code.parents.get(block) is getitem and isinstance(one.node, cst.Name)
        if value is None or not at_top:
            raise _unknown(code, found)
        values.append((one.node, value))
    if len(values) != 1:
        raise _unknown(code, found)
    node, value = values[0]
    assert isinstance(node, cst.Name)
    if code.begin(node) > code.begin(found.whole):
        raise _unknown(code, found)
    for other in code.nodes(cst.Name, getitem):
        if other.value == name.value and code.begin(node) < code.begin(other) < code.begin(own):
            above = code.parents.get(other)
            lookup = (
                isinstance(above, cst.Subscript)
                and above.value is other
                and not isinstance(code.parents.get(above), cst.AssignTarget | cst.AugAssign | cst.Del)
            )
            if not lookup and not _is_guarded(code, own, other):
                words = f"{name.value} is used before it is transformed"
                raise Cannot(words, str(code.path), code.line(other))
    return node, value


def _is_guarded(code: Code, statement: cst.CSTNode, node: cst.CSTNode) -> bool:
    return code.holds(statement, node)


# -- whether it is safe --------------------------------------------------------------------------------------


def _require_alike(code: Code, found: _Transform, source: _Source, facts: dict[str, Facts]) -> None:
    """Raises Cannot where the whole would not come out as its parts do."""
    line = code.line(found.whole)

    def cannot(words: str) -> Cannot:
        return Cannot(words, str(code.path), line)

    whole = facts.get(source.attribute) or {}
    kind = whole.get("class")
    item: Facts = whole
    if kind == "list":
        item = whole.get("first") or {}
        if source.key:
            item = (item.get("entries") or {}).get(source.key) or {}
    elif source.key:
        raise cannot(f"{source.attribute} is no list of dictionaries")
    shown = f"{source.attribute}[...]" if kind == "list" else source.attribute
    if item.get("class") not in ("numpy.ndarray", "torch.Tensor") or not item.get("plain"):
        raise cannot(f"{shown} is no array in memory")
    if str(item.get("dtype")).removeprefix("torch.") not in _DTYPES:
        raise cannot(f"{shown} is {item.get('dtype')}: its results may depend on what is computed beside")
    shape = list(item.get("shape") or ())
    for name in found.by:
        one = facts.get(name) or {}
        if one.get("class") == "NoneType":
            continue
        if found.is_scaler:
            _require_scaler(cannot, name, one)
        elif kind != "list":
            _require_broadcast(cannot, name, one, source, kind, shape)
    if found.is_scaler and item.get("class") != "numpy.ndarray":
        raise cannot(f"{shown} is a tensor, which the scaler makes an array of")
    if kind == "list":
        return
    sliced = isinstance(source.index.slice[0].slice, cst.Slice)
    if found.is_scaler and not _fits_scaler(len(shape), sliced=sliced, shaped=source.shaped):
        raise cannot(f"{shown} has {len(shape)} dimensions: its rows cannot be told")
    if not found.is_scaler and (source.shaped or len(shape) < 1 + (not sliced)):
        raise cannot(f"{shown} has {len(shape)} dimensions: a sample of it is a number")


def _fits_scaler(dimensions: int, *, sliced: bool, shaped: bool) -> bool:
    if shaped:
        return dimensions == 2 and not sliced
    return dimensions == (2 if sliced else 3)


def _require_scaler(cannot: Any, name: str, facts: Facts) -> None:
    kind = str(facts.get("class")).rpartition(".")[2]
    if kind not in _SCALERS:
        raise cannot(f"{name} is a {kind}: whether it takes each row by itself is not known")
    if not facts.get("copy"):
        raise cannot(f"{name} has copy=False: it changes what it is given")
    if not facts.get("plain"):
        raise cannot(f"{name} is told to give no arrays")


def _require_broadcast(
    cannot: Any, name: str, facts: Facts, source: _Source, kind: Any, shape: list[int]
) -> None:
    """What is subtracted or divided by must meet each sample as it meets all of them."""
    if facts.get("class") in _NUMBERS:
        return
    own = list(facts.get("shape") or ())
    if facts.get("class") != kind or not facts.get("plain"):
        raise cannot(f"{name} is a {facts.get('class')}, {source.attribute} a {kind}")
    if str(facts.get("dtype")).removeprefix("torch.") not in _DTYPES:
        raise cannot(f"{name} is {facts.get('dtype')}")
    sample = shape[1:]
    fits = len(own) <= len(sample) and all(
        mine in (1, other) for mine, other in zip(reversed(own), reversed(sample), strict=False)
    )
    if not fits:
        raise cannot(
            f"{name} has shape {tuple(own)}, {source.attribute} {tuple(shape)}: not the same for each sample"
        )


def _require_key_unchanged(held: Held, source: _Source) -> None:
    """Raises Cannot where something stores under the same key of a dictionary behind the constructor."""
    if not source.key:
        return
    for code in held.codes:
        for target in code.nodes(cst.Subscript):
            above = code.parents.get(target)
            stored = isinstance(above, cst.AssignTarget | cst.Del) or (
                isinstance(above, cst.AugAssign) and above.target is target
            )
            if stored and _key(target) == source.key and code.function_of(target) is not held.init:
                words = f"{source.key} may be changed here"
                raise Cannot(words, str(code.path), code.line(target))


def _require_names_unchanged(code: Code, found: _Transform, source: _Source) -> None:
    """Raises Cannot where the item itself is changed in place, and not what came of it."""
    own = code.statement_of(found.whole)
    assert own is not None
    for name in source.names:
        if not _gives(own, name.value) and is_changed(code, name):
            words = f"{name.value}, an item of {source.attribute}, is changed in place"
            raise Cannot(words, str(code.path), code.line(name))


def _is_alone(
    held: Held,
    code: Code,
    getitem: Function,
    found: _Transform,
    source: _Source,
    apart: Iterable[cst.CSTNode],
) -> bool:
    """Whether nothing but the transform reads what it is given."""
    for _, _, use in held.uses(source.attribute, list(apart)):
        if use != "measured":
            return False
    own = code.statement_of(found.whole)
    assert own is not None
    for name in source.names:
        bound = {one.node for one in code.assignments(name, name.value)}
        for other in code.nodes(cst.Name, getitem):
            if (
                other.value != name.value
                or other in bound
                or is_member(code, other)
                or code.holds(found.whole, other)
            ):
                continue
            above = code.parents.get(other)
            of_key = source.key and name is source.names[-1]
            if (
                of_key
                and isinstance(above, cst.Subscript)
                and above.value is other
                and _key(above) not in ("", source.key)
            ):
                continue  # another entry
            if of_key and isinstance(above, cst.Subscript) and above is source.read:
                continue
            if not of_key and code.begin(other) > code.begin(own) and _gives(own, name.value):
                continue  # what came of it
            return False
    return True


def _gives(statement: cst.CSTNode, name: str) -> bool:
    """Whether a statement gives a variable its value."""
    small = (
        statement.body[0]
        if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) == 1
        else None
    )
    return (
        isinstance(small, cst.Assign)
        and len(small.targets) == 1
        and last_name(small.targets[0].target) == name
    )


def _are_distinct(held: Held, attribute: str, key: str) -> bool:
    """Whether a list is filled in ``__init__`` with dictionaries made for each of its places."""
    code, seen = held.code, False
    for node in code.nodes(cst.Attribute, held.init):
        if node.attr.value != attribute or not is_self(node.value):
            continue
        above = code.parents.get(node)
        if isinstance(above, cst.AssignTarget):
            assign = code.parents[above]
            value = assign.value if isinstance(assign, cst.Assign) and len(assign.targets) == 1 else None
            made = isinstance(value, cst.ListComp) and isinstance(value.elt, cst.Dict)
            if not made and not (isinstance(value, cst.List) and not value.elements):
                return False
            seen = seen or made
        elif isinstance(above, cst.Attribute) and above.attr.value == "append":
            call = code.parents.get(above)
            if (
                not isinstance(call, cst.Call)
                or len(call.args) != 1
                or not isinstance(call.args[0].value, cst.Dict)
            ):
                return False
            seen = True
        elif not (isinstance(above, cst.Arg) and last_name(_call_of(code, above)) == "len"):
            return False
    return seen


def _call_of(code: Code, arg: cst.Arg) -> cst.CSTNode:
    call = code.parents[arg]
    return call.func if isinstance(call, cst.Call) else call


def _require_room(
    code: Code, found: _Transform, source: _Source, known: Sequence[dict[str, Facts]], *, in_place: bool
) -> None:
    """Raises Cannot where memory may not hold what is added."""
    needed = sum(_added_bytes(source, facts, in_place=in_place) for facts in known)
    room = memory_budget("auto")
    if needed > room:
        words = f"transformed it takes {size(needed)} more, and of the memory {size(room)} are at hand"
        raise Cannot(words, str(code.path), code.line(found.whole))


def _added_bytes(source: _Source, facts: dict[str, Facts], *, in_place: bool) -> int:
    whole = facts[source.attribute]
    item, times = whole, 1
    if whole.get("class") == "list":
        times = int(whole["len"])
        item = whole["first"]["entries"][source.key] if source.key else whole["first"]
    values = math.prod(item["shape"]) * times
    is_float32 = str(item.get("dtype")).endswith("float32")
    if (
        in_place
        and whole.get("class") == "list"
        and item.get("owned")
        and str(item["dtype"]).endswith(("float32", "float64"))
    ):
        return values * 4 if is_float32 else 0  # one after the other takes the place of what it was
    return values * 8


# -- what is written -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Rewrite:
    plan: Plan
    held: Held
    getitem: Function
    found: _Transform
    source: _Source
    guard: cst.If | None

    def write(self, *, in_place: bool, known: dict[str, Facts]) -> None:
        code, source = self.held.code, self.source
        name = source.attribute if in_place else self._new_name()
        facts = known[source.attribute]
        of_list = facts.get("class") == "list"
        lines = self._lines(
            name, in_place=in_place, of_list=of_list, dimensions=len(facts.get("shape") or ())
        )
        if self.guard is not None:
            lines = [
                f"if {code.source(self.guard.test)}:",
                *(f"{code.module.default_indent}{line}" for line in lines),
            ]
        self._edit_sample(name, in_place=in_place, copied=_copied(facts, of_list, source))
        says = lines[0] if len(lines) == 1 else f"self.{name} is transformed at the end of __init__"
        layout.behind(self.plan, code, self.held.init.body.body[-1], lines, says)
        if of_list:
            self.plan.remark(
                "pretransform: building the dataset takes as long as transforming each sample once: it pays "
                "from the second epoch on"
            )
        if not in_place:
            self.plan.remark(
                f"pretransform: {source.attribute} is read elsewhere too, and stays beside self.{name}"
            )

    def _new_name(self) -> str:
        taken = {one.attr.value for code in self.held.codes for one in code.nodes(cst.Attribute)}
        names = (
            "transformed",
            f"transformed_{self.source.attribute}",
            f"pretransformed_{self.source.attribute}",
        )
        free = next((one for one in names if one not in taken), None)
        if free is None:
            code = self.held.code
            raise Cannot(
                "no name is free for what is transformed", str(code.path), code.line(self.found.whole)
            )
        return free

    def _lines(self, name: str, *, in_place: bool, of_list: bool, dimensions: int) -> list[str]:
        """What ``__init__`` does at its end."""
        source = self.source
        held = f"self.{source.attribute}"
        if not of_list:
            if self.found.is_scaler and dimensions == 3:
                rows = self._of(f"{held}.reshape(-1, {held}.shape[-1])")
                return [f"self.{name} = {rows}.reshape({held}.shape)"]
            return [f"self.{name} = {self._of(held)}"]
        one = self._variable()
        if source.key and in_place:
            entry = f"{one}[{self._quoted()}]"
            return [
                f"for {one} in {held}:",
                f"{self.held.code.module.default_indent}{entry} = {self._of(entry)}",
            ]
        entry = f"{one}[{self._quoted()}]" if source.key else one
        return [f"self.{name} = [{self._of(entry)} for {one} in {held}]"]

    def _of(self, given: str) -> str:
        """The transform of another expression; a row that was given two dimensions keeps them in a list."""
        code, whole, old = self.held.code, self.found.whole, self.found.given
        shaped = self.source.shaped and given.startswith("self.")
        node = old if not self.source.shaped or shaped else _unshaped(old)[0]
        start, end = code.span(node)
        first, last = code.span(whole)
        text = code.text.text
        return " ".join((text[first:start] + given + text[end:last]).split())

    def _variable(self) -> str:
        names = {one.value for one in self.held.code.nodes(cst.Name, self.held.init)}
        names |= {one.value for one in self.held.code.nodes(cst.Name, self.found.whole)}
        return next(one for one in ("one", "entry", "each_one", "one_of_them") if one not in names)

    def _quoted(self) -> str:
        quote = '"' if '"' in self.held.code.source(self.source.read) else "'"
        return f"{quote}{self.source.key}{quote}"

    def _edit_sample(self, name: str, *, in_place: bool, copied: str) -> None:
        """What reads and transforms a sample only reads it now: a copy, as it was the sample's own."""
        code, source, found = self.held.code, self.source, self.found
        own = code.statement_of(found.whole)
        assert own is not None
        target = source.names[0].value if source.names and not isinstance(found.given, cst.Subscript) else ""
        if (
            in_place
            and target
            and isinstance(found.given, cst.Name)
            and _gives(own, target)
            and self._is_all(own)
        ):
            end = code.span(source.read)[1]
            self.plan.insert(code, end, copied, f"{code.source(source.read)} is read transformed")
            gone: cst.CSTNode = self.guard if self.guard is not None else own
            start, end = code.span(gone)
            start, end = code.line_start(start), code.line_end(end - 1) + len(code.text.newline)
            shown = code.text.text[start:end].strip().splitlines()[-1].strip()
            self.plan.remove(code, start, end, f"{shown} left out")
            return
        if in_place:
            read = code.source(source.read)
        else:
            index = code.source(source.index)
            read = f"self.{name}" + index[len(code.source(source.index.value)) :]
        shape = (
            code.source(found.given)[len(code.source(_unshaped(found.given)[0])) :] if source.shaped else ""
        )
        new = f"{read}{copied}{shape}"
        self.plan.replace(code, found.whole, new, f"{' '.join(code.source(found.whole).split())} → {new}")

    def _is_all(self, statement: cst.CSTNode) -> bool:
        """Whether the transform is all that a statement gives its variable, on lines of its own."""
        code = self.held.code
        small = statement.body[0] if isinstance(statement, cst.SimpleStatementLine) else None
        start, end = code.span(statement)
        alone = not code.text.text[code.line_start(start) : start].strip()
        alone = alone and not code.text.text[end : code.line_end(end - 1)].strip()
        return alone and isinstance(small, cst.Assign) and small.value is self.found.whole


def _copied(facts: Facts, of_list: bool, source: _Source) -> str:
    item = facts
    if of_list:
        item = facts["first"]["entries"][source.key] if source.key else facts["first"]
    return ".clone()" if item.get("class") == "torch.Tensor" else ".copy()"
