"""Whether what runs in forward and again in backward leaves the same behind when it runs once.

Functions are followed by their names, in every class and file of the user's: whose method is called is not
looked at, so that one of a base class, or of another object, is read as well.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

import libcst as cst

from hotloop.remedy.source.aliases import READ_ONLY, is_of_self, viewed
from hotloop.remedy.source.code import Code, Function, argument, is_member, is_self, last_name
from hotloop.remedy.source.scene import Cannot
from hotloop.remedy.source.values import CHANGES, HOST_DRAWS, text_of, value_of

#: What to do by hand where it cannot be left out.
BY_HAND: Final = "leave torch.utils.checkpoint out by hand, and compare what is trained (hotloop verify)"

Runs = Function | cst.Lambda

#: Methods that change what they are called of.
_MUTATES: Final = CHANGES | {
    "appendleft", "extendleft", "add", "popleft", "discard", "rotate", "put_nowait", "send", "__setitem__",
    "__next__", "get_nowait", "recv", "read", "readline", "write",
}  # fmt: skip
#: Of these the ones that no tensor has.
_OF_CONTAINERS: Final = _MUTATES - {"add", "fill", "put", "sort"}
#: Methods of generators that draw.
_DRAWS: Final = frozenset([
    "random", "integers", "normal", "uniform", "choice", "choices", "shuffle", "permutation", "randint",
    "randrange", "standard_normal", "gauss", "sample", "binomial", "poisson", "exponential", "beta", "gamma",
    "rand", "randn", "random_sample", "random_integers", "tomaxint", "bytes", "permuted", "random_raw",
    "laplace", "lognormal", "gumbel", "logistic", "logseries", "multinomial", "multivariate_normal",
    "multivariate_hypergeometric", "hypergeometric", "geometric", "negative_binomial", "noncentral_chisquare",
    "noncentral_f", "chisquare", "dirichlet", "pareto", "power", "rayleigh", "standard_cauchy",
    "standard_exponential", "standard_gamma", "standard_t", "triangular", "vonmises", "wald", "weibull",
    "zipf", "getrandbits", "randbytes", "gammavariate", "betavariate", "expovariate", "normalvariate",
    "lognormvariate", "vonmisesvariate", "paretovariate", "weibullvariate",
])  # fmt: skip
#: Functions that change their first argument.
_CHANGES_FIRST: Final = frozenset([
    "at", "copyto", "put", "place", "putmask", "fill_diagonal", "put_along_axis", "heappush", "heappop",
    "heapify", "heapreplace", "heappushpop", "insort", "insort_left", "insort_right", "setitem", "delitem",
    "iadd", "isub", "imul", "iconcat", "next", "islice",
])  # fmt: skip
#: What gives an iterator: what was taken of it is gone.
_ITERATORS: Final = frozenset(["iter", "map", "filter", "zip", "enumerate", "reversed", "open"])
#: Methods that give something new.
_GIVE_NEW: Final = frozenset(["copy", "split", "tolist"])
#: What sets something under a name that is not looked at.
_SETS: Final = frozenset(["setattr", "delattr", "exec", "eval", "globals", "vars", "__setattr__", "__dict__"])
#: What has a function run with every forward.
_HOOKS: Final = frozenset([
    "register_forward_hook", "register_forward_pre_hook", "register_module_forward_hook",
    "register_module_forward_pre_hook",
])  # fmt: skip
#: What may write over its input and is the same when it does so again.
_IDEMPOTENT: Final = frozenset(["ReLU", "relu", "ReLU6", "relu6", "Hardtanh", "hardtanh", "nan_to_num"])
#: Methods that put something into what they are called of.
_PUTS: Final = frozenset(["append", "extend", "insert", "add_module", "register_module", "update"])
#: Modules whose functions keep nothing.
_MODULES: Final = (*READ_ONLY, "operator.", "functools.", "itertools.", "einops.", "copy.")
#: Methods that are called without their names.
_ENTERED: Final = ("__enter__", "__exit__")
_NEVER: Final = frozenset(["__init__", "__post_init__", "__new__"])
_OF_TORCH: Final = ("torch.", "abc.", "typing.", "enum.", "object")
_TWICE: Final = "in each of two now, in one without"


def require_nothing_kept(codes: Sequence[Code], calls: Sequence[tuple[Code, cst.Call]]) -> None:
    """Raises Cannot where a forward, or what a ``checkpoint`` is given, counts, keeps or draws something."""
    for code in codes:
        for call in code.nodes(cst.Call):
            name = last_name(call.func)
            if name in _HOOKS:
                words = f"{name}: what it is given runs {_TWICE.replace('in', 'with', 1)}"
                raise Cannot(words, str(code.path), code.line(call), write=BY_HAND)
            given = argument(call, "inplace")
            if given is not None and code.source(given) != "False" and name not in _IDEMPOTENT:
                words = f"{name} may write over its input, which backward computes with again now"
                raise Cannot(words, str(code.path), code.line(call), write=BY_HAND)
    iterators = _iterators(codes)
    for code, function in _Runs(codes).from_forwards(calls):
        _require_nothing_set(code, function)
        _require_nothing_drawn(code, function)
        _require_nothing_taken(code, function, iterators)
        _require_told(codes, code, function)


# -- what runs -----------------------------------------------------------------------------------------------


class _Runs:
    """Every function of the user's that may run in a forward, by name."""

    def __init__(self, codes: Sequence[Code]) -> None:
        self._functions: dict[str, list[tuple[Code, Function]]] = {}
        self._classes: dict[str, list[tuple[Code, cst.ClassDef]]] = {}
        self._given: dict[
            str, list[tuple[Code, cst.BaseExpression]]
        ] = {}  # what a name, or attribute, is given
        for code in codes:
            for function in code.nodes(cst.FunctionDef):
                self._functions.setdefault(function.name.value, []).append((code, function))
            for owner in code.nodes(cst.ClassDef):
                self._classes.setdefault(owner.name.value, []).append((code, owner))
            for assign in code.nodes(cst.Assign):
                for target in assign.targets:
                    self._given.setdefault(last_name(target.target), []).append((code, assign.value))
            for call in code.nodes(cst.Call):
                if last_name(call.func) in _PUTS and isinstance(call.func, cst.Attribute):
                    into = self._given.setdefault(last_name(call.func.value), [])
                    into += [(code, arg.value) for arg in call.args]

    def from_forwards(self, calls: Sequence[tuple[Code, cst.Call]]) -> Iterator[tuple[Code, Runs]]:
        """From ``forward`` and what is checkpointed on."""
        found: dict[int, tuple[Code, Runs]] = {}
        seen: set[str] = set()
        ahead = self._named("forward", called=True)
        for code, call in calls:
            for name in _names(code, call.args[0].value):
                ahead += self._named(name, called=True)
            ahead += [(code, one) for one in code.nodes(cst.Lambda, call.args[0].value)]
        while ahead:
            code, function = ahead.pop()
            if id(function) in found:
                continue
            found[id(function)] = code, function
            for name, called in _read(code, function).items():
                if name not in seen or (called and f"{name}()" not in seen):
                    seen |= {name, f"{name}()"} if called else {name}
                    ahead += self._named(name, called=called)
        yield from found.values()

    def _named(self, name: str, *, called: bool) -> list[tuple[Code, Runs]]:
        """The functions of a name; where it is ``called``, also what else is given that name."""
        found: list[tuple[Code, Runs]] = []
        for code, function in self._functions.get(name, ()) if name not in _NEVER else ():
            found += [(code, function), *_returned(code, function)]
        for code, value in self._given.get(name, ()) if called else ():
            found += [(code, one) for one in code.nodes(cst.Lambda, value)]
            for other in dict.fromkeys(_names(code, value)):
                if other == name:
                    continue
                for where, function in self._functions.get(other, ()) if other not in _NEVER else ():
                    found += [(where, function), *_returned(where, function)]
                for where, owner in self._classes.get(other, ()):
                    methods = (one for one in owner.body.body if isinstance(one, cst.FunctionDef))
                    found += [(where, one) for one in methods if _is_unnamed(one.name.value)]
        return found


