"""What a dataset holds as attributes: who else reads it, and whether anything changes it once it is built."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final, Literal

import libcst as cst

from hotloop.remedy.source.aliases import READ_ONLY, is_of_self, shared, values_of, viewed, views_of
from hotloop.remedy.source.code import Code, Function, argument, last_name
from hotloop.remedy.source.scene import Cannot
from hotloop.remedy.source.values import CHANGES, parameters_of, position_of, text_of, value_of

#: Of an attribute: only its length or shape is asked for; its values are read; it may be changed by this.
Use = Literal["measured", "read", "changed"]

_DATASET: Final = frozenset(["torch.utils.data.Dataset", "torch.utils.data.dataset.Dataset", "object"])
_SHAPES: Final = frozenset(["shape", "ndim", "size"])
#: Methods that change what they are called on, beside those whose name ends with an underscore.
_CHANGE: Final = CHANGES | {
    "resize", "partition", "setfield", "byteswap", "setflags", "fit", "partial_fit", "fit_transform",
    "set_params", "set_output", "set_",
}  # fmt: skip
#: Functions that change what they are given.
CHANGE_ARGUMENT: Final = frozenset([
    "shuffle", "copyto", "put", "place", "putmask", "fill_diagonal", "put_along_axis", "heapify", "setattr",
    "delattr",
])  # fmt: skip
#: Functions that write what they are given first into a file.
_STORE: Final = frozenset(["dump", "dumps", "save"])
_FITS: Final = frozenset(["fit", "partial_fit", "fit_transform", "set_params"])
#: Modules whose objects fit models, and no scaler.
_TRAINERS: Final = ("lightning.", "pytorch_lightning.", "transformers.", "accelerate.", "fastai.", "skorch.")


@dataclass(frozen=True, kw_only=True)
class Held:
    """The attributes of a dataset's class, among all files of the user's that were loaded."""

    codes: Sequence[Code]
    code: Code
    owner: cst.ClassDef

    @cached_property
    def init(self) -> Function:
        """The constructor, which must run to its end. Raises Cannot where it cannot be told what it does."""
        name = self.owner.name.value
        line = self.code.line(self.owner)
        bases = [one.value for one in self.owner.bases]
        plain = [one.value if isinstance(one, cst.Subscript) else one for one in bases]
        if self.owner.decorators or any(
            self.code.qualified(one) not in _DATASET for one in plain if not _is_object(one)
        ):
            raise Cannot(f"{name} is built by more than its own __init__", str(self.code.path), line)
        for other in self.codes:
            for one in other.nodes(cst.ClassDef):
                if any(last_name(base.value) == name for base in one.bases):
                    words = f"{one.name.value} is built upon {name}"
                    raise Cannot(words, str(other.path), other.line(one))
        found = [one for one in self.owner.body.body if isinstance(one, cst.FunctionDef)]
        inits = [one for one in found if one.name.value == "__init__"]
        hooks = [
            one
            for one in found
            if one.name.value in ("__new__", "__setattr__", "__getattribute__", "__setstate__")
        ]
        if len(inits) != 1 or hooks:
            raise Cannot(f"{name} has no __init__ that says all", str(self.code.path), line)
        returns = [
            one for one in self.code.nodes(cst.Return, inits[0]) if self.code.function_of(one) is inits[0]
        ]
        if returns:
            words = "__init__ may return before its end"
            raise Cannot(words, str(self.code.path), self.code.line(returns[0]))
        return inits[0]

    @cached_property
    def built(self) -> list[tuple[Code, cst.Call]]:
        """The calls that build one."""
        name = self.owner.name.value
        return [
            (code, call)
            for code in self.codes
            for call in code.nodes(cst.Call)
            if last_name(call.func) == name
        ]

    def _stored(self) -> Iterator[tuple[Code, cst.Call]]:
        """Calls that store one in a file: what is loaded from there went through no constructor."""
        for code, call in self.built:
            above = code.parents.get(call)
            targets = above.targets if isinstance(above, cst.Assign) else ()
            names = {last_name(one.target) for one in targets}
            for other in code.nodes(cst.Call):
                if last_name(other.func) in _STORE and other.args:
                    given = other.args[0].value
                    if given is call or last_name(given) in names:
                        yield code, other

    def uses(
        self, name: str, apart: Collection[cst.CSTNode] = ()
    ) -> Iterator[tuple[Code, cst.Attribute, Use]]:
        """What may use an attribute of this name behind the constructor, but for the nodes ``apart``.

        Raises Cannot where that is hidden.
        """
        for code in self.codes:
            for text in code.nodes(cst.SimpleString):
                call = code.above(text, cst.Call)
                if (
                    text_of(text) == name
                    and call is not None
                    and last_name(call.func) in ("getattr", "setattr", "delattr")
                ):
                    raise Cannot(f"{name} is used by its name", str(code.path), code.line(text))
            for node in code.nodes(cst.Attribute):
                named = node.attr.value == name and node not in apart
                if named and not self._is_anothers(code, node) and not self._in_init(code, node):
                    yield code, node, self._use(code, node)

    def require_unchanged(self, names: Iterable[str], apart: Collection[cst.CSTNode] = ()) -> None:
        """Raises Cannot where what these attributes hold may be changed once the constructor has ended."""
        _ = self.init
        if not self.built:
            words = f"no call of yours builds {self.owner.name.value}"
            raise Cannot(words, str(self.code.path), self.code.line(self.owner))
        for code, call in self._stored():
            words = f"a {self.owner.name.value} that is stored here may be loaded as it was"
            raise Cannot(words, str(code.path), code.line(call))
        for word in self.code.nodes(cst.Name, self.owner):
            if word.value in ("vars", "setattr", "__dict__"):
                raise Cannot("its attributes are reached by name", str(self.code.path), self.code.line(word))
        for name in names:
            for code, node, use in self.uses(name, apart):
                if use == "changed":
                    words = f"{name} may be changed here"
                    raise Cannot(words, str(code.path), code.line(node))
            for other in sorted(self._twins(name)):
                for code, node, use in self.uses(other, apart):
                    if use == "changed":
                        words = f"{other}, which holds what {name} does, may be changed here"
                        raise Cannot(words, str(code.path), code.line(node))
            for alias in sorted(self._handed_on(self._aliases(name))):
                self._require_alias_unchanged(name, alias)

    def require_fitted(self) -> None:
        """Raises Cannot where a scaler may be fitted once the dataset is built."""
        for code in self.codes:
            for call in code.nodes(cst.Call):
                if last_name(call.func) in _FITS and not self._fits_before(code, call):
                    shown = " ".join(code.source(call.func).split())
                    words = f"{shown}() may fit the scaler once the dataset is built"
                    raise Cannot(words, str(code.path), code.line(call))
            for told in code.names():
                if told.value in ("set_output", "transform_output"):
                    raise Cannot("scalers are told to give no arrays", str(code.path), code.line(told))

    # -- who it is ---------------------------------------------------------------------------------------

    def _is_anothers(self, code: Code, node: cst.Attribute) -> bool:
        """Whether it is ``self.NAME`` of another class, or part of the name of what is imported."""
        if code.qualified(node) or any(code.above(node, kind) for kind in (cst.Import, cst.ImportFrom)):
            return True
        inside = code.above(node, cst.ClassDef)
        return last_name(node.value) == "self" and inside is not None and inside is not self.owner

    def _in_init(self, code: Code, node: cst.CSTNode) -> bool:
        """Whether it runs within the constructor, and not later as a function that was made there."""
        if code is not self.code or code.function_of(node) is not self.init:
            return False
        later = code.above(node, cst.Lambda)
        return later is None or not code.holds(self.init, later)

    def _aliases(self, name: str, seen: frozenset[str] = frozenset()) -> set[str]:
        """Names of variables that may hold the same object, or one that shares its memory. Raises Cannot."""
        found: set[str] = set()
        for node in self.code.nodes(cst.Attribute, self.init):
            if node.attr.value != name or not _is_name(node.value, "self"):
                continue
            above = self.code.parents.get(node)
            if isinstance(above, cst.AssignTarget | cst.Element | cst.AnnAssign) and _is_stored(
                self.code, node
            ):
                value = value_of(self.code, node)
                if value is None:
                    words = f"what {name} holds cannot be told"
                    raise Cannot(words, str(self.code.path), self.code.line(node))
                found |= shared(self.code, value)
                for inner in self.code.nodes(cst.Attribute, value):
                    other = inner.attr.value
                    if _is_name(inner.value, "self") and other not in (name, *seen):
                        found |= self._aliases(other, seen | {name})
            elif isinstance(above, cst.Attribute) and above.attr.value in ("append", "extend", "insert"):
                call = self.code.parents.get(above)
                given = call.args if isinstance(call, cst.Call) else ()
                found |= {one for arg in given for one in shared(self.code, arg.value)}
        return self._all_of(found) - {"self"}

    def _all_of(self, names: set[str]) -> set[str]:
        """These names, what they were given, and what the constructor's parameters stand for outside."""
        params = {one.name.value: one for one in parameters_of(self.init)}
        found: set[str] = set()
        left = set(names)
        while left:
            name = left.pop()
            found.add(name)
            new = set(self._values.get(name, ()))
            if name in params:
                new |= {one for code, given in self._arguments(params[name]) for one in shared(code, given)}
            left |= new - found
        return found

    def _twins(self, name: str) -> set[str]:
        """Other attributes that are given the same object in the constructor, or a part of it."""
        found: dict[str, set[str]] = {name: {f"self.{name}"}}
        for node in self.code.nodes(cst.Attribute, self.init):
            if is_of_self(node) and _is_stored(self.code, node):
                value = value_of(self.code, node)
                of = viewed(self.code, value) if value is not None else None
                if of is not None:
                    found.setdefault(node.attr.value, set()).add(self.code.source(of))
        return {other for other, of in found.items() if of & found[name]} - {name}

    def _handed_on(self, names: set[str]) -> set[str]:
        """These names, and those that all or a part of it has once a dataset is built: views, parameters."""
        found = set(names)
        while (
            new := {
                to
                for given, to in (*self._views, *self._parameters)
                if isinstance(given, cst.Name) and given.value in found
            }
            - found
        ):
            found |= new
        return found - {"self"}

    @cached_property
    def _views(self) -> list[tuple[cst.BaseExpression, str]]:
        return list(views_of(self.codes))

    @cached_property
    def _parameters(self) -> list[tuple[cst.BaseExpression, str]]:
        """What the user's functions are given once a dataset is built, and how they call it."""
        functions: dict[str, list[tuple[Code, Function]]] = {}
        for code in self.codes:
            for one in code.nodes(cst.FunctionDef):
                functions.setdefault(one.name.value, []).append((code, one))
        found: list[tuple[cst.BaseExpression, str]] = []
        for code in self.codes:
            for call in code.nodes(cst.Call):
                for where, function in functions.get(last_name(call.func), ()):
                    for param in parameters_of(function):
                        place = position_of(where, function, param, call)
                        if place is not None and place < 0:
                            continue  # the object itself
                        given = argument(call, param.name.value, place)
                        of = viewed(code, given) if given is not None else None
                        if isinstance(of, cst.Name) and not self._before(code, of):
                            found.append((of, param.name.value))
        return found

    @cached_property
    def _values(self) -> dict[str, set[str]]:
        return values_of(self.codes)

    def _arguments(self, param: cst.Param) -> Iterator[tuple[Code, cst.BaseExpression]]:
        """What the constructor is given for a parameter. Raises Cannot."""
        for code, call in self.built:
            place = position_of(self.code, self.init, param, call)
            for at, arg in enumerate(call.args):
                if arg.star:
                    words = f"what is passed by {arg.star} cannot be told"
                    raise Cannot(words, str(code.path), code.line(call))
                named = arg.keyword.value if arg.keyword is not None else None
                if named == param.name.value or (named is None and at == place):
                    yield code, arg.value

    # -- what is done with it ----------------------------------------------------------------------------

    def _use(self, code: Code, node: cst.CSTNode) -> Use:
        top, above = _chain(code, node)
        if isinstance(above, cst.AssignTarget | cst.Del | cst.AsName | cst.AnnAssign | cst.NamedExpr):
            return "changed"
        if _first_key(code, node) in _SHAPES:
            return "measured"
        if isinstance(above, cst.AugAssign | cst.For | cst.CompFor):
            return "changed" if above.target is top else "read"
        if isinstance(above, cst.Element | cst.StarredElement | cst.Return | cst.DictElement | cst.Yield):
            around = code.parents.get(code.parents.get(above, above))
            handed_on = not isinstance(top, cst.Subscript) or isinstance(around, cst.AssignTarget)
            return "changed" if handed_on else "read"
        if isinstance(above, cst.Call) and above.func is top:
            method = last_name(top)
            if top is not node and (
                method in _CHANGE or (method.endswith("_") and not method.endswith("__"))
            ):
                return "changed"
            return "read"
        if isinstance(above, cst.Arg):
            return self._given(code, node, top, above)
        if isinstance(above, cst.Assign):
            return self._named(code, node, top, above)
        return "read"

    def _given(self, code: Code, node: cst.CSTNode, top: cst.CSTNode, arg: cst.Arg) -> Use:
        call = code.parents[arg]
        assert isinstance(call, cst.Call | cst.ClassDef)
        if isinstance(call, cst.ClassDef):
            return "read"
        name, whole = last_name(call.func), code.qualified(call.func)
        builtin = isinstance(call.func, cst.Name) and not code.assignments(call.func, name)
        if name == "len" and builtin:
            return "measured" if top is node else "read"
        if name in CHANGE_ARGUMENT or (arg.keyword is not None and arg.keyword.value == "out"):
            return "changed"
        own = (
            isinstance(call.func, cst.Attribute)
            and last_name(call.func.value) == "self"
            and name == "transform"
        )
        method = isinstance(call.func, cst.Attribute) and not whole
        known = whole.startswith(READ_ONLY) or builtin or name == self.owner.name.value
        reads = method and name in ("transform", "inverse_transform", "join", "format")
        if known or reads or own:
            return "read"
        return (
            "read"
            if isinstance(top, cst.Subscript) and not isinstance(top.slice[0].slice, cst.Slice)
            else "changed"
        )

    def _named(self, code: Code, node: cst.CSTNode, top: cst.CSTNode, above: cst.CSTNode) -> Use:
        """Of what gets a name of its own: whether it is changed by that name."""
        if top is node:
            return "changed"  # all of it is known by another name
        targets = [one.target for one in above.targets] if isinstance(above, cst.Assign) else []
        for target in targets:
            if not isinstance(target, cst.Name) or is_changed(code, target):
                return "changed"
        return "read"

    def _require_alias_unchanged(self, attribute: str, alias: str) -> None:
        for code in self.codes:
            for node in code.nodes(cst.Name):
                above = code.parents.get(node)
                if node.value != alias or (isinstance(above, cst.Attribute) and above.attr is node):
                    continue
                if _in_place(code, node) and not self._before(code, node):
                    words = f"{alias}, which the dataset holds as {attribute}, may be changed here"
                    raise Cannot(words, str(code.path), code.line(node))

    def _before(self, code: Code, node: cst.Name) -> bool:
        """Whether it is done before a dataset is built, or to something else."""
        inside = code.function_of(node)
        if self._in_init(code, node):
            return True
        if any(code.function_of(call) is inside for other, call in self.built if other is code):
            return self._precedes(code, node)
        bound = [one.node for one in code.assignments(node, node.value)]
        return (
            bool(bound)
            and not any(isinstance(one, cst.Param) for one in bound)
            and all(
                code.function_of(one) is inside and not isinstance(one, cst.Import | cst.ImportFrom)
                for one in bound
            )
        )

    def _precedes(self, code: Code, node: cst.CSTNode) -> bool:
        """Whether it stands before all that builds a dataset in the same function, and in no loop with it."""
        inside = code.function_of(node)
        mine = [call for other, call in self.built if other is code and code.function_of(call) is inside]
        loops: list[cst.CSTNode] = []
        for kind in (cst.For, cst.While):
            loop: cst.CSTNode | None = code.above(node, kind)
            while loop is not None:
                loops.append(loop)
                loop = code.above(loop, kind)
        return all(
            code.begin(node) < code.begin(call) and not any(code.holds(loop, call) for loop in loops)
            for call in mine
        )

    def _fits_before(self, code: Code, call: cst.Call) -> bool:
        if not isinstance(call.func, cst.Attribute):
            return False
        if self._in_init(code, call):
            return True
        owner = call.func.value
        if isinstance(owner, cst.Call):  # an object of its own
            return code.qualified(owner.func).startswith(("sklearn.", *_TRAINERS))
        if not isinstance(owner, cst.Name):
            return False
        inside = code.function_of(call)
        bound = code.assignments(owner, owner.value)
        made = [(one.node, _made_by(code, one.node)) for one in bound]
        if not made or any(maker is None or code.function_of(node) is not inside for node, maker in made):
            return False
        names = [code.qualified(maker.func) for _, maker in made if maker is not None]
        if all(name.startswith("sklearn.") for name in names):
            return self._precedes(code, call) and _is_kept(code, owner, made, call)
        return all(name.startswith(_TRAINERS) for name in names)


