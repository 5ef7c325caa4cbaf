"""Loops that write or read a tensor on the CPU element by element, through a numpy view of its memory.

``heat[b, k, y, x] = value`` goes through torch's dispatcher; on ``heat.numpy()`` it sets the same bytes where
the value is a plain number (or the tensor holds integers, which carry no gradient) and the tensor keeps its
memory meanwhile.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import libcst as cst

from hotloop.remedy.source import layout
from hotloop.remedy.source.aliases import viewed
from hotloop.remedy.source.code import Code, argument, has_spread, last_name, literal
from hotloop.remedy.source.plain import FLOAT, bits, is_set_elsewhere
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scene import Already, Cannot
from hotloop.remedy.source.values import text_of, value_of

ID: Final = "numpy-view"
#: Types that torch and numpy convert numbers to alike; the others are left to torch.
_TYPES: Final = {
    "float32": "float32", "float": "float32", "float64": "float64", "double": "float64", "int64": "int64",
    "long": "int64", "int32": "int32", "int": "int32", "int16": "int16", "short": "int16", "bool": "bool",
    "uint8": "uint8",
}  # fmt: skip
_OLD: Final = {
    "torch.FloatTensor": "float32", "torch.DoubleTensor": "float64", "torch.LongTensor": "int64",
    "torch.IntTensor": "int32", "torch.BoolTensor": "bool", "torch.ByteTensor": "uint8",
}  # fmt: skip
_MAKE: Final = ("torch.zeros", "torch.ones", "torch.empty", "torch.full", "torch.rand", "torch.randn")
#: What may stand behind the making: ``torch.zeros(n).long()``.
_CASTS: Final = {name: _TYPES[name] for name in ("float", "double", "long", "int", "short", "bool")}
_FILLS: Final = ("fill_", "zero_")
#: An integer of more bits is rounded once by torch and twice by numpy on its way to 32 bits.
_MANTISSA: Final = 53
#: What ``+=`` adds has to fit into 24 bits: then 32 and 64 bits give the same sum.
_ADDED: Final = 24
_ASKED: Final = frozenset(["shape", "ndim", "dtype", "device"])
_SIZES: Final = frozenset(["size", "dim", "numel", "nelement"])
#: Methods that change nothing, or no more than the numbers, and give what has memory of its own.
_SAFE: Final = _SIZES | frozenset([
    "fill_", "zero_", "sum", "mean", "max", "min", "any", "all", "clone", "item", "tolist", "argmax",
    "argmin", "nonzero", "count_nonzero",
])  # fmt: skip
#: Attributes that tensors have, and arrays and lists have not.
_OF_TENSORS: Final = frozenset([
    "detach", "cpu", "cuda", "float", "long", "double", "unsqueeze", "numel", "dim", "is_cuda",
    "requires_grad", "new_zeros", "new_full", "new_tensor", "permute", "size",
])  # fmt: skip
_GIVE_TENSORS: Final = frozenset(
    f"torch.{name}" for name in (
        "zeros", "ones", "full", "empty", "rand", "randn", "randint", "randperm", "arange", "linspace",
        "tensor", "cat", "stack", "cdist", "matmul", "softmax", "sigmoid", "argmax", "nonzero", "clamp",
        "round", "floor", "exp", "log", "sqrt",
    )
)  # fmt: skip
_COMPILES: Final = (
    "torch.compile", "torch.jit.script", "torch.jit.trace", "torch.vmap", "torch.func.vmap",
    "torch.export.export", "torch.fx.symbolic_trace", "torch.fx.experimental.proxy_tensor.make_fx",
)  # fmt: skip
#: What makes tensors somewhere else, or of another type, than their own line says.
_DEFAULTS: Final = ("set_default_device", "set_default_tensor_type", "set_default_dtype")
#: Where these are written a tensor may have no view in numpy, or one of other numbers.
_LOW: Final = ("bfloat16", "bf16", "autocast", "getattr(torch", "sparse", "conj", ".imag")
#: What asks whether a variable is a tensor at all.
_WHETHER: Final = ("isinstance", "is_tensor", "hasattr", "callable", "type")
#: What makes memory larger or smaller: torch refuses that where numpy has seen it.
_RESIZES: Final = frozenset([
    "resize_", "resize_as_", "untyped_storage", "storage", "set_",
])  # fmt: skip
#: What gives the same tensor elsewhere, or its numbers.
_SAME: Final = frozenset(["to", "cuda", "cpu", "detach", "clone", "contiguous"])
#: A tensor of more bytes is not copied from a device for some of its elements.
_FEW_BYTES: Final = 1 << 20
_BY_HAND: Final = (
    "make plain numbers of what is computed (.item(), .tolist()), and write them to an array: "
    "view = tensor.numpy() before the loop, view[i, j] = number in it"
)
_Loop = cst.For | cst.While
_Statement = cst.SimpleStatementLine | cst.BaseCompoundStatement


@dataclass(frozen=True, kw_only=True)
class _Made:
    """How a tensor is made: ``rank`` None where its number of dimensions cannot be told."""

    type: str
    rank: int | None
    call: cst.Call
    device: cst.Arg | None = None  # where it is not the CPU for certain


@dataclass(kw_only=True)
class _Group:
    """Accesses that one view serves. ``block``: the statements from its making, or the loop, to the last."""

    name: str
    block: Sequence[cst.CSTNode]
    made: _Made | None = None
    first: _Statement
    found: list[cst.Subscript] = field(default_factory=list)


def numpy_view(plan: Plan, value: Any) -> None:
    """Every loop of the function that the finding names. Raises Cannot."""
    place = plan.scene.where.get(ID)
    if place is None:
        raise Cannot("no finding names a loop over the elements of a tensor", write=_BY_HAND)
    code = plan.scene.code(place.file)
    function = _function_at(code, place.line)
    work = _Work(plan, code, function)
    work.rewrite(place.line)


def _function_at(code: Code, line: int) -> cst.FunctionDef | None:
    found = [one for one in code.nodes(cst.FunctionDef) if code.line(one) <= line <= code.end(one)[0]]
    return max(found, key=code.line, default=None)


class _Work:
    """The rewrite of one function, or of what a module does itself."""

    def __init__(self, plan: Plan, code: Code, function: cst.FunctionDef | None) -> None:
        self.plan, self.code, self.function = plan, code, function
        self.scope: cst.CSTNode = function if function is not None else code.module
        self.taken = {name.value for name in code.names()}

    def rewrite(self, line: int) -> None:
        written, refused = 0, []
        self._require_plain()
        for group in self._groups():
            try:
                written += self._write(group)
            except Cannot as cannot:
                refused.append(cannot)
        if written:
            for one in refused:
                where = f"{self.code.path.name}:{one.line}"
                self.plan.remark(f"{where} is left as it is: {one.why}")
            return
        if refused:
            raise min(refused, key=lambda one: abs(one.line - line))
        if any(last_name(call.func) == "numpy" for call in self.code.nodes(cst.Call, self.scope)):
            raise Already("the elements go through an array already", str(self.code.path), line)
        words = "no tensor whose type and place are told is written or read here element by element"
        raise Cannot(words, str(self.code.path), line, write=_BY_HAND)

    def _cannot(self, words: str, node: cst.CSTNode, write: str = _BY_HAND) -> Cannot:
        return Cannot(words, str(self.code.path), self.code.line(node), write=write)

    # -- what must hold everywhere -------------------------------------------------------------------------

    def _require_plain(self) -> None:
        """Raises Cannot where tensors are made elsewhere than it seems, or the function may be compiled."""
        for word in _DEFAULTS:
            for code in self.plan.scene.codes(word):
                for call in code.nodes(cst.Call):
                    if last_name(call.func) == word:
                        words = f"{word} says where tensors lie, or of which type they are"
                        raise Cannot(words, str(code.path), code.line(call), write=_BY_HAND)
        for code in self.plan.scene.codes("device"):
            for item in code.nodes(cst.WithItem):
                named = code.source(item.item)
                for one in code.assignments(item.item, last_name(item.item)):
                    value = value_of(code, one.node)
                    named += code.source(value) if isinstance(value, cst.Call) else ""
                if "device" in named and "autocast" not in named and not isinstance(item.item, cst.Attribute):
                    words = f"with {named}: tensors may be made on a device"
                    raise Cannot(words, str(code.path), code.line(item), write=_BY_HAND)
        for code in self.plan.scene.codes(""):
            for call in code.nodes(cst.Call):
                out = argument(call, "out") is not None and code.qualified(call.func).startswith("torch.")
                if out or last_name(call.func) in _RESIZES:
                    words = "tensors may be resized: torch does not resize what numpy has seen"
                    raise Cannot(words, str(code.path), code.line(call), write=_BY_HAND)
        if self.function is not None and not self._makes_batches():
            self._require_not_compiled(self.function)

    def _require_not_compiled(self, function: cst.FunctionDef) -> None:
        """Raises Cannot where something that is compiled may call the function."""
        codes = list(self.plan.scene.codes(""))
        roots: set[str] = set()
        found = False
        for code in codes:
            for call in code.nodes(cst.Call):
                whole, name = code.qualified(call.func), last_name(call.func)
                if whole not in _COMPILES and (name != "compile" or whole):
                    continue
                found = True
                roots |= {one.value for one in code.nodes(cst.Name, call)}
            for decorated in code.nodes(cst.FunctionDef):
                if any(_compiles(code, one) for one in decorated.decorators):
                    found = True
                    roots.add(decorated.name.value)
        if not found:
            return
        roots.add("forward")
        called: dict[str, set[str]] = {}
        for code in codes:
            for each in code.nodes(cst.FunctionDef):
                names = {one.value for one in code.nodes(cst.Name, each)} - {each.name.value}
                called.setdefault(each.name.value, set()).update(names)
        reached: set[str] = set()
        while roots:
            one = roots.pop()
            reached.add(one)
            roots |= called.get(one, set()) - reached
        if function.name.value in reached:
            words = "what is compiled may call this function: an array has no place in a graph"
            raise self._cannot(words, function)

    def _makes_batches(self) -> bool:
        """Whether the function is a collate function, or of a class that gives samples."""
        assert self.function is not None
        owner = self.code.above(self.function, cst.ClassDef)
        if owner is not None:
            methods = {one.name.value for one in self.code.nodes(cst.FunctionDef, owner)}
            return bool(methods & {"__getitem__", "__iter__", "__call__"}) and "forward" not in methods
        name = self.function.name.value
        for code in self.plan.scene.codes("collate_fn"):
            for call in code.nodes(cst.Call):
                given = argument(call, "collate_fn")
                if given is not None and last_name(given) == name:
                    return True
        return False

    # -- what is accessed where ----------------------------------------------------------------------------

    def _groups(self) -> list[_Group]:
        groups: list[_Group] = []
        for node in self.code.nodes(cst.Subscript, self.scope):
            base = _base(node)
            if base is None or _top(self.code, base) is not node:
                continue
            if self.code.function_of(node) is not self.function:
                continue
            loops = list(self._loops(node))
            if (
                not loops
                or self.code.qualified(base)
                or not (_is_stored(self.code, node) or self._read(node))
            ):
                continue
            group = self._made_group(node, base) or self._read_group(node, base, loops)
            if group is None:
                continue
            same = [g for g in groups if g.name == group.name and g.first is group.first]
            if same:
                same[0].found.append(node)
                last = self._in_block(node, same[0].first)
                same[0].block = [*same[0].block, *(one for one in last if one not in same[0].block)]
            else:
                group.found.append(node)
                groups.append(group)
        return groups

    def _loops(self, node: cst.CSTNode) -> Iterator[_Loop]:
        """The loops of the function around a node, innermost first."""
        above = self.code.parents.get(node)
        inner: cst.CSTNode = node
        while above is not None and above is not self.function:
            if isinstance(above, cst.For | cst.While) and (
                inner is above.body or isinstance(above, cst.While)
            ):
                yield above
            if isinstance(above, cst.Lambda | cst.ClassDef):
                return
            inner, above = above, self.code.parents.get(above)

    def _read(self, node: cst.Subscript) -> cst.Call | None:
        """The call that makes a number of an element: ``x[i, j].item()``, ``float(x[i, j])``."""
        above = self.code.parents.get(node)
        if isinstance(above, cst.Attribute) and above.attr.value == "item":
            call = self.code.parents.get(above)
            return call if isinstance(call, cst.Call) and call.func is above and not call.args else None
        if isinstance(above, cst.Arg) and above.keyword is None and not above.star:
            call = self.code.parents.get(above)
            if (
                isinstance(call, cst.Call) and isinstance(call.func, cst.Name) and len(call.args) == 1
                and call.func.value in ("float", "int")
                and not self.code.assignments(call, call.func.value)
            ):  # fmt: skip
                return call
        return None

    def _made_group(self, node: cst.Subscript, base: cst.Name) -> _Group | None:
        """The group of the statement above, in a block around the access, that makes the tensor."""
        best: tuple[tuple[int, int], cst.SimpleStatementLine, _Made] | None = None
        for one in self.code.assignments(base, base.value):
            call = value_of(self.code, one.node)
            statement = self.code.statement_of(one.node)
            if call is None or not isinstance(statement, cst.SimpleStatementLine):
                continue
            made = self._made(call)
            begin = self.code.begin(statement)
            if made is None or begin >= self.code.begin(node) or not self._in_block(node, statement):
                continue
            if best is None or begin > best[0]:
                best = begin, statement, made
        if best is None:
            return None
        _, statement, made = best
        block = self._in_block(node, statement)
        return _Group(name=base.value, block=block, made=made, first=statement)

    def _in_block(self, node: cst.CSTNode, first: cst.CSTNode) -> Sequence[cst.CSTNode]:
        """The statements behind ``first`` in its block, to the one that holds a node; () where none does."""
        above = self.code.parents.get(first)
        if not isinstance(above, cst.IndentedBlock | cst.Module):
            return ()
        at = list(above.body).index(first)  # type: ignore[arg-type]
        for end, one in enumerate(above.body[at + 1 :], at + 1):
            if self.code.holds(one, node):
                return above.body[at + 1 : end + 1]
        return ()

    def _made(self, value: cst.BaseExpression) -> _Made | None:
        """How an expression makes a tensor; None where it does not, or its type cannot be told."""
        call, cast = value, ""
        while isinstance(call, cst.Call) and isinstance(call.func, cst.Attribute):
            if self.code.qualified(call.func):
                break
            name = call.func.attr.value
            if name in _CASTS and not call.args:
                cast = cast or _CASTS[name]
            elif name not in _FILLS:
                return None
            call = call.func.value
        if not isinstance(call, cst.Call) or any(arg.star == "**" for arg in call.args):
            return None
        whole = self.code.qualified(call.func)
        if whole in _OLD:
            return _Made(type=cast or _OLD[whole], rank=None, call=call)
        if whole not in _MAKE:
            return None
        known = {"dtype", "device", "size", "fill_value", "pin_memory", "generator"}
        free = {arg.keyword.value: arg.value for arg in call.args if arg.keyword is not None}
        if (
            set(free) - known - {"requires_grad"}
            or self.code.source(free.get("requires_grad", call)) == "True"
        ):
            return None
        if "requires_grad" in free and self.code.source(free["requires_grad"]) != "False":
            return None
        type_ = self._type(call, whole, free.get("dtype"))
        if type_ is None:
            return None
        device = next((a for a in call.args if a.keyword is not None and a.keyword.value == "device"), None)
        if device is not None and self._is_cpu(device.value):
            device = None
        return _Made(type=cast or type_, rank=_rank(self.code, call, whole), call=call, device=device)

    def _type(self, call: cst.Call, whole: str, given: cst.BaseExpression | None) -> str | None:
        if given is not None:
            name = self.code.qualified(given)
            return _TYPES.get(name.removeprefix("torch.")) if name.startswith("torch.") else None
        if whole != "torch.full":
            return "float32"
        filled = argument(call, "fill_value", 1)
        if filled is None:
            return None
        if isinstance(filled, cst.Name) and filled.value in ("True", "False"):
            return "bool"
        told = bits(self.code, filled)
        if told == FLOAT:
            return "float32"
        return "int64" if told is not None and literal(filled) else None

    def _is_cpu(self, node: cst.BaseExpression) -> bool:
        if isinstance(node, cst.Call) and self.code.qualified(node.func) == "torch.device" and node.args:
            node = node.args[0].value
        return text_of(node) == "cpu" or (isinstance(node, cst.Name) and node.value == "None")

    def _read_group(self, node: cst.Subscript, base: cst.Name, loops: list[_Loop]) -> _Group | None:
        """The group of the outermost loop in which a tensor that comes from elsewhere stays what it is."""
        if self._read(node) is None or _is_stored(self.code, node) or not self._is_tensor(base):
            return None
        bound = [one.node for one in self.code.assignments(base, base.value)]
        if any(isinstance(value_of(self.code, one), cst.Attribute) for one in bound):
            return None  # of an object, whose methods may give it other memory
        outer: _Loop | None = None
        for loop in loops:
            if any(self.code.holds(loop, one) for one in bound):
                break
            outer = loop
        if outer is None:
            return None
        return _Group(name=base.value, block=[outer], first=outer)

    # -- tensors that come from elsewhere --------------------------------------------------------------------

    def _is_tensor(self, base: cst.Name) -> bool:
        """Whether a variable is a tensor, on this machine's CPU or of few bytes, of a type that numpy has."""
        bound = self.code.assignments(base, base.value)
        if not bound or is_set_elsewhere(self.code, base.value) or self._may_be_none(base):
            return False
        bound = [one for one in bound if not _is_the_same(self.code, one.node, base.value)]
        known = [self._known(base, one.node) for one in bound]
        if bound and all(one is True for one in known):
            return True
        if self.plan.scene.device != "cpu" or any(one is False for one in known):
            return False
        if any(True for word in _LOW for _ in self.plan.scene.codes(word)):
            return False
        used = any(
            isinstance(above := self.code.parents.get(name), cst.Attribute)
            and above.value is name
            and above.attr.value in _OF_TENSORS
            and isinstance(self.code.parents.get(above), cst.Call)
            for name in self._references(base.value)
        )
        return used or all(self._gives_a_tensor(one.node) for one in bound)

    def _may_be_none(self, base: cst.Name) -> bool:
        """Whether a variable has a default, or is asked whether it is a tensor, before the loop or in it."""
        if any(
            isinstance(one.node, cst.Param) and one.node.default is not None
            for one in self.code.assignments(base, base.value)
        ):
            return True
        for name in self._references(base.value):
            above = self.code.parents.get(name)
            call = self.code.parents.get(above) if isinstance(above, cst.Arg) else None
            if isinstance(call, cst.Call) and last_name(call.func) in _WHETHER:
                return True
            if isinstance(
                above, cst.Comparison | cst.ComparisonTarget | cst.BooleanOperation | cst.If | cst.IfExp
            ):
                return True
        return False

    def _gives_a_tensor(self, bound: cst.CSTNode) -> bool:
        if isinstance(bound, cst.Param):
            written = bound.annotation.annotation if bound.annotation is not None else None
            return written is not None and self.code.qualified(written) == "torch.Tensor"
        value = value_of(self.code, bound)
        return isinstance(value, cst.Call) and self.code.qualified(value.func) in _GIVE_TENSORS

    def _known(self, base: cst.Name, bound: cst.CSTNode) -> bool | None:
        """Whether the batches seen say that it is such a tensor; None where they say nothing of it."""
        if not isinstance(bound, cst.Param):
            return self._of_batches(self.code, bound)
        if self.function is None or bound.star:
            return None
        params = [*self.function.params.posonly_params, *self.function.params.params]
        at = params.index(bound) if bound in params else None
        told: list[bool | None] = []
        for code in self.plan.scene.codes(self.function.name.value):
            for call in code.nodes(cst.Call):
                if last_name(call.func) != self.function.name.value:
                    continue
                if has_spread(call) or not isinstance(call.func, cst.Name):
                    return None
                given = argument(call, bound.name.value, at)
                if not isinstance(given, cst.Name):
                    return None
                told += [
                    self._of_batches(code, one.node)
                    for one in code.assignments(given, given.value)
                    if not _is_the_same(code, one.node, given.value)
                ]
        if not told or None in told:
            return None
        return all(told)

    def _of_batches(self, code: Code, bound: cst.CSTNode) -> bool | None:
        """The same of what the training loop takes from a batch: ``for images, points in loader``."""
        path: list[str] = []
        above: cst.CSTNode | None = code.parents.get(bound)
        while isinstance(above, cst.Element):
            outer = code.parents[above]
            if not isinstance(outer, cst.Tuple):
                return None
            path.insert(0, str(outer.elements.index(above)))
            above = code.parents.get(outer)
        loop = self.plan.scene.loop
        if not isinstance(above, cst.For) or loop is None:
            return None
        if (str(code.path), code.line(above)) != (loop.file, loop.line):
            return None
        if isinstance(above.iter, cst.Call) and last_name(above.iter.func) == "enumerate":
            if path[:1] != ["1"]:
                return None
            path = path[1:]
        elif not isinstance(above.iter, cst.Name | cst.Attribute):
            return None
        notes = self.plan.scene.process.notes.get("batch", ())
        found = [f for note in notes for f in note.get("fields", ()) if f.get("path") == ".".join(path)]
        if not found:
            return None
        few = self.plan.scene.device == "cpu" or all(one.get("bytes", 0) <= _FEW_BYTES for one in found)
        types = {*_TYPES.values(), "float16"}
        return few and all(str(one.get("dtype", "")).removeprefix("torch.") in types for one in found)

    # -- what may happen to it meanwhile ---------------------------------------------------------------------

    def _references(self, name: str) -> Iterator[cst.Name]:
        """Where a variable of the scope is meant."""
        for node in self.code.nodes(cst.Name, self.scope):
            above = self.code.parents.get(node)
            member = isinstance(above, cst.Attribute) and above.attr is node
            if (
                node.value == name
                and not member
                and not (isinstance(above, cst.Arg) and above.keyword is node)
            ):
                yield node

    def _require_kept(self, group: _Group, through: Sequence[cst.Subscript]) -> None:
        """Raises Cannot where it may become another tensor, or one with a gradient, until the last access."""
        code, made = self.code, group.made
        if is_set_elsewhere(code, group.name):
            raise self._cannot(f"{group.name} is set by another function too", group.first)
        begin = code.begin(group.first) if made is None else code.end(group.first)
        end = code.end(group.block[-1])
        floats = made is not None and made.type.startswith("float")
        for name in self._references(group.name):
            at = code.begin(name)
            if code.function_of(name) is not self.function or self._in_lambda(name):
                raise self._cannot(f"another function reads {group.name}", name)
            if not begin <= at < end:
                continue
            above = code.parents.get(name)
            if isinstance(above, cst.Subscript) and above.value is name:
                whole = _top(code, name)
                if isinstance(whole, cst.Subscript) and whole not in through:
                    self._require_harmless(group, whole, floats=floats)
            elif not self._is_asked(name, elsewhere=made is not None and made.device is not None):
                raise self._cannot(f"what {group.name} becomes here cannot be told", name)

    def _in_lambda(self, node: cst.CSTNode) -> bool:
        held = self.code.above(node, cst.Lambda)
        return held is not None and self.code.holds(self.scope, held)

    def _require_harmless(self, group: _Group, node: cst.Subscript, *, floats: bool) -> None:
        """Raises Cannot for a part of it that is read or written otherwise, and may bring a gradient in."""
        code, made = self.code, group.made
        if made is None:
            if _is_stored(code, node) or not self._is_read_only(node):
                raise self._cannot(f"{group.name} may be changed here", node)
            return
        if made.device is not None:
            raise self._cannot(f"{code.source(node)} is computed with on its device", node)
        if not floats:
            if self._is_read_only(node) or _is_stored(code, node):
                return
            raise self._cannot(f"a part of {group.name} is handed on here", node)
        if not _is_stored(code, node):
            if not self._is_read_only(node):
                raise self._cannot(f"a part of {group.name} is handed on here", node)
            return
        statement = code.parents[code.parents[node]]
        value = (
            statement.value if isinstance(statement, cst.Assign)
            else above.value if isinstance(above := code.parents[node], cst.AugAssign) else None
        )  # fmt: skip
        if value is None or not self._is_without_gradient(value):
            shown = code.source(value) if value is not None else code.source(node)
            raise self._cannot(f"{shown} may carry a gradient: it would be lost", node)

    def _is_without_gradient(self, value: cst.BaseExpression) -> bool:
        if bits(self.code, value) is not None:
            return True
        if not isinstance(value, cst.Call):
            return False
        if self.code.qualified(value.func) in ("torch.tensor", "torch.arange", "torch.from_numpy", *_MAKE):
            return argument(value, "requires_grad") is None and not any(a.star == "**" for a in value.args)
        return (
            isinstance(value.func, cst.Attribute)
            and value.func.attr.value in ("detach", "long", "bool", "int")
            and not self.code.qualified(value.func)
        )

    def _is_read_only(self, node: cst.CSTNode) -> bool:
        """Whether a part of a tensor is computed with, and goes nowhere itself."""
        above = self.code.parents.get(node)
        if isinstance(
            above, cst.Comparison | cst.ComparisonTarget | cst.BinaryOperation | cst.UnaryOperation
        ):
            return True
        if isinstance(above, cst.If | cst.While | cst.Assert):
            return True
        if isinstance(above, cst.Attribute) and above.value is node:
            call = self.code.parents.get(above)
            called = isinstance(call, cst.Call) and call.func is above
            name = above.attr.value
            return name in _ASKED or (called and name in _SAFE and not name.endswith("_"))
        if isinstance(above, cst.Arg):
            call = self.code.parents.get(above)
            name = last_name(call.func) if isinstance(call, cst.Call) else ""
            return name in ("float", "int", "bool", "len", "print", "range") and not self.code.assignments(
                node, name
            )
        return False

    def _is_asked(self, name: cst.Name, *, elsewhere: bool) -> bool:
        """Whether the whole tensor is only asked for what it is, or computed with."""
        above = self.code.parents.get(name)
        if isinstance(above, cst.Attribute):
            call = self.code.parents.get(above)
            called = isinstance(call, cst.Call) and call.func is above
            given = call.args if isinstance(call, cst.Call) else ()
            if above.attr.value == "fill_" and any(bits(self.code, one.value) is None for one in given):
                return False  # it may carry a gradient
            return above.attr.value in _ASKED - ({"device"} if elsewhere else set()) or (
                called and above.attr.value in (_SIZES if elsewhere else _SAFE)
            )
        if isinstance(above, cst.Arg):
            call = self.code.parents.get(above)
            plain = (
                isinstance(call, cst.Call) and isinstance(call.func, cst.Name) and call.func.value == "len"
            )
            return plain and not self.code.assignments(name, "len")
        return not elsewhere and isinstance(above, cst.BinaryOperation | cst.Comparison)

    # -- which accesses, and what is written ---------------------------------------------------------------

    def _write(self, group: _Group) -> int:
        """Write one view; how many accesses go through it. Raises Cannot."""
        code, plan, made = self.code, self.plan, group.made
        through = [node for node in group.found if self._fits(group, node)]
        for node in through:
            attempt = code.above(node, cst.Try)
            if attempt is not None and code.function_of(attempt) is self.function and attempt.handlers:
                raise self._cannot("what fails here is caught: numpy raises other errors", node)
        if not through:
            raise self._why_none(group)
        self._require_kept(group, through)
        if made is None:
            self._require_no_other_name(group)
        name = self._fresh(group.name)
        given = group.name if made is not None else f"{group.name}.detach().cpu()"
        line = f"{name} = {given}.numpy()"
        if made is None:
            layout.before(plan, code, group.first, [line])
        else:
            if made.device is not None:
                self._make_on_the_cpu(group, made.device)
            layout.behind(plan, code, group.first, [line])
        for at, node in enumerate(sorted(through, key=code.begin)):
            base = _base(node)
            assert base is not None
            says = f"{code.source(node)} through {name}" if not at else ""
            plan.rewrite(code, *code.span(base), name, says)
            read = self._read(node)
            if read is not None and last_name(read.func) != "item":
                plan.edit(code.text, code.span(node)[1], code.span(node)[1], ".item()")
        return len(through)

    def _fits(self, group: _Group, node: cst.Subscript) -> bool:
        """Whether torch and numpy do the same with this access."""
        code, made = self.code, group.made
        parts = _parts(node)
        if any(not isinstance(one.slice, cst.Index) or one.slice.star for one in parts):
            return False
        indices = [one.slice.value for one in parts if isinstance(one.slice, cst.Index)]
        if any(_is_no_number(one) for one in indices) or not self._are_told(indices):
            return False
        inner = [one.slice.value for one in _parts(node.value) if isinstance(one.slice, cst.Index)]
        if any(bits(code, one) is None for one in inner):
            return False  # of a part that is no view the write would be lost, or not
        if made is None or self._read(node) is not None:
            return self._read(node) is not None
        above = code.parents[node]
        if isinstance(above, cst.AugAssign):
            return (
                isinstance(above.operator, cst.AddAssign | cst.SubtractAssign)
                and made.type in ("float32", "float64", "int64", "int32")
                and _is_small(above.value, fraction=made.type.startswith("float"))
            )
        if not isinstance(above, cst.AssignTarget):
            return False
        statement = code.parents[above]
        if not isinstance(statement, cst.Assign):
            return False
        told = self._bits(statement.value)
        if made.type == "uint8":
            return isinstance(statement.value, cst.Integer) or told == 1
        if made.type == "float32":
            return told is not None and told <= _MANTISSA
        if made.type == "float64":
            return told is not None
        # what runs puts no text there, and torch has no number for what is not finite
        whole = made.rank is not None and len(parts) == made.rank and made.type == "int64"
        return told is not None or (whole and _is_scalar(statement.value))

    def _are_told(self, indices: Sequence[cst.BaseExpression]) -> bool:
        """Whether indices are numbers: a byte or a bool in a tensor is a mask for torch alone."""
        if all(bits(self.code, one) is not None for one in indices):
            return True
        return len(indices) > 1 and all(
            bits(self.code, one) is not None
            or (isinstance(one, cst.Call) and last_name(one.func) in ("long", "int") and not one.args)
            for one in indices
        )

    def _bits(self, value: cst.BaseExpression) -> int | None:
        """Bits of a value; what is read of a tensor of floats is one."""
        told = bits(self.code, value)
        read = (
            value.func.value
            if isinstance(value, cst.Call) and isinstance(value.func, cst.Attribute)
            else None
        )
        if told is None or told <= _MANTISSA or not isinstance(read, cst.Subscript):
            return told
        base = _base(read)
        group = self._made_group(read, base) if base is not None else None
        made = group.made if group is not None else None
        return FLOAT if made is not None and made.type.startswith("float") else told

    def _why_none(self, group: _Group) -> Cannot:
        code = self.code
        node = group.found[0]
        statement = code.parents.get(code.parents.get(node, node), node)
        if isinstance(statement, cst.Assign) and group.made is not None:
            shown, told = " ".join(code.source(statement.value).split()), self._bits(statement.value)
            if told is None:
                floats = group.made.type.startswith("float")
                lost = ": of a tensor the gradient would be lost" if floats else ""
                return self._cannot(f"whether {shown} is a plain number cannot be told{lost}", node)
            if told > _MANTISSA and group.made.type == "float32":
                words = f"whether {shown} is a float cannot be told: large integers round otherwise"
                return self._cannot(words, node, f"write float({shown}) where it is no large integer")
        return self._cannot(f"torch and numpy may differ in {code.source(node)}", node)

    def _require_no_other_name(self, group: _Group) -> None:
        """Raises Cannot where the same memory has another name in the function that is written to."""
        for assign in self.code.nodes(cst.Assign, self.scope):
            seen = viewed(self.code, assign.value)
            for target in assign.targets:
                name = target.target
                if not isinstance(name, cst.Name) or seen is None:
                    continue
                other = last_name(seen) if name.value == group.name else name.value
                if group.name not in (name.value, last_name(seen)) or other == group.name:
                    continue
                for node in self._references(other):
                    above = self.code.parents.get(node)
                    changed = isinstance(above, cst.Subscript) and _is_stored(self.code, above)
                    inner = isinstance(above, cst.Attribute) and above.attr.value.endswith("_")
                    if changed or inner:
                        raise self._cannot(f"{other}, the same memory, is changed", node)

    def _make_on_the_cpu(self, group: _Group, device: cst.Arg) -> None:
        """``device=`` left out of the making, and the whole copied there behind the last loop."""
        code = self.code
        if group.made is not None and last_name(group.made.call.func).startswith("rand"):
            raise self._cannot("numbers are drawn on the device", group.first)
        root = device.value
        while isinstance(root, cst.Attribute):
            root = root.value
        if not isinstance(root, cst.Name):
            raise self._cannot(f"device={code.source(device.value)} would be computed again", group.first)
        if isinstance(device.value, cst.Name):
            for one in code.assignments(root, root.value):
                if isinstance(one.node, cst.Param) and one.node.default is not None:
                    raise self._cannot(f"device={root.value} may be None", group.first)
        begin, end = code.end(group.first), code.end(group.block[-1])
        for one in code.assignments(root, root.value):
            if begin <= code.begin(one.node) < end:
                raise self._cannot(f"{root.value} is bound anew before the last element is written", one.node)
        leaves: list[cst.CSTNode] = [
            *code.nodes(cst.Return, self.scope), *code.nodes(cst.Break, self.scope),
            *code.nodes(cst.Continue, self.scope), *code.nodes(cst.Yield, self.scope),
        ]  # fmt: skip
        for node in leaves:
            if begin <= code.begin(node) < end and not self._is_inner(node, begin):
                raise self._cannot("the loop is left here before the whole tensor is made", node)
        call = group.made.call if group.made is not None else None
        assert call is not None
        at = list(call.args).index(device)
        before, start = code.span(call.args[at - 1].value)[1] if at else 0, code.span(device.value)[1]
        between = code.text.text[before:start]
        if not at or at != len(call.args) - 1 or "#" in between or ")" in between or "(" in between:
            raise self._cannot("device= is not the last argument", call, write=_BY_HAND)
        self.plan.rewrite(code, before, start, "", f"device={code.source(device.value)} left out")
        back = f"{group.name} = {group.name}.to({code.source(device.value)})"
        layout.behind(self.plan, code, group.block[-1], [back])

    def _is_inner(self, node: cst.CSTNode, begin: tuple[int, int]) -> bool:
        if not isinstance(node, cst.Break | cst.Continue):
            return False
        loop = next(self._loops(node), None)
        return loop is not None and self.code.begin(loop) >= begin

    def _fresh(self, name: str) -> str:
        for tried in (
            f"{name}_np",
            f"{name}_array",
            f"{name}_view",
            *(f"{name}_np{n}" for n in range(2, 99)),
        ):
            if tried not in self.taken:
                self.taken.add(tried)
                return tried
        raise AssertionError(name)