def _is_unnamed(name: str) -> bool:
    """Whether a method is called without its name."""
    return name.startswith("__") and name.endswith("__") and name not in _NEVER


def _names(code: Code, node: cst.CSTNode) -> list[str]:
    return [one.value for one in code.nodes(cst.Name, node)]


def _read(code: Code, function: Runs) -> dict[str, bool]:
    """The names in a function that may stand for others, and whether what they are given is called."""
    found: dict[str, bool] = {}
    for name in code.nodes(cst.Name, function):
        above = code.parents.get(name)
        if isinstance(above, cst.Attribute) and above.attr is name:
            found[name.value] = True
        elif not _is_local(code, function, name):
            found.setdefault(name.value, False)
    for decorator in function.decorators if isinstance(function, cst.FunctionDef) else ():
        found |= dict.fromkeys(_names(code, decorator), True)
    for call in code.nodes(cst.Call, function):
        if isinstance(call.func, cst.Name):
            found[call.func.value] = True
            if _is_unknown(code, function, call.func):
                found["__call__"] = True
        elif not isinstance(call.func, cst.Attribute):
            found["__call__"] = True
        if last_name(call.func) == "getattr" and len(call.args) > 1:
            found[text_of(call.args[1].value) or "__call__"] = True
    for around in code.nodes(cst.With, function):
        if any(not code.qualified(getattr(one.item, "func", one.item)) for one in around.items):
            found |= dict.fromkeys(_ENTERED, True)
    return found