def _is_name(node: cst.CSTNode, name: str) -> bool:
    return isinstance(node, cst.Name) and node.value == name


def _is_stored(code: Code, node: cst.CSTNode) -> bool:
    """Whether a node is a target of an assignment, by itself or in a tuple of them."""
    above = code.parents.get(node)
    while isinstance(above, cst.Element | cst.Tuple | cst.List):
        node, above = above, code.parents.get(above)
    return isinstance(above, cst.AssignTarget) or (isinstance(above, cst.AnnAssign) and above.target is node)


def _is_object(base: cst.CSTNode) -> bool:
    return isinstance(base, cst.Name) and base.value == "object"


def _chain(code: Code, node: cst.CSTNode) -> tuple[cst.CSTNode, cst.CSTNode | None]:
    """The longest chain of keys and indices that begins with a node, and what is around it."""
    top, above = node, code.parents.get(node)
    while isinstance(above, cst.Subscript | cst.Attribute) and above.value is top:
        top, above = above, code.parents.get(above)
    return top, above


def _first_key(code: Code, node: cst.CSTNode) -> str:
    above = code.parents.get(node)
    return above.attr.value if isinstance(above, cst.Attribute) else ""


def _in_place(code: Code, node: cst.Name) -> bool:
    """Whether this changes what a variable holds, and not only what it is a name of."""
    top, above = _chain(code, node)
    if isinstance(above, cst.AugAssign):
        return above.target is top
    if isinstance(above, cst.AssignTarget | cst.Del):
        return top is not node
    if isinstance(above, cst.Call) and above.func is top and isinstance(top, cst.Attribute):
        method = top.attr.value
        direct = top.value is node or isinstance(top.value, cst.Subscript)
        return (
            direct
            and (method in _CHANGE or (method.endswith("_") and not method.endswith("__")))
            and method not in _FITS
        )
    if isinstance(above, cst.Arg):
        call = code.parents[above]
        given = isinstance(call, cst.Call) and last_name(call.func) in CHANGE_ARGUMENT
        return given or (above.keyword is not None and above.keyword.value == "out")
    return False


def is_changed(code: Code, name: cst.Name) -> bool:
    """Whether what a variable holds is changed in place, within the same function."""
    inside = code.function_of(name)
    same = (one for one in code.nodes(cst.Name, inside) if one.value == name.value)
    return any(code.function_of(one) is inside and _in_place(code, one) for one in same)


def _made_by(code: Code, bound: cst.CSTNode) -> cst.Call | None:
    """The call that a variable was given the result of."""
    target = code.parents.get(bound)
    assign = code.parents.get(target) if isinstance(target, cst.AssignTarget) else None
    return assign.value if isinstance(assign, cst.Assign) and isinstance(assign.value, cst.Call) else None


def _is_kept(
    code: Code, owner: cst.Name, made: Sequence[tuple[cst.CSTNode, cst.Call | None]], call: cst.Call
) -> bool:
    """Whether nothing else was given an object before this call of a method of it."""
    inside = code.function_of(call)
    bound = {node for node, _ in made}
    for other in code.nodes(cst.Name, inside):
        if other.value != owner.value or other in bound or code.function_of(other) is not inside:
            continue
        if code.begin(other) < code.begin(call) and not isinstance(code.parents.get(other), cst.Attribute):
            return False
    return True
