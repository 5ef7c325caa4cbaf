"""What makes a batch, read whole: what it reads of the rest of the script, changes, and draws from."""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from functools import cached_property
from typing import Final

import libcst as cst
import numpy as np

from hotloop.findings import Place
from hotloop.remedy.source import files, hidden
from hotloop.remedy.source.aliases import READ_ONLY, shared, viewed
from hotloop.remedy.source.code import Code, Function, is_member, is_self, last_name
from hotloop.remedy.source.held import CHANGE_ARGUMENT, is_changed
from hotloop.remedy.source.kinds import (
    GENERATORS,
    MEASURES,
    PLAIN_CALLS,
    SEEDS,
    STORES,
    Kind,
    Kinds,
    Maker,
    Variable,
)
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scene import Cannot
from hotloop.remedy.source.values import (
    HOST_DRAWS,
    bound_to_self,
    executes,
    parameters_of,
    position_of,
    text_of,
    value_of,
)

_BY_TORCH: Final = frozenset([
    "normal", "bernoulli", "multinomial", "poisson", "random_", "uniform_", "normal_", "exponential_",
    "bernoulli_", "dropout",
])  # fmt: skip
#: What is not looked into and may do anything.
_BLIND: Final = frozenset(
    ["exec", "eval", "globals", "locals", "vars", "setattr", "delattr", "getattr", "input", "iter"]
)
#: Packages that draw nothing from Python's or numpy's global generator by themselves.
_DRAW_NOTHING: Final = sys.stdlib_module_names | {
    "torch", "numpy", "tqdm", "yaml", "einops", "matplotlib", "tensorboard", "tiktoken", "omegaconf", "rich",
    "psutil", "hotloop",
}  # fmt: skip
#: Built-in functions that change nothing of what they are given.
_CHANGE_NOTHING: Final = PLAIN_CALLS | {
    "list", "tuple", "set", "dict", "sorted", "zip", "enumerate", "map", "filter", "reversed", "isinstance",
    "print", "any", "all", "type", "id", "slice", "bytes", "bytearray", "memoryview", "range",
}  # fmt: skip