def _is_local(code: Code, function: Runs, name: cst.Name) -> bool:
    bound = [one.node for one in code.assignments(name, name.value)]
    return bool(bound) and all(
        code.holds(function, one) and not isinstance(one, cst.FunctionDef | cst.ClassDef) for one in bound
    )


def _is_unknown(code: Code, function: Runs, name: cst.Name) -> bool:
    """Whether a variable that is called was given, or is none of what an object holds."""
    if not _is_local(code, function, name):
        return False
    for one in (one.node for one in code.assignments(name, name.value)):
        value = value_of(code, one) or _gone_through(code, one)
        if value is None or not any(is_self(inner) for inner in code.nodes(cst.Name, value)):
            return True
    return False


def _returned(code: Code, function: Function) -> Iterator[tuple[Code, Runs]]:
    """Functions that one makes and gives back: what they close over lives on."""
    for back in code.nodes(cst.Return, function):
        if back.value is not None:
            names = _names(code, back.value)
            for inner in code.nodes(cst.FunctionDef, function):
                if inner is not function and inner.name.value in names:
                    yield code, inner
            yield from ((code, one) for one in code.nodes(cst.Lambda, back.value))


# -- what is kept --------------------------------------------------------------------------------------------


def _require_nothing_set(code: Code, function: Runs) -> None:
    for kind in (cst.Global, cst.Nonlocal):
        for statement in code.nodes(kind, function):
            words = f"{code.source(statement)}: it is set in each of two forwards now, in one without"
            raise Cannot(words, str(code.path), code.line(statement), write=BY_HAND)
    if isinstance(function, cst.FunctionDef) and function.name.value in _NEVER:
        return
    for node in code.nodes(cst.Attribute, function):
        if is_self(node.value) and is_changed_at(code, node) and not _in_constructor(code, node):
            raise _set(code, node, f"{code.source(node)} is set in a forward")
    for name in code.nodes(cst.Name, function):
        if is_member(code, name) or not _is_changed(code, name) or _in_constructor(code, name):
            continue
        if _lives_on(code, function, name, set()):
            raise _set(code, name, f"{name.value} is changed in a forward")
    for call in code.nodes(cst.Call, function):
        top, above = _whole(code, call)
        method = last_name(top) if isinstance(above, cst.Call) and above.func is top else ""
        stored = isinstance(above, cst.AssignTarget) or (
            isinstance(above, cst.AugAssign) and above.target is top
        )
        if top is call or not (stored or method in _OF_CONTAINERS):
            continue
        part = viewed(code, call)
        if part is None or _is_held(code, function, part, set()):
            raise _set(code, call, f"{code.source(top)} is changed in a forward")