def _compiles(code: Code, one: cst.Decorator) -> bool:
    """``@torch.compile``, ``@torch.compile(...)``, ``@partial(torch.compile, ...)``"""
    named = [one.decorator]
    if isinstance(one.decorator, cst.Call):
        named = [one.decorator.func, *(arg.value for arg in one.decorator.args)]
    return any(code.qualified(each) in _COMPILES for each in named)


def _is_the_same(code: Code, bound: cst.CSTNode, name: str) -> bool:
    """``points = points.to(device)``"""
    value = value_of(code, bound)
    return (
        isinstance(value, cst.Call)
        and isinstance(value.func, cst.Attribute)
        and value.func.attr.value in _SAME
        and isinstance(value.func.value, cst.Name)
        and value.func.value.value == name
        and not any(code.qualified(arg.value).startswith("torch.") for arg in value.args)
    )


def _is_stored(code: Code, node: cst.CSTNode) -> bool:
    above = code.parents.get(node)
    if isinstance(above, cst.AugAssign):
        return above.target is node
    if isinstance(above, cst.Element):
        outer = code.parents.get(above)
        return isinstance(outer, cst.Tuple | cst.List) and isinstance(
            code.parents.get(outer), cst.AssignTarget | cst.For
        )
    return isinstance(above, cst.AssignTarget | cst.Del | cst.AnnAssign)