class Making:
    """A call of the loop that makes a batch, with every function of the user's that it comes through; or
    (``looped``) that of the generator which the loop goes over.
    """

    def __init__(
        self, plan: Plan, code: Code, loop: cst.CSTNode, call: cst.Call, *, looped: bool = False
    ) -> None:
        self._plan, self._code, self._loop = plan, code, loop
        self.call = call
        self.looped = looped
        self._kinds = Kinds(plan.scene)
        self.handed: cst.Call = call  # the call of the function that makes them
        self.iterated: cst.Name | None = None  # of ``next(iterator)``
        self.owner: cst.Name | None = None  # of ``owner.next_batch()``
        self.built: cst.Call | None = None  # the call that makes that one
        is_next = last_name(call.func) == "next" and len(call.args) == 1
        given = call.args[0].value if is_next else None
        if isinstance(given, cst.Name):
            values = [value_of(code, one.node) for one in code.assignments(given, given.value)]
            if len(values) == 1 and isinstance(values[0], cst.Call):
                self.iterated, self.handed = given, values[0]
        first = (
            self._kinds.function(code, self.handed.func) if is_next == (self.iterated is not None) else None
        )
        self.functions: list[tuple[Code, Maker]] = [first] if first is not None else []
        if first is not None and _yields(*first) != (looped or self.iterated is not None):
            self.functions = []
        if first is None and not is_next and not looped:
            self.functions = self._methods(self.handed.func)
        for where, function in self.functions:
            named: list[cst.CSTNode] = [
                *where.nodes(cst.Name, function),
                *where.nodes(cst.Attribute, function),
            ]
            for node in named:  # also what is not called here, but handed to map
                if isinstance(node, cst.Name) and is_member(where, node):
                    continue
                reached = self._kinds.function(where, node)
                if reached is not None and not any(one is reached[1] for _, one in self.functions):
                    self.functions.append(reached)

    def _methods(self, node: cst.BaseExpression) -> list[tuple[Code, Maker]]:
        """The methods by which an object of the user's makes a batch, its constructor among them."""
        code = self._code
        if not isinstance(node, cst.Attribute) or not isinstance(node.value, cst.Name):
            return []
        bound = [one.node for one in code.assignments(node.value, node.value.value)]
        value = value_of(code, bound[0]) if len(bound) == 1 else None
        found = self._kinds.class_of(code, value) if isinstance(value, cst.Call) else None
        if not isinstance(value, cst.Call) or found is None or found[1].bases or found[1].decorators:
            return []
        own = {one.name.value: one for one in found[1].body.body if isinstance(one, cst.FunctionDef)}
        waiting, methods = ["__init__", node.attr.value], list[Function]()
        while waiting:
            one = own.pop(waiting.pop(), None)
            if one is not None:
                methods.append(one)
                waiting += [read.attr.value for read in code.nodes(cst.Attribute, one) if is_self(read.value)]
        if node.attr.value in own or any(one.decorators or one.asynchronous for one in methods):
            return []
        if not any(one.name.value == node.attr.value for one in methods) or any(
            _yields(code, one) for one in methods
        ):
            return []
        self.owner, self.built = node.value, value
        first = [one for one in methods if one.name.value == node.attr.value]
        return [(code, one) for one in [*first, *(one for one in methods if one is not first[0])]]

    @cached_property
    def calls(self) -> list[cst.Call]:
        """The calls of the loop that are spelled alike."""
        code = self._code
        if self.looped:
            return [self.call]
        alike = code.source(self.call)
        home = code.function_of(self._loop)
        calls = code.nodes(cst.Call, self._loop)
        return [one for one in calls if code.source(one) == alike and code.function_of(one) is home]

    def runs(self, place: Place) -> bool:
        """Whether a line is one of those functions'."""
        return any(
            str(code.path) == place.file and code.line(one) <= place.line <= code.end(one)[0]
            for code, one in self.functions
        )

    @property
    def again(self) -> bool:
        """Whether a batch can be made a second time: from no iterator, no generator of the script's own."""
        return (
            not self.looped
            and self.iterated is None
            and not any(kind == "generator" for _, _, kind in self._variables)
        )

    # -- what it reads of the rest -------------------------------------------------------------------------

    def require_unchanged(self) -> None:
        """Raises Cannot where what it reads may be changed by the loop, or it changes what others read."""
        for arg in self.handed.args:
            self._require_named(self._code, arg.value)
        for code, function in self.functions:
            self._require_named(code, function)
            self._require_told(code, function)
        for where, variable, kind in self._variables:
            self._require_bound_before(where, variable)
            if kind == "other":
                words = f"what {variable.value} holds, and whether the loop changes it, cannot be told"
                raise Cannot(words, str(where.path), where.line(variable))
            self._require_steady(where, variable, kind, set())
        self._require_files_kept()
        self._require_nothing_hidden()
        self._require_own_fields_kept()
        target = self._code.parents.get(self.call)
        for name in self._code.nodes(cst.Name, target) if isinstance(target, cst.Assign) else ():
            if not self._code.holds(self.call, name) and is_changed(self._code, name):
                words = f"{name.value} is changed in place, which may be a part of what the next is made of"
                raise Cannot(words, str(self._code.path), self._code.line(name))
            if not self._code.holds(self.call, name):
                self._require_batch_kept(name)

    def _require_nothing_hidden(self) -> None:
        """Raises Cannot where the loop may set something that its text does not name."""
        environment = any(
            code.qualified(node) in ("os.environ", "os.getenv")
            for code, function in self.functions
            for node in code.nodes(cst.Attribute, function)
        )
        for code in self._plan.scene.codes(""):
            found = [*hidden.sets(code), *(_environment(code) if environment else ())]
            for node in found:
                mine = any(where is code and code.holds(one, node) for where, one in self.functions)
                if mine or self._is_before(code, node):
                    continue
                words = f"what {code.source(node)} sets cannot be told, which the batch may be made of"
                raise Cannot(words, str(code.path), code.line(node))

    def _require_own_fields_kept(self) -> None:
        """Raises Cannot where a field that the object which makes the batches reads of itself is set from
        elsewhere, be it of its class.
        """
        if self.owner is None:
            return
        owners = {id(where.above(one, cst.ClassDef)) for where, one in self.functions}
        read = {
            node.attr.value
            for where, function in self.functions
            for node in where.nodes(cst.Attribute, function)
            if is_self(node.value)
        }
        for code in self._plan.scene.codes(""):
            for node in hidden.stored(code):
                if not isinstance(node, cst.Attribute) or node.attr.value not in read:
                    continue
                if is_self(node.value) and (code.above(node, cst.ClassDef) is not None):
                    own = id(code.above(node, cst.ClassDef)) in owners
                    if not own or any(
                        code.holds(one, node) for where, one in self.functions if where is code
                    ):
                        continue
                if self._is_before(code, node):
                    continue
                words = f"{code.source(node)} is set here, and may be what the batch is made of"
                raise Cannot(words, str(code.path), code.line(node))

    def _require_batch_kept(self, batch: cst.Name) -> None:
        """Raises Cannot where a function of the user's that is given the batch changes it in place."""
        code = self._code
        reads = [read.node for one in code.assignments(batch, batch.value) for read in one.references]
        for read in reads:
            above = code.parents.get(read)
            call = code.parents.get(above) if isinstance(above, cst.Arg) else None
            if not isinstance(call, cst.Call) or not isinstance(above, cst.Arg):
                continue
            if self._kinds.function(code, call.func) is not None and not self._only_reads(
                code, call, above, "array"
            ):
                words = f"{batch.value} may be changed here, which may be a part of what the next is made of"
                raise Cannot(words, str(code.path), code.line(call))

    @cached_property
    def _variables(self) -> list[tuple[Code, cst.Name, Kind]]:
        """Every variable of the script's that is read, those that the call is given among them."""
        found: dict[tuple[str, int, str], tuple[Code, cst.Name, Kind]] = {}
        given = [
            (self._code, name) for arg in self.handed.args for name in self._code.nodes(cst.Name, arg.value)
        ]
        given += [(self._code, one) for one in (self.iterated, self.owner) if one is not None]
        if self.built is not None:
            names = (name for arg in self.built.args for name in self._code.nodes(cst.Name, arg.value))
            given += [(self._code, name) for name in names]
        for code, name in [*given, *self._free()]:
            if is_member(code, name) or self._kinds.is_code(code, name):
                continue
            above = code.parents.get(name)
            field = above if isinstance(above, cst.Attribute) and above.value is name else None
            code, name = self._kinds.imported(code, name) or (code, name)
            bound = code.assignments(name, name.value)
            if not bound:
                continue
            at = min(code.span(one.node)[0] for one in bound)
            self._kinds.forget()
            if name is self.iterated or name is self.owner:
                kind: Kind = "generator"
            else:
                kind = (
                    self._kinds.of(code, field, 0) if field is not None else self._kinds.of_name(code, name)
                )
            found.setdefault(
                (str(code.path), at, field.attr.value if field is not None else ""), (code, name, kind)
            )
        return list(found.values())

    def _require_named(self, code: Code, under: cst.CSTNode) -> None:
        """Raises Cannot where an attribute of another file's, or of a class there, is read."""
        for node in code.nodes(cst.Attribute, under):
            whole = code.qualified(node)
            if whole and self._kinds.is_users(code, whole) and self._kinds.function(code, node) is None:
                words = f"what {code.source(node)} holds, and whether the loop changes it, cannot be told"
                raise Cannot(words, str(code.path), code.line(node))

    def _free(self) -> Iterator[Variable]:
        for code, function in self.functions:
            for name in code.nodes(cst.Name, function):
                bound = [one.node for one in code.assignments(name, name.value)]
                if bound and not any(code.holds(function, one) for one in bound):
                    yield code, name

    def _require_told(self, code: Code, function: Maker) -> None:
        """Raises Cannot where a function does more than to make a batch of what it reads."""
        place = str(code.path)
        for kind in (cst.Global, cst.Nonlocal, cst.Await):
            for node in code.nodes(kind, function):
                raise Cannot("it keeps something from one batch to the next", place, code.line(node))
        self._require_given_once(code, function)
        for node in code.nodes(cst.Attribute, function):
            named = isinstance(node.value, cst.Name) and not code.qualified(node)
            if named and self._kinds.function(code, node.value) is not None:
                words = f"what {code.source(node)} holds, and whether the loop changes it, cannot be told"
                raise Cannot(words, place, code.line(node))
        outside = {name.value for where, name in self._free() if where is code}
        own = (
            {one.name.value for one in parameters_of(function)}
            if isinstance(function, cst.FunctionDef)
            else set()
        )
        own -= {"self"} if self.owner is not None else set()
        for name in code.nodes(cst.Name, function):
            if name.value in outside | own and not is_member(code, name) and is_changed(code, name):
                raise Cannot(f"{name.value} is changed in it", place, code.line(name))
        for assign in code.nodes(cst.Assign, function):
            target = assign.targets[0].target
            part = shared(code, assign.value) & (outside | own)
            if part and isinstance(target, cst.Name) and is_changed(code, target):
                words = f"{target.value}, a part of what it was given, is changed in it"
                raise Cannot(words, place, code.line(assign))
            if isinstance(target, cst.Subscript | cst.Attribute) and shared(code, target) & (outside | own):
                raise Cannot(f"{code.source(target)} is set in it", place, code.line(assign))
        for call in code.nodes(cst.Call, function):
            self._require_known(code, function, call, outside | own)

    def _require_not_filled(self, code: Code, call: cst.Call, given: set[str]) -> None:
        """Raises Cannot where an array of the rest of the script is given to what may write into it."""
        name, whole = last_name(call.func), code.qualified(call.func)
        builtin = isinstance(call.func, cst.Name) and not code.assignments(call.func, name)
        if self._kinds.function(code, call.func) is not None or (builtin and name in _CHANGE_NOTHING):
            return
        for arg in call.args:
            of = viewed(code, arg.value)
            root = of.value if isinstance(of, cst.Name) else "self" if of is not None else ""
            if root not in given:
                continue
            if whole.startswith((*READ_ONLY, "random.", "itertools.")) and not _is_out(call, arg, whole):
                continue
            if self._kinds.of(code, arg.value, 0) != "plain":
                words = f"{code.source(arg.value)} may be written by {code.source(call.func)}"
                raise Cannot(words, str(code.path), code.line(call))

    def _require_given_once(self, code: Code, function: Maker) -> None:
        """Raises Cannot where what it gave may be filled again for the next batch."""
        for given in code.nodes(cst.Yield, function):
            for name in code.nodes(cst.Name, given.value) if given.value is not None else ():
                if not is_member(code, name) and is_changed(code, name):
                    words = f"{name.value} is filled again for the next batch"
                    raise Cannot(words, str(code.path), code.line(name))
        for node in code.nodes(cst.Attribute, function) if self.owner is not None else ():
            top, above = node, code.parents.get(node)
            if not is_self(node.value):
                continue
            while isinstance(above, cst.Attribute | cst.Subscript) and above.value is top:
                top, above = above, code.parents.get(above)  # type: ignore[assignment]
            method = last_name(top) if isinstance(above, cst.Call) and above.func is top else ""
            changed = (top is not node and isinstance(above, STORES)) or (
                top is not node and method.endswith("_")
            )
            if isinstance(above, cst.AugAssign) and above.target is node:
                klass = code.above(node, cst.ClassDef)
                values = bound_to_self(code, klass, node.attr.value) if klass is not None else ()
                changed = any(self._kinds.of(code, one, 0) != "plain" for one in values)
            if isinstance(above, cst.Arg) and above.keyword is not None and above.keyword.value == "out":
                changed = True
            if changed:
                words = f"{code.source(node)} is changed in place, and may be a part of what it gave"
                raise Cannot(words, str(code.path), code.line(node))

    def _require_known(self, code: Code, function: Maker, call: cst.Call, given: set[str]) -> None:
        name, whole, place = (
            last_name(call.func),
            code.qualified(call.func),
            (str(code.path), code.line(call)),
        )
        words = f"what {code.source(call.func)} does between two batches cannot be told"
        self._require_not_filled(code, call, given)
        if name in SEEDS:
            raise Cannot(f"{code.source(call)} sets a generator", *place)
        if whole.startswith("torch.distributed."):
            raise Cannot("ranks meet there, in the order of the loop", *place)
        if self._kinds.function(code, call.func) is not None:
            return
        if whole:
            if self._kinds.is_users(code, whole):
                raise Cannot(words, *place)
            return
        if isinstance(call.func, cst.Name):
            bound = code.assignments(call.func, name)
            if bound or not hasattr(builtins, name) or name in _BLIND:
                raise Cannot(words, *place)
            if name == "next" and call.args and shared(code, call.args[0].value) & given:
                raise Cannot("it takes from an iterator that lives on", *place)
            return
        if not isinstance(call.func, cst.Attribute):
            raise Cannot(words, *place)

    def _require_steady(self, code: Code, variable: cst.Name, kind: Kind, seen: set[str]) -> None:
        """Raises Cannot where a variable is bound anew in the loop, or what it holds may be changed there, by
        another name too.
        """
        if variable.value in seen:
            return
        seen.add(variable.value)
        self._require_bound_before(code, variable)
        if kind != "plain":
            self._require_only_read(code, variable, kind, seen)

    def _require_bound_before(self, code: Code, variable: cst.Name) -> None:
        bound = code.assignments(variable, variable.value)
        home = {code.function_of(one.node) for one in bound}
        for one in bound:
            looped = code is self._code and code.holds(self._loop, one.node)
            elsewhere = len(home) > 1 or (code.function_of(one.node) is not None and code is not self._code)
            if looped or elsewhere:
                words = f"{variable.value} is set {'in the loop' if looped else 'in another function'}"
                raise Cannot(words, str(code.path), code.line(one.node))
        for other in self._plan.scene.codes(variable.value):
            for node in other.nodes(cst.Attribute):
                whole = other.qualified(node) if node.attr.value == variable.value else ""
                if (
                    whole
                    and self._kinds.is_users(other, whole)
                    and isinstance(other.parents.get(node), STORES)
                ):
                    raise Cannot(f"{variable.value} is set here", str(other.path), other.line(node))

    def _require_only_read(self, code: Code, variable: cst.Name, kind: Kind, seen: set[str]) -> None:
        bound = code.assignments(variable, variable.value)
        for other in self._plan.scene.codes(variable.value):
            for use in _uses_elsewhere(other, variable.value) if other is not code else ():
                if kind != "array" or not isinstance(use, cst.Name) or is_changed(other, use):
                    words = f"{variable.value}, which the batch is made of, may be changed here"
                    raise Cannot(words, str(other.path), other.line(use))
        for access in {id(read.node): read.node for one in bound for read in one.references}.values():
            if not any(where is code and code.holds(one, access) for where, one in self.functions):
                self._require_read(code, access, variable.value, kind)
                self._require_kept(code, access, seen)
        given = [value for one in bound if (value := value_of(code, one.node)) is not None]
        alike = {name for value in given for name in shared(code, value)}
        for name in code.names():
            if name.value in alike - seen and not self._kinds.is_code(code, name):
                self._require_steady(code, name, kind, seen)

    def _require_kept(self, code: Code, access: cst.CSTNode, seen: set[str]) -> None:
        """Raises Cannot where what a variable holds gets another name by which it may be changed, or is kept
        by something.
        """
        name = code.source(access)
        statement = code.statement_of(access)
        handed: list[tuple[cst.CSTNode, cst.BaseExpression]] = []
        if isinstance(statement, cst.For) and code.holds(statement.iter, access):
            handed = [(statement.target, statement.iter)]
        elif isinstance(statement, cst.SimpleStatementLine):
            for small in statement.body:
                if isinstance(small, cst.Assign):
                    handed += [(target.target, small.value) for target in small.targets]
                elif isinstance(small, cst.Return) and small.value is not None:
                    handed.append((small, small.value))
        for target, value in handed:
            if not code.holds(value, access) or not self._is_part(code, value, name):
                continue
            plain = isinstance(target, cst.Name | cst.Tuple | cst.List)
            for new in code.nodes(cst.Name, target) if plain else ():
                if is_changed(code, new):
                    words = f"{new.value}, a part of {name}, may be changed here"
                    raise Cannot(words, str(code.path), code.line(new))
                if new.value not in seen and new.value != name:
                    seen.add(new.value)
                    reads = [read.node for one in code.assignments(new, new.value) for read in one.references]
                    for read in reads:
                        if not any(where is code and code.holds(one, read) for where, one in self.functions):
                            self._require_kept(code, read, seen)
            if not plain and not (isinstance(target, cst.Return) and code.function_of(access) is None):
                words = f"{name}, which the batch is made of, is kept here"
                raise Cannot(words, str(code.path), code.line(access))

    def _is_part(self, code: Code, value: cst.BaseExpression, name: str) -> bool:
        """Whether an expression gives what a variable holds, a part of it, or something that holds it."""
        of = viewed(code, value)
        if of is not None:
            return isinstance(of, cst.Name) and of.value == name
        if isinstance(value, cst.List | cst.Tuple | cst.Set | cst.Dict):
            return any(self._is_part(code, one.value, name) for one in value.elements)
        if isinstance(value, cst.IfExp):
            return any(self._is_part(code, one, name) for one in (value.body, value.orelse))
        if isinstance(value, cst.Call) and self._kinds.function(code, value.func) is not None:
            return any(self._is_part(code, arg.value, name) for arg in value.args)
        return False

    def _require_read(self, code: Code, access: cst.CSTNode, name: str, kind: Kind) -> None:
        above = code.parents.get(access)
        if code is self._code and any(code.holds(one, access) for one in self.calls):
            return
        before = code is self._code and code.begin(access) < code.begin(self._loop)
        before = before and code.function_of(access) is code.function_of(self._loop)
        if isinstance(self._loop, cst.For) and code is self._code:
            before = before or code.holds(self._loop.iter, access)
        if isinstance(above, cst.Attribute) and above.attr.value in MEASURES and (before or kind == "array"):
            return
        if isinstance(above, cst.Arg) and (before or kind == "array"):
            call = code.parents[above]
            assert isinstance(call, cst.Call | cst.ClassDef)
            if isinstance(call, cst.Call) and self._only_reads(code, call, above, kind):
                return
        elif isinstance(access, cst.Name) and kind == "array":
            if before or not (is_changed(code, access) or self._is_listed(code, access)):
                return
        elif before and not isinstance(above, cst.Assign | cst.Element | cst.DictElement):
            return
        raise Cannot(
            f"{name}, which the batch is made of, may be changed here", str(code.path), code.line(access)
        )

    def _is_listed(self, code: Code, access: cst.Name) -> bool:
        """Whether a variable is in a list that is given to what may change it: ``map(f, [data])``."""
        above = code.parents.get(access)
        given: cst.CSTNode | None = above if isinstance(above, cst.Element | cst.DictElement) else None
        while given is not None and not isinstance(
            given, cst.Arg | cst.BaseStatement | cst.BaseSmallStatement
        ):
            given = code.parents.get(given)
        call = code.parents.get(given) if isinstance(given, cst.Arg) else None
        if not isinstance(call, cst.Call):
            return False
        whole, name = code.qualified(call.func), last_name(call.func)
        reads = whole.startswith(READ_ONLY) and not whole.startswith("torch.optim.")
        return not (reads and not name.endswith("_")) and name not in ("print", "len", "zip", "enumerate")

    def _only_reads(self, code: Code, call: cst.Call, arg: cst.Arg, kind: Kind) -> bool:
        name, whole = last_name(call.func), code.qualified(call.func)
        if call is self.handed:
            return True
        builtin = isinstance(call.func, cst.Name) and not code.assignments(call.func, name)
        if whole.startswith(READ_ONLY) and not whole.startswith(
            ("torch.nn.", "torch.optim.", "torch.utils.")
        ):
            in_place = name.endswith("_") or (name in CHANGE_ARGUMENT and whole.startswith("numpy."))
            return kind == "array" and not _is_out(call, arg, whole) and not in_place
        if builtin:
            return name == "len" or (
                kind == "array" and name in PLAIN_CALLS | {"print", "set", "list", "enumerate"}
            )
        reached = self._kinds.function(code, call.func)
        if reached is None or kind != "array" or not isinstance(reached[1], cst.FunctionDef):
            return False
        where, function = reached[0], reached[1]
        for param in parameters_of(function):
            at = position_of(where, function, param, call)
            mine = (arg.keyword is not None and arg.keyword.value == param.name.value) or (
                at is not None and 0 <= at < len(call.args) and call.args[at] is arg
            )
            if mine:
                reads = [one for one in where.names() if one.value == param.name.value]
                return not any(where.holds(function, one) and is_changed(where, one) for one in reads)
        return False

    # -- what it draws from ----------------------------------------------------------------------------------

    def require_alone(self) -> bool:
        """Whether it draws from Python's or numpy's generator. Raises Cannot where others do too."""
        draws = [(code, one) for code, function in self.functions for one in _draws(code, function)]
        if not self.again:
            for code, function in self.functions:
                for call in code.nodes(cst.Call, function):
                    if (
                        code.qualified(call.func).startswith("torch.rand")
                        or last_name(call.func) in _BY_TORCH
                    ):
                        words = "it draws from torch's generator what could not be drawn anew"
                        raise Cannot(words, str(code.path), code.line(call))
        if draws or not self.again:
            self._require_one_run()
        if not draws:
            return False
        for code in self._plan.scene.codes(""):
            statements: list[cst.BaseSmallStatement] = [*code.nodes(cst.Import)]
            for statement in [*statements, *code.nodes(cst.ImportFrom)]:
                for package in _packages(code, statement):
                    if package not in _DRAW_NOTHING and not self._kinds.is_users(code, package):
                        words = f"{package} may draw in between: the order of both would be another"
                        raise Cannot(words, str(code.path), code.line(statement))
        for code in self._plan.scene.codes(""):
            for node in hidden.handed_on(code, ("random", "numpy.random", "numpy")):
                words = f"{code.source(node)} is handed on, and may be drawn from"
                raise Cannot(words, str(code.path), code.line(node))
        mine = {id(one) for _, one in draws}
        for code in self._plan.scene.codes("random"):
            for one in _draws(code, code.module):
                if id(one) not in mine and not self._is_before(code, one):
                    words = "drawn from here too: the order of both would be another"
                    raise Cannot(f"{code.source(one.func)} is {words}", str(code.path), code.line(one))
        for code in self._plan.scene.codes(last_name(self.handed.func)):
            for call in code.nodes(cst.Call):
                reached = self._kinds.function(code, call.func)
                known = reached is not None and reached[1] is self.functions[0][1]
                looped = any(call is one for one in self.calls)
                if known and not looped and not self._is_before(code, call) and call is not self.handed:
                    words = "is called here too, and draws: the order of both would be another"
                    raise Cannot(f"{last_name(call.func)} {words}", str(code.path), code.line(call))
        return True

    def _require_one_run(self) -> None:
        """Raises Cannot where the loop may run again: what was made ahead and not used would be missing then.

        A generator that the loop goes over is made anew, and was read to its end where the loop has no other.
        """
        ends = [*self._code.nodes(cst.Break, self._loop), *self._code.nodes(cst.Return, self._loop)]
        if self.looped:
            held = any(kind == "generator" for _, _, kind in self._variables)
            drawn = held or any(True for code, one in self.functions for _ in _draws(code, one))
            if ends and drawn:
                words = "the loop may end here, when more than it used was drawn"
                raise Cannot(words, str(self._code.path), self._code.line(ends[0]))
            return
        code, function = self._code, self._code.function_of(self._loop)
        while function is not None:
            name = function.name.value
            used = [
                (other, one)
                for other in self._plan.scene.codes(name)
                for one in other.names()
                if one.value == name
                and not isinstance(other.parents.get(one), cst.FunctionDef | cst.ImportAlias)
            ]
            where, node = used[0] if len(used) == 1 else (code, function)
            call = where.parents.get(node)
            inside = where.above(node, cst.For) or where.above(node, cst.While)
            if (
                len(used) != 1
                or not isinstance(call, cst.Call)
                or call.func is not node
                or inside is not None
            ):
                words = f"{name} may be called again: what was made ahead and not used would be missing then"
                raise Cannot(words, str(where.path), where.line(node))
            code, function = where, where.function_of(node)

    def _require_files_kept(self) -> None:
        """Raises Cannot where the loop may write a file that the making reads."""
        found = [(code, one) for code, function in self.functions for one in files.reads(code, function)]
        found += self._read_later()
        mine = {id(one) for _, one in found}
        read = [name for code, one in found for name in files.named_by(code, one, self._values)]
        literal = [
            files.Name(text, True)
            for code, function in self.functions
            for one in code.nodes(cst.SimpleString, function)
            if (text := text_of(one)) and "." in text
        ]
        for code in self._plan.scene.codes("") if read or literal else ():
            for call in code.nodes(cst.Call):
                written = files.writes(code, call, self._values)
                if not written or id(call) in mine or self._is_own(code, call):
                    continue
                if any(code.holds(one, call) for where, one in self.functions if where is code):
                    continue
                if self._is_before(code, call) and not self._goes_on(code, call):
                    continue
                if any(not name.is_other(one) for name in written for one in read) or any(
                    name.last == one.last for name in written for one in literal
                ):
                    words = "a file that the batches are made of may be written here"
                    raise Cannot(words, str(code.path), code.line(call))

    def _read_later(self) -> list[tuple[Code, cst.Call]]:
        """The calls that opened, or mapped, what it reads of."""
        found: list[tuple[Code, cst.Call]] = []
        waiting = [(code, name) for code, name, _ in self._variables]
        seen: set[int] = set()
        while waiting:
            code, name = waiting.pop()
            code, name = self._kinds.imported(code, name) or (code, name)
            for one in code.assignments(name, name.value):
                if id(one.node) in seen:
                    continue
                seen.add(id(one.node))
                for where, value in self._given(code, one.node) or ():
                    found += [(where, call) for call in files.reads(where, value, lasting=True)]
                    for call in where.nodes(cst.Call, value):
                        reached = self._kinds.function(where, call.func)
                        if reached is not None:
                            found += [(reached[0], read) for read in files.reads(*reached, lasting=True)]
                    names = where.nodes(cst.Name, value)
                    waiting += [(where, inner) for inner in names if not is_member(where, inner)]
        return found

    def _given(self, code: Code, node: cst.CSTNode) -> list[tuple[Code, cst.BaseExpression]] | None:
        """What a variable is given at one place; None: not known."""
        if isinstance(node, cst.Param):
            return self._kinds.passed(code, node)
        value = value_of(code, node)
        above = code.parents.get(node)
        if value is None and isinstance(above, cst.AsName):
            item = code.parents.get(above)
            value = item.item if isinstance(item, cst.WithItem) else None
        return [(code, value)] if value is not None else None

    def _values(self, code: Code, name: cst.Name) -> list[tuple[Code, cst.BaseExpression]]:
        """What a variable may stand for; nothing where that is not known."""
        code, name = self._kinds.imported(code, name) or (code, name)
        given = [self._given(code, one.node) for one in code.assignments(name, name.value)]
        known = [one for one in given if one is not None]
        return (
            [one for each in known for one in each] if len(known) == len(given) and not executes(code) else []
        )

    def _is_own(self, code: Code, call: cst.Call) -> bool:
        """Whether a function or a method of the user's is called: what it does stands there."""
        klass = code.above(call, cst.ClassDef)
        if isinstance(call.func, cst.Attribute) and is_self(call.func.value) and klass is not None:
            methods = [one.name.value for one in klass.body.body if isinstance(one, cst.FunctionDef)]
            return call.func.attr.value in methods
        return self._kinds.function(code, call.func) is not None

    def _goes_on(self, code: Code, call: cst.Call) -> bool:
        """Whether a file opened before the loop may be written in it."""
        if not files.opens_to_write(code, call) and last_name(call.func) != "connect":
            return False
        above = code.parents.get(call)
        if isinstance(above, cst.WithItem):
            around = code.parents[above]
            if code is self._code and code.holds(around, self._loop):
                return True
            home = self._code.function_of(self._loop)
            called = (self._kinds.function(code, one.func) for one in code.nodes(cst.Call, around))
            return any(one is not None and one[1] is home for one in called)
        if isinstance(above, cst.Attribute):
            return False  # open(...).write(...)
        if isinstance(above, cst.Arg):
            return last_name(getattr(code.parents[above], "func", above)) not in ("dump", "save", "print")
        target = above.targets[0].target if isinstance(above, cst.Assign) else None
        closed = (
            one
            for one in code.nodes(cst.Call)
            if isinstance(one.func, cst.Attribute) and one.func.attr.value == "close"
            if isinstance(target, cst.Name) and code.source(one.func.value) == target.value
        )
        return not any(self._is_before(code, one) for one in closed)

    def _is_before(self, code: Code, node: cst.CSTNode) -> bool:
        """Whether it is done before the loop begins: in front of it, or in what only runs in front of it."""
        if code is self._code and code.function_of(node) is code.function_of(self._loop):
            return code.begin(node) < code.begin(self._loop) and not code.holds(self._loop, node)
        function = code.function_of(node)
        if function is None:
            return True  # when its module is loaded
        owner = code.parents.get(code.parents.get(function, function))
        if isinstance(owner, cst.ClassDef):
            return False
        calls = [
            (other, call)
            for other in self._plan.scene.codes(function.name.value)
            for call in other.nodes(cst.Call)
            if last_name(call.func) == function.name.value
        ]
        named = [
            one
            for other in self._plan.scene.codes(function.name.value)
            for one in other.names()
            if one.value == function.name.value
            and not isinstance(
                other.parents.get(one), cst.Call | cst.FunctionDef | cst.ImportAlias | cst.Attribute
            )
        ]
        mine = self._code.function_of(self._loop)
        return not named and bool(calls) and all(
            other is self._code
            and other.function_of(call) is mine
            and other.begin(call) < other.begin(self._loop)
            for other, call in calls
        )  # fmt: skip