def _set(code: Code, node: cst.CSTNode, words: str) -> Cannot:
    return Cannot(f"{words}: {_TWICE}", str(code.path), code.line(node), write=BY_HAND)


def _in_constructor(code: Code, node: cst.CSTNode) -> bool:
    function = code.function_of(node)
    return function is not None and function.name.value in _NEVER


def _lives_on(code: Code, function: Runs, name: cst.Name, seen: set[str]) -> bool:
    """Whether a variable of a function is one from outside it, one that it was given, or stands for what an
    object holds.
    """
    if name.value in seen or is_self(name):
        return False
    seen.add(name.value)
    if code.qualified(name):
        return True  # of a module: its attributes, and what it holds, are everybody's
    bound = [one.node for one in code.assignments(name, name.value)]
    if not bound:
        return False
    if not all(code.holds(function, one) for one in bound):
        return True
    given = [one for one in bound if isinstance(one, cst.Param)]
    if given and len(bound) == 1:
        return not given[0].star or _is_within(code, name)
    for one in bound:
        if isinstance(one, cst.Param):
            if not any(code.begin(other) < code.begin(name) for other in bound if other is not one):
                return True
            continue
        value = value_of(code, one) or _gone_through(code, one)
        for each in _either(value) if value is not None else ():
            part = viewed(code, each)
            part = each if part is None and isinstance(each, cst.Attribute | cst.Subscript) else part
            if part is not None and _is_held(code, function, part, seen):
                return True
            if part is None and _is_filled(code, name) and _is_handed_out(code, each):
                return True
    return False


def _is_within(code: Code, name: cst.Name) -> bool:
    """Whether what lies in ``*args`` or ``**kwargs`` is meant, not these themselves."""
    top, above = _whole(code, name)
    if not _is_changed(code, name):
        return True
    inner = code.parents.get(name)
    stored = isinstance(above, cst.AssignTarget | cst.AnnAssign | cst.Del)
    return isinstance(inner, cst.Subscript) and not (stored and top is inner)


def _either(value: cst.BaseExpression) -> Iterator[cst.BaseExpression]:
    """What an expression may stand for: ``a or b``, ``a if c else b``."""
    if isinstance(value, cst.BooleanOperation):
        yield from (*_either(value.left), *_either(value.right))
    elif isinstance(value, cst.IfExp):
        yield from (*_either(value.body), *_either(value.orelse))
    else:
        yield value


def _is_filled(code: Code, name: cst.Name) -> bool:
    """Whether a method that only containers have is called of a variable."""
    top, above = _whole(code, name)
    return isinstance(above, cst.Call) and above.func is top and last_name(top) in _OF_CONTAINERS


def _is_handed_out(code: Code, value: cst.BaseExpression) -> bool:
    """Whether a call may give what another object keeps."""
    if not isinstance(value, cst.Call):
        return False
    if isinstance(value.func, cst.Attribute):
        return not code.qualified(value.func) and last_name(value.func) not in _GIVE_NEW
    return isinstance(value.func, cst.Name) and bool(code.assignments(value.func, value.func.value))


def _gone_through(code: Code, bound: cst.CSTNode) -> cst.BaseExpression | None:
    """What a loop, or a ``with``, gives a variable a part of: ``for layer in self.layers``."""
    above = code.parents.get(bound)
    while isinstance(above, cst.Element | cst.Tuple | cst.AsName):
        above = code.parents.get(above)
    if isinstance(above, cst.WithItem):
        return above.item
    value = above.iter if isinstance(above, cst.For | cst.CompFor) else None
    while isinstance(value, cst.Call):  # enumerate(...), zip(...), self.layers.items()
        if isinstance(value.func, cst.Attribute) and not code.qualified(value.func):
            return value.func.value
        held = [arg.value for arg in value.args if is_of_self(arg.value) or isinstance(arg.value, cst.Call)]
        value = held[0] if held else (value.args[0].value if value.args else None)
    return value