def _base(node: cst.BaseExpression) -> cst.Name | None:
    """The variable of ``x[i, j]`` and ``x[i][j]``."""
    while isinstance(node, cst.Subscript):
        node = node.value
    return node if isinstance(node, cst.Name) else None


def _top(code: Code, node: cst.BaseExpression) -> cst.CSTNode:
    """``x[i][j]`` of its ``x``."""
    top: cst.CSTNode = node
    while isinstance(above := code.parents.get(top), cst.Subscript) and above.value is top:
        top = above
    return top


def _parts(node: cst.BaseExpression) -> list[cst.SubscriptElement]:
    """The indices of ``x[i, j]`` and ``x[i][j]``, in their order."""
    if not isinstance(node, cst.Subscript):
        return []
    return [*_parts(node.value), *node.slice]


def _is_no_number(index: cst.BaseExpression) -> bool:
    """Whether an index asks for more than an element: ``...``, ``None``, a list, a condition."""
    if isinstance(index, cst.Name):
        return index.value in ("None", "True", "False")
    return isinstance(
        index,
        cst.Ellipsis | cst.List | cst.Tuple | cst.Comparison | cst.BooleanOperation | cst.SimpleString,
    )


def _is_scalar(value: cst.BaseExpression) -> bool:
    """Whether a value is not plainly more than one number."""
    return not isinstance(value, cst.List | cst.Tuple | cst.ListComp | cst.GeneratorExp | cst.Dict)


def _is_small(value: cst.BaseExpression, *, fraction: bool) -> bool:
    """Whether a number is a whole literal that every type holds: its sums round the same everywhere."""
    if isinstance(value, cst.Float):
        number = float(value.evaluated_value)
        return fraction and number.is_integer() and number < 1 << _ADDED
    return isinstance(value, cst.Integer) and int(value.evaluated_value) < 1 << _ADDED


def _rank(code: Code, call: cst.Call, whole: str) -> int | None:
    sizes = [arg for arg in call.args if arg.keyword is None]
    if any(arg.star for arg in sizes) or not sizes:
        return None
    first = sizes[0].value
    if isinstance(first, cst.Tuple | cst.List):
        return (
            None
            if any(isinstance(one, cst.StarredElement) for one in first.elements)
            else len(first.elements)
        )
    if whole == "torch.full":
        return None
    return len(sizes) if len(sizes) > 1 or bits(code, first) is not None else None