def _environment(code: Code) -> Iterator[cst.CSTNode]:
    """Where the environment is changed."""
    for node in hidden.stored(code):
        part: cst.CSTNode = node
        while isinstance(part, cst.Attribute | cst.Subscript) and code.qualified(part) != "os.environ":
            part = part.value
        if code.qualified(part) == "os.environ":
            yield node
    for call in code.nodes(cst.Call):
        if code.qualified(call.func) in ("os.putenv", "os.unsetenv"):
            yield call


def _is_out(call: cst.Call, arg: cst.Arg, whole: str) -> bool:
    """Whether an argument is where a function writes its result to."""
    if arg.keyword is not None:
        return arg.keyword.value == "out"
    function = getattr(np, whole.removeprefix("numpy."), None)
    return isinstance(function, np.ufunc) and list(call.args).index(arg) >= function.nin


def _packages(code: Code, statement: cst.BaseSmallStatement) -> Iterator[str]:
    if isinstance(statement, cst.Import):
        yield from (code.source(one.name).partition(".")[0] for one in statement.names)
    elif isinstance(statement, cst.ImportFrom) and not statement.relative and statement.module is not None:
        yield code.source(statement.module).partition(".")[0]


def _uses_elsewhere(code: Code, name: str) -> Iterator[cst.CSTNode]:
    """Where another file of the user's uses a variable of this name that it imports."""
    for taken in code.nodes(cst.ImportFrom):
        names = taken.names if not isinstance(taken.names, cst.ImportStar) else ()
        if any(last_name(one.name) == name for one in names):
            yield from (one for one in code.names() if one.value == name and not is_member(code, one))
    for node in code.nodes(cst.Attribute):
        if node.attr.value == name and code.qualified(node):
            yield node


def _draws(code: Code, under: cst.CSTNode) -> Iterator[cst.Call]:
    """Calls that draw from Python's or numpy's global generator, or set it."""
    for call in code.nodes(cst.Call, under):
        whole = code.qualified(call.func)
        if whole.startswith(HOST_DRAWS) and last_name(call.func) not in GENERATORS:
            yield call


def _yields(code: Code, function: Maker) -> bool:
    return any(code.function_of(one) is function for one in code.nodes(cst.Yield, function))