def _is_held(code: Code, function: Runs, node: cst.BaseExpression, seen: set[str]) -> bool:
    """``self.history``, ``SEEN["loss"]``"""
    while isinstance(node, cst.Attribute | cst.Subscript):
        if isinstance(node, cst.Attribute) and is_self(node.value):
            return True
        node = node.value
    return isinstance(node, cst.Name) and _lives_on(code, function, node, seen)


def _is_changed(code: Code, name: cst.Name) -> bool:
    """Whether what a variable holds is changed where it stands; another value for it is no change."""
    top, above = _whole(code, name)
    if isinstance(above, cst.AssignTarget | cst.AnnAssign | cst.Del) and top is name:
        return False
    if isinstance(above, cst.Call) and above.func is top and code.qualified(top).startswith(_MODULES):
        return False  # a function of a module
    return not isinstance(code.parents.get(name), cst.Element) and is_changed_at(code, name)


def is_changed_at(code: Code, node: cst.CSTNode) -> bool:
    """Whether what an expression stands for is set, or changed in place, where it stands."""
    top, above = _whole(code, node)
    if isinstance(above, cst.AssignTarget | cst.AnnAssign | cst.Del):
        return True
    if isinstance(above, cst.AugAssign):
        return above.target is top
    if isinstance(above, cst.Call) and above.func is top:
        method = last_name(top)
        taken = method == "get" and all(arg.keyword is not None for arg in above.args)  # of a queue
        return top is not node and (taken or method in _MUTATES or _is_in_place(method))
    if not isinstance(above, cst.Arg):
        return False
    if above.keyword is not None and above.keyword.value == "out":
        return True
    call = code.parents.get(above)
    name = last_name(call.func) if isinstance(call, cst.Call) else ""
    first = isinstance(call, cst.Call) and call.args[0] is above
    return (first and name in _CHANGES_FIRST) or _is_in_place(name)


def _is_in_place(name: str) -> bool:
    return name.endswith("_") and not name.endswith("__")


def _whole(code: Code, node: cst.CSTNode) -> tuple[cst.CSTNode, cst.CSTNode | None]:
    top, above = node, code.parents.get(node)
    while isinstance(above, cst.Subscript | cst.Attribute | cst.Element | cst.Tuple) and (
        isinstance(above, cst.Element | cst.Tuple) or above.value is top
    ):
        top, above = above, code.parents.get(above)
    return top, above


# -- what is drawn, and what cannot be seen ------------------------------------------------------------------


def _require_nothing_drawn(code: Code, function: Runs) -> None:
    for call in code.nodes(cst.Call, function):
        drawn = code.qualified(call.func).startswith(HOST_DRAWS) or argument(call, "generator") is not None
        if isinstance(call.func, cst.Attribute) and not code.qualified(call.func):
            drawn = drawn or last_name(call.func) in _DRAWS
        if drawn:
            words = f"{code.source(call.func)} is drawn in a forward, and again in backward"
            raise Cannot(words, str(code.path), code.line(call), write=BY_HAND)


