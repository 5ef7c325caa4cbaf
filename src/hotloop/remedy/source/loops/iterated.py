"""What a loop over tensors goes over: whether each comes once, and shares no memory with another."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, Literal

import libcst as cst

from hotloop.remedy.source.code import Code, Function, argument, is_self, last_name, literal
from hotloop.remedy.source.loops.listed import Translator, makes_new
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scene import Cannot
from hotloop.remedy.source.values import bound_to_self, parameters_of, position_of, text_of, value_of

#: Weights and their gradients; buffers, which may be integers; everything, tied weights twice.
Kind = Literal["parameters", "buffers", "state", "names"]

_PARAMETERS: Final = ("parameters", "named_parameters")
_BUFFERS: Final = ("buffers", "named_buffers")
_WRAPS: Final = ("list", "tuple", "reversed", "dict", "OrderedDict")
_PARTS: Final = ("values", "items", "keys")
_GROWS: Final = frozenset(["append", "extend", "insert", "update", "setdefault"])
#: What lists of tensors are called.
_OF_TENSORS: Final = re.compile(
    r"param|grad|weight|shadow|buffer|state|tensor|ema|model|moment|veloc|average|target|source", re.I
)
_DEPTH: Final = 6
_WHERE: Final = "the same tensor may come twice"


class Iterated:
    """The iterable of one loop. Raises Cannot where what is changed may come twice."""

    def __init__(self, plan: Plan, code: Code, loop: cst.For) -> None:
        self._plan, self._code, self._loop = plan, code, loop
        self.kinds: set[Kind] = set()

    def require(self, written: set[str], reader: Translator) -> None:
        """Look at what the changed names go over, and at the rest as far as it must be tensors."""
        self._require_own_methods()
        over: list[tuple[cst.BaseExpression, bool]] = []
        for target, iterable in self._pairs(self._loop.target, self._loop.iter):
            names = {one.value for one in self._code.nodes(cst.Name, target)}
            over.append((iterable, bool(names & written)))
            if names & written:
                self._distinct(self._code, iterable, _DEPTH)
            elif not _OF_TENSORS.search(self._flat(iterable)):
                raise Cannot(
                    f"whether {self._flat(iterable)} holds tensors is not known",
                    str(self._code.path),
                    self._code.line(iterable),
                )
        for name in sorted(reader.changed):
            held = reader.held[name]
            if not reader.holds_new(held) or self._grows(self._code, last_name(held)):
                self._distinct(self._code, reader.held[name], _DEPTH)
        over += [(held, name in reader.changed) for name, held in reader.held.items()]
        self._require_other_tensors(over)
        owners = [self._flat(one) for one in self._owners(self._loop.iter)]
        for one in owners:
            if any(other != one and other.startswith(f"{one}.") for other in owners):
                raise self._cannot(self._loop, f"what {one} has is part of the other: {_WHERE}")
        self._require_apart()

    def _require_other_tensors(self, over: Sequence[tuple[cst.BaseExpression, bool]]) -> None:
        """Raises Cannot where a round may read what another one changes: ``zip(params, params[1:])``."""
        for at, (one, changed) in enumerate(over):
            for other, changed_too in over[:at]:
                texts = {re.sub(r"\.(keys|items|values)\(\)$", "", self._flat(node)) for node in (one, other)}
                if not (changed or changed_too) or len(texts) == 1:
                    continue
                first, second = (self._origins(self._code, node, _DEPTH) for node in (one, other))
                new = (changed and first == set()) or (changed_too and second == set())
                if first is None or second is None:
                    shared = not new or bool(self._names(one) & self._names(other))
                else:
                    shared = bool(first & second)
                if shared:
                    both = f"{self._flat(one)} and {self._flat(other)}"
                    words = f"whether {both} have tensors in common is not known"
                    raise self._cannot(one, words)

    def _names(self, node: cst.CSTNode) -> set[str]:
        return {one.value for one in self._code.nodes(cst.Name, node)} - {"self"}

    def _origins(self, code: Code, node: cst.BaseExpression, depth: int) -> set[str] | None:
        """Whose tensors an iterable has, none for new ones; None where that is not known."""
        if depth == 0:
            return None
        values: list[cst.BaseExpression] = []
        if isinstance(node, cst.Call):
            name = last_name(node.func)
            of = node.func.value if isinstance(node.func, cst.Attribute) else None
            if of is not None and name in (*_PARAMETERS, *_BUFFERS, "state_dict"):
                return {"".join(code.source(of).split())}
            if of is not None and name in _PARTS:
                values = [of]
            elif name == "deepcopy":
                return set()
            elif of is None and name in (*_WRAPS, "filter") and node.args:
                values = [node.args[-1].value]
        elif isinstance(node, cst.ListComp | cst.GeneratorExp | cst.DictComp):
            one = node.value if isinstance(node, cst.DictComp) else node.elt
            new = makes_new(one) or (isinstance(one, cst.Attribute) and one.attr.value == "grad")
            if new:
                return set()
            values = [node.for_in.iter]
        elif isinstance(node, cst.Subscript):
            index = node.slice[0].slice
            return {"params"} if isinstance(index, cst.Index) and text_of(index.value) == "params" else None
        elif isinstance(node, cst.Name):
            bound = code.assignments(node, node.value)
            if any(isinstance(one, cst.Param) for b in bound for one in (b.node, code.parents.get(b.node))):
                return {node.value}
            values = [value for one in bound if (value := value_of(code, one.node)) is not None]
            if len(values) < len(bound):
                return None
        elif isinstance(node, cst.Attribute) and is_self(node.value):
            owner = code.above(node, cst.ClassDef)
            values = list(bound_to_self(code, owner, node.attr.value)) if owner is not None else []
        found: set[str] = set()
        for value in values:
            if isinstance(value, cst.Dict | cst.List) and not value.elements:
                continue  # filled by stores
            origins = self._origins(code, value, depth - 1)
            if origins is None:
                return None
            found |= origins
        return found if values else None

    def require_own_gradients(self) -> None:
        """Raises Cannot where gradients are set to tensors that several parameters may be given."""
        for code in self._plan.scene.codes("grad"):
            for assign in code.nodes(cst.Assign):
                value = assign.value
                own = makes_new(value) or isinstance(value, cst.BinaryOperation) or literal(value)
                targets = [one.target for one in assign.targets if isinstance(one.target, cst.Attribute)]
                if not own and any(one.attr.value == "grad" for one in targets):
                    words = "gradients are set to tensors that may be one"
                    raise Cannot(words, str(code.path), code.line(assign))

    def _pairs(
        self, target: cst.BaseExpression, iterable: cst.BaseExpression
    ) -> Iterator[tuple[cst.BaseExpression, cst.BaseExpression]]:
        """Each part of a target with what it goes over, through ``zip`` and ``enumerate``."""
        name = last_name(iterable.func) if isinstance(iterable, cst.Call) else ""
        parts = [one.value for one in target.elements] if isinstance(target, cst.Tuple | cst.List) else []
        if isinstance(iterable, cst.Call) and name in ("zip", "enumerate") and parts:
            given = [arg.value for arg in iterable.args if arg.keyword is None]
            if any(arg.star for arg in iterable.args):
                raise self._cannot(iterable, "what * hands over is not known")
            strict = argument(iterable, "strict")
            if strict is not None and self._flat(strict) != "False":
                raise self._cannot(iterable, "where the lists are not as long, the first are changed")
            if name == "enumerate":
                yield from self._pairs(parts[1], given[0])
                return
            for part, one in zip(parts, given, strict=False):
                yield from self._pairs(part, one)
            return
        yield target, iterable

    def _distinct(self, code: Code, node: cst.BaseExpression, depth: int) -> None:
        """Raises Cannot unless every tensor of an iterable comes once."""
        if depth == 0:
            raise self._unknown(code, node)
        if isinstance(node, cst.Call):
            self._of_call(code, node, depth)
        elif isinstance(node, cst.Subscript):
            index = node.slice[0].slice
            if len(node.slice) != 1 or not isinstance(index, cst.Index) or text_of(index.value) != "params":
                raise self._unknown(code, node)
            self._of_group(code, node.value, depth - 1)
            self.kinds.add("parameters")
        elif isinstance(node, cst.ListComp | cst.GeneratorExp | cst.DictComp):
            self._of_comprehension(code, node, depth)
        elif isinstance(node, cst.Name):
            self._of_name(code, node, depth)
        elif isinstance(node, cst.Attribute) and is_self(node.value):
            self._of_attribute(code, node, depth)
        else:
            raise self._unknown(code, node)

    def _of_call(self, code: Code, call: cst.Call, depth: int) -> None:
        name = last_name(call.func)
        of = call.func.value if isinstance(call.func, cst.Attribute) else None
        if of is not None and name in (*_PARAMETERS, *_BUFFERS):
            if argument(call, "remove_duplicate") is not None:
                raise self._unknown(code, call)
            self.kinds.add("parameters" if name in _PARAMETERS else "buffers")
        elif of is not None and name == "state_dict":
            self._require_untied(code, call)
            self.kinds.add("state")
        elif of is not None and name in _PARTS and not call.args:
            self._distinct(code, of, depth - 1)
        elif call.args and (name == "deepcopy" or (of is None and name in _WRAPS)):
            self._distinct(code, call.args[0].value, depth - 1)
        elif of is None and name == "filter" and len(call.args) == 2:
            chosen = call.args[0].value
            asked = code.source(chosen.body) if isinstance(chosen, cst.Lambda) else "?"
            if not asked.endswith(".requires_grad"):
                raise self._unknown(code, call)
            self._distinct(code, call.args[1].value, depth - 1)
        else:
            raise self._unknown(code, call)

    def _of_comprehension(
        self, code: Code, node: cst.ListComp | cst.GeneratorExp | cst.DictComp, depth: int
    ) -> None:
        one = node.value if isinstance(node, cst.DictComp) else node.elt
        if node.for_in.inner_for_in is not None:
            raise self._unknown(code, node)
        if makes_new(one):
            try:
                self._distinct(code, node.for_in.iter, depth - 1)
            except Cannot:
                if re.search("buffer|state", code.source(node.for_in.iter)):  # may be integers
                    self.kinds.add("state")
            return
        made = {last_name(call.func) for call in code.nodes(cst.Call, one)}
        while isinstance(one, cst.Call | cst.Attribute):
            if isinstance(one, cst.Attribute) and one.attr.value not in ("data", "grad"):
                raise self._unknown(code, node)
            one = one.func.value if isinstance(one, cst.Call) and isinstance(one.func, cst.Attribute) else (
                one.value if isinstance(one, cst.Attribute) else cst.Name("")
            )  # fmt: skip
        names = {name.value for name in code.nodes(cst.Name, node.for_in.target)}
        if not isinstance(one, cst.Name) or one.value not in names or made - {"detach"}:
            raise self._unknown(code, node)
        self._distinct(code, node.for_in.iter, depth - 1)

    def _of_name(self, code: Code, node: cst.Name, depth: int) -> None:
        if self._grows(code, node.value):
            raise self._unknown(code, node)
        for where, value in self._values(code, node):
            self._distinct(where, value, depth - 1)

    def _of_group(self, code: Code, node: cst.BaseExpression, depth: int) -> None:
        """A group of an optimizer: torch lets a parameter be in one group only, but there twice."""
        loop = next((one for one in self._bound(code, node) if isinstance(one, cst.For)), None)
        groups = loop.iter if loop is not None else node.value if isinstance(node, cst.Subscript) else None
        if not isinstance(groups, cst.Attribute) or groups.attr.value != "param_groups":
            raise self._unknown(code, node)
        for other in self._plan.scene.codes("params"):
            for store in other.nodes(cst.AssignTarget):
                by = store.target.slice[0].slice if isinstance(store.target, cst.Subscript) else None
                if isinstance(by, cst.Index) and text_of(by.value) == "params":
                    raise self._unknown(other, store)
        for other in self._plan.scene.codes("add_param_group"):
            raise self._unknown(other, next(one for one in other.names() if one.value == "add_param_group"))
        self._of_optimizer(code, groups.value, depth)

    def _bound(self, code: Code, node: cst.BaseExpression) -> list[cst.CSTNode | None]:
        """What binds a name, where it is bound once."""
        bound = code.assignments(node, node.value) if isinstance(node, cst.Name) else []
        return [code.parents.get(bound[0].node)] if len(bound) == 1 else []

    def _of_optimizer(self, code: Code, node: cst.BaseExpression, depth: int) -> None:
        """What every optimizer that an expression may be was given."""
        owner = code.above(node, cst.ClassDef)
        made: list[tuple[Code, cst.BaseExpression]] = []
        if is_self(node) and owner is not None:
            made_by = [one for one in code.nodes(cst.FunctionDef, owner) if one.name.value == "__init__"]
            if len(made_by) != 1 or len(parameters_of(made_by[0])) < 2:
                raise self._unknown(code, node)
            given = list(self._arguments(code, made_by[0], parameters_of(made_by[0])[1]))
        else:
            given = []
            if isinstance(node, cst.Call):
                made = [(code, node)]
            elif isinstance(node, cst.Attribute) and is_self(node.value) and owner is not None:
                made = [(code, one) for one in bound_to_self(code, owner, node.attr.value)]
            elif isinstance(node, cst.Name):
                made = list(self._values(code, node))
        if depth == 0 or not (made or given):
            raise self._unknown(code, node)
        for other, one in made:
            if not isinstance(one, cst.Call):
                self._of_optimizer(other, one, depth - 1)
                continue
            params = argument(one, "params", 0)
            if params is None:
                raise self._unknown(other, one)
            given.append((other, params))
        for other, params in given:
            self._given_groups(other, params, depth - 1)

    def _given_groups(self, code: Code, given: cst.BaseExpression, depth: int) -> None:
        if depth == 0:
            raise self._unknown(code, given)
        for one in [given] if not isinstance(given, cst.List) else [part.value for part in given.elements]:
            if isinstance(one, cst.Dict):
                for part in one.elements:
                    if not isinstance(part, cst.DictElement):
                        raise self._unknown(code, one)
                    if text_of(part.key) == "params":
                        self._distinct(code, part.value, depth)
            elif one is not given or isinstance(given, cst.List):
                raise self._unknown(code, one)
            elif isinstance(one, cst.Name) and not self._grows(code, one.value):
                for other, value in self._values(code, one):
                    self._given_groups(other, value, depth - 1)
            else:
                self._distinct(code, one, depth)

    def _values(self, code: Code, node: cst.Name) -> Iterator[tuple[Code, cst.BaseExpression]]:
        """Everything a name is given, by the calls of its function too."""
        bound = code.assignments(node, node.value)
        if not bound:
            raise self._unknown(code, node)
        for one in bound:
            above = code.parents.get(one.node)
            param = one.node if isinstance(one.node, cst.Param) else above
            if isinstance(param, cst.Param):
                function = code.function_of(param)
                given = list(self._arguments(code, function, param)) if function is not None else []
                if not given:
                    raise self._unknown(code, param)
                yield from given
                continue
            value = value_of(code, one.node)
            if value is None:
                raise self._unknown(code, node)
            yield code, value

    def _arguments(
        self, code: Code, function: Function, param: cst.Param
    ) -> Iterator[tuple[Code, cst.BaseExpression]]:
        """What every call gives a parameter. Raises Cannot where a function is more than called."""
        name = function.name.value
        owner = code.above(function, cst.ClassDef) if name == "__init__" else None
        called = owner.name.value if owner is not None else name
        if param not in parameters_of(function):
            raise self._unknown(code, param)
        for other in self._plan.scene.codes(called):
            for use in other.nodes(cst.Name):
                above = other.parents[use]
                if use.value != called or isinstance(above, cst.FunctionDef | cst.ClassDef | cst.ImportAlias):
                    continue
                whole = above if isinstance(above, cst.Attribute) and above.attr is use else use
                call = other.parents[whole]
                if not isinstance(call, cst.Call) or call.func is not whole:
                    raise self._unknown(other, use)
                at = position_of(code, function, param, call)
                value = argument(call, param.name.value, at)
                if value is None:
                    raise self._unknown(other, call)
                yield other, value

    def _of_attribute(self, code: Code, node: cst.Attribute, depth: int) -> None:
        owner = code.above(node, cst.ClassDef)
        if owner is None or self._grows(code, node.attr.value):
            raise self._unknown(code, node)
        values = list(bound_to_self(code, owner, node.attr.value))
        if not values:
            raise self._unknown(code, node)
        for value in values:
            self._distinct(code, value, depth - 1)

    def _grows(self, code: Code, name: str) -> bool:
        """Whether something is put into a list of that name, or added to it."""
        for call in code.nodes(cst.Call):
            of = call.func.value if isinstance(call.func, cst.Attribute) else None
            if of is not None and last_name(call.func) in _GROWS and last_name(of) == name:
                return True
        if any(last_name(one.target) == name for one in code.nodes(cst.AugAssign)):
            return True
        return any(
            isinstance(one.target, cst.Subscript)
            and last_name(one.target.value) == name
            and not (makes_new(assign.value) or isinstance(assign.value, cst.BinaryOperation))
            for assign in code.nodes(cst.Assign)
            for one in assign.targets
        )

    # -- what the run says -------------------------------------------------------------------------------

    def _require_apart(self) -> None:
        notes = self._plan.scene.process.notes.get("module", ())
        if any(note.get("overlapping") for note in notes):
            words = "the run had parameters that lie in each other's memory: their order counts"
            raise self._cannot(self._loop, words)

    def _require_untied(self, code: Code, node: cst.CSTNode) -> None:
        notes = self._plan.scene.process.notes.get("module", ())
        if not notes or any(note.get("tied", True) for note in notes):
            words = "a state_dict() has tied weights under each of their names, and is changed twice there"
            raise Cannot(words, str(code.path), code.line(node), write="go over parameters() and buffers()")
        for other in self._plan.scene.codes(""):
            for assign in other.nodes(cst.Assign):
                if any(_ties(one.target, assign.value) for one in assign.targets):
                    words = "a state_dict() has what is tied here under each of its names"
                    raise Cannot(words, str(other.path), other.line(assign))

    def _require_own_methods(self) -> None:
        """Raises Cannot where ``parameters()`` is a method of the user's, which may give anything."""
        for name in _PARAMETERS:
            for code in self._plan.scene.codes(name):
                for function in code.nodes(cst.FunctionDef):
                    if function.name.value == name:
                        words = f"{name}() is written here: {_WHERE}"
                        raise Cannot(words, str(code.path), code.line(function))

    def _owners(self, node: cst.BaseExpression) -> Sequence[cst.BaseExpression]:
        return [
            call.func.value
            for call in self._code.nodes(cst.Call, node)
            if last_name(call.func) in (*_PARAMETERS, *_BUFFERS, "state_dict")
            and isinstance(call.func, cst.Attribute)
        ]

    def _flat(self, node: cst.CSTNode) -> str:
        return "".join(self._code.source(node).split())

    def _unknown(self, code: Code, node: cst.CSTNode) -> Cannot:
        text = " ".join(code.source(node).split())
        return Cannot(f"what {text} holds is not known: {_WHERE}", str(code.path), code.line(node))

    def _cannot(self, node: cst.CSTNode, why: str) -> Cannot:
        return Cannot(why, str(self._code.path), self._code.line(node))


def _ties(target: cst.BaseExpression, value: cst.BaseExpression) -> bool:
    """``self.head.weight = self.embedding.weight``, ``self.decoder = self.encoder``."""
    if not isinstance(target, cst.Attribute) or not isinstance(value, cst.Attribute):
        return False
    return value.attr.value in ("weight", "bias") or (is_self(target.value) and is_self(value.value))