def _require_told(codes: Sequence[Code], code: Code, function: Runs) -> None:
    """Raises Cannot where a method of a class that is not the user's may keep something."""
    for name in code.nodes(cst.Name, function):
        member = is_member(code, name) and not name.value.startswith("__")
        if name.value in _SETS and not member and not code.assignments(name, name.value):
            words = f"what {name.value} sets in a forward cannot be told: {_TWICE}"
            raise Cannot(words, str(code.path), code.line(name), write=BY_HAND)
    for call in code.nodes(cst.Call, function):
        if (last_name(call.func) == "getattr" and _is_computed(call)) or _is_looked_up(code, call.func):
            words = f"what {code.source(call)} calls cannot be told"
            raise Cannot(words, str(code.path), code.line(call), write=BY_HAND)
    owner = code.above(function, cst.ClassDef)
    if owner is None or all(_is_known(codes, code, base.value) for base in owner.bases):
        return
    for call in code.nodes(cst.Call, function):
        if isinstance(call.func, cst.Attribute) and is_self(call.func.value) and not _is_users(codes, call):
            words = f"what {code.source(call.func)} of a library's class keeps cannot be told"
            raise Cannot(words, str(code.path), code.line(call), write=BY_HAND)


def _is_computed(call: cst.Call) -> bool:
    return len(call.args) < 2 or text_of(call.args[1].value) is None


def _is_looked_up(code: Code, called: cst.BaseExpression) -> bool:
    """``ACTS[self.act](x)``, and the same by a variable; of what an object holds the parts are followed."""
    if isinstance(called, cst.Name):
        values = [value_of(code, one.node) for one in code.assignments(called, called.value)]
        return any(isinstance(one, cst.Subscript) and _is_looked_up(code, one) for one in values)
    if not isinstance(called, cst.Subscript):
        return False
    base: cst.BaseExpression = called
    while isinstance(base, cst.Subscript | cst.Attribute):
        if is_of_self(base):
            return False
        base = base.value
    bound = code.assignments(base, base.value) if isinstance(base, cst.Name) else ()
    around = code.function_of(called)
    return not bound or any(
        isinstance(one.node, cst.Param) or code.function_of(one.node) is not around for one in bound
    )


def _iterators(codes: Sequence[Code]) -> set[str]:
    """The attributes that are given an iterator anywhere."""
    return {
        target.target.attr.value
        for code in codes
        for assign in code.nodes(cst.Assign)
        for target in assign.targets
        if isinstance(target.target, cst.Attribute) and _is_iterator(code, assign.value)
    }


def _require_nothing_taken(code: Code, function: Runs, iterators: Collection[str]) -> None:
    """Raises Cannot where an iterator that lives on is read: what is taken of it is gone."""
    for node in code.nodes(cst.Attribute, function):
        if node.attr.value in iterators and not code.qualified(node):
            raise _taken(code, node)
    for name in code.nodes(cst.Name, function):
        if is_member(code, name) or _is_local(code, function, name):
            continue
        given = [value_of(code, one.node) for one in code.assignments(name, name.value)]
        if any(one is not None and _is_iterator(code, one) for one in given):
            raise _taken(code, name)


def _taken(code: Code, node: cst.CSTNode) -> Cannot:
    return _set(code, node, f"what is taken of {code.source(node)} in a forward is gone")


def _is_iterator(code: Code, value: cst.BaseExpression) -> bool:
    if not isinstance(value, cst.Call):
        return isinstance(value, cst.GeneratorExp)
    name, whole = last_name(value.func), code.qualified(value.func)
    if whole.startswith("itertools."):
        return True
    if name in _ITERATORS and isinstance(value.func, cst.Name):
        return True
    return any(
        one.name.value == name and any(code.nodes(cst.Yield, one)) for one in code.nodes(cst.FunctionDef)
    )


def _is_known(codes: Sequence[Code], code: Code, base: cst.BaseExpression) -> bool:
    name = last_name(base)
    return code.qualified(base).startswith(_OF_TORCH) or any(
        one.name.value == name for other in codes for one in other.nodes(cst.ClassDef)
    )


def _is_users(codes: Sequence[Code], call: cst.Call) -> bool:
    """Whether a method, or an attribute that is set, has the name in the user's files."""
    name = last_name(call.func)
    return any(
        any(one.name.value == name for one in code.nodes(cst.FunctionDef))
        or any(
            isinstance(one.target, cst.Attribute) and one.target.attr.value == name
            for one in code.nodes(cst.AssignTarget)
        )
        for code in codes
    )
