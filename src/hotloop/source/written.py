"""What source text says of a value: where an argument was written, and what a setting is compared with.

Works on syntax trees alone, for runs (with the stacks that say who called whom) and for audits.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from hotloop.source.code import Code, code_of
from hotloop.source.nodes import (
    Function,
    argument,
    default_of,
    entry,
    has_spread,
    last_name,
    parameters_of,
    spread_of,
    text_of,
)
from hotloop.source.values import looked_up
from hotloop.torch_facts import LOADER_DEFAULTS, LOADER_POSITIONS

#: What calls of DataLoader, of its subclasses and of their ``super().__init__`` are called.
_LOADER_CALL: Final = re.compile(r"([A-Z]\w*)?Loader|__init__")
#: Methods that leave a text what it is, but for its case.
_SPELLING: Final = frozenset(["lower", "upper", "strip", "casefold"])
#: Calls that only show a value.
_SHOWS: Final = ("print", "info", "debug", "warning", "str", "repr")


@dataclass(frozen=True, kw_only=True)
class Spelled:
    """How a framework that builds the loaders itself takes their arguments: in a call of ``holder``."""

    holder: str
    words: str  # what that is called
    names: Mapping[str, str]  # DataLoader's name of an argument: its name there
    evaluation: Mapping[str, str]  # those that evaluation has its own of


_TRANSFORMERS: Final = Spelled(
    holder="TrainingArguments",
    words="TrainingArguments",
    names={
        "num_workers": "dataloader_num_workers",
        "persistent_workers": "dataloader_persistent_workers",
        "prefetch_factor": "dataloader_prefetch_factor",
        "pin_memory": "dataloader_pin_memory",
        "drop_last": "dataloader_drop_last",
        "batch_size": "per_device_train_batch_size",
    },
    evaluation={"batch_size": "per_device_eval_batch_size"},
)
_ULTRALYTICS: Final = Spelled(
    holder="train",
    words="train() or on the command line of yolo",
    names={"num_workers": "workers", "batch_size": "batch"},
    evaluation={},
)
#: By the package whose function the user's code called when the loader was built.
_SPELLED: Final = {"transformers": _TRANSFORMERS, "trl": _TRANSFORMERS, "ultralytics": _ULTRALYTICS}


@dataclass(frozen=True, kw_only=True)
class Written:
    """A place in source and what stands there, in a few words. ``value`` is set where it is a literal."""

    file: str
    line: int
    text: str
    value: Any = None


@dataclass(frozen=True)
class Call:
    """One frame of a call: where its function was called from. ``col`` -1: not known."""

    file: str
    line: int
    func: str
    func_line: int
    col: int = -1


def refused_beside(name: str, value: Any) -> tuple[str, str]:
    """Why a call that also builds a loader without workers cannot be given one of ``OF_WORKERS``, and what to
    write instead.
    """
    why = f"the same call builds a loader without workers, which refuses {name}"
    return why, f"{name}={value!r} where num_workers > 0"


def spelled_by(function: str) -> Spelled | None:
    """How the package of a function (``transformers.trainer:Trainer.train``) takes a loader's arguments."""
    return _SPELLED.get(re.split(r"[.:]", function)[0])


def called_as(function: str) -> str:
    """What a call of a function is called in source: ``timm.data.loader:create_loader`` is ``create_loader``,
    ``webdataset.compat:WebLoader.__init__`` is ``WebLoader``.
    """
    return function.partition(":")[2].removesuffix(".__init__").split(".")[-1]


def called_at(sources: Mapping[str, str], word: str, meant: Callable[[str], bool]) -> Written | None:
    """The one call in these sources with ``word`` in its name that is ``meant``; None for none or several."""
    found = [
        Written(file=file, line=node.lineno, text=ast.unparse(node.func))
        for file, text in sources.items()
        if word in text
        for code in [code_of(text)]
        for node in (code.nodes(ast.Call) if code is not None else ())
        if meant(last_name(node.func))
    ]
    return found[0] if len(found) == 1 else None


def holds(spelled: Spelled, called: str) -> bool:
    """Whether a call of this name takes the arguments: ``Seq2SeqTrainingArguments`` as well."""
    return called.rpartition(".")[2].endswith(spelled.holder)


def loader_argument(sources: Mapping[str, str], frames: Sequence[Call], name: str) -> Written | None:
    """Where the value of a DataLoader's argument comes from: its literal, or the expression that is passed.

    ``frames`` are the user's, outermost first; the last one called ``DataLoader``. None where that cannot
    be told.
    """
    return _Finder(sources, frames).argument(len(frames) - 1, name)


class _Finder:
    """Follows one argument from the innermost call outwards."""

    def __init__(self, sources: Mapping[str, str], frames: Sequence[Call]) -> None:
        self._sources, self._frames = sources, frames

    def argument(self, at: int, name: str) -> Written | None:
        code, call = self._code(at), self._call(at)
        if code is None or call is None:
            return None
        given = _given(call, LOADER_POSITIONS, name)
        if given is not None:
            return self._resolved(at, code, given, name)
        if has_spread(call):
            return self._spread(at, code, call, name)
        if not _LOADER_CALL.fullmatch(last_name(call.func)):
            return None  # a library's function made the loader
        return replace(self._say(at, call, f"{name} is not passed"), value=LOADER_DEFAULTS.get(name))

    def _code(self, at: int) -> Code | None:
        return code_of(self._sources.get(self._frames[at].file, "")) if at >= 0 else None

    def _call(self, at: int) -> ast.Call | None:
        """The call that runs in a frame; None where the line has several and the column cannot tell."""
        code = self._code(at)
        if code is None:
            return None
        below = self._frames[at + 1].func if at + 1 < len(self._frames) else "DataLoader"
        name = below.removesuffix(".__init__").rpartition(".")[2]
        return code.call_at(self._frames[at].line, self._frames[at].col, name=name)

    def _function(self, at: int, code: Code) -> Function | None:
        return code.function_at(self._frames[at].func, self._frames[at].func_line)

    def _resolved(self, at: int, code: Code, node: ast.expr, name: str, depth: int = 4) -> Written | None:
        """The literal behind an expression, else the expression where it stands."""
        here = self._say(at, node, f"{name}={ast.unparse(node)}")
        if isinstance(node, ast.Constant):
            return replace(here, value=node.value)
        bound = code.bindings(node, node.id) if isinstance(node, ast.Name) and depth else []
        if len(bound) != 1:
            return here
        function = self._function(at, code)
        if isinstance(bound[0].node, ast.arg) and function is not None:
            return self._passed(at, function, bound[0].name, depth) or here
        value = bound[0].value
        behind = self._resolved(at, code, value, bound[0].name, depth - 1) if value is not None else None
        return behind if behind is not None and behind.value is not None else here

    def _passed(self, at: int, function: Function, name: str, depth: int) -> Written | None:
        """What the caller of a function gave for a parameter, or the parameter's default."""
        outer, call = self._code(at - 1), self._call(at - 1)
        if outer is None or call is None or spread_of(call) is not None:
            return None
        parameters = [one.arg for one in parameters_of(function)]
        given = _given(call, parameters[parameters[0] in ("self", "cls") :], name)
        if given is not None:
            return self._resolved(at - 1, outer, given, name, depth - 1)
        default = default_of(function, name)
        if default is None or has_spread(call):
            return None
        text = f"{name}={ast.unparse(default)} is the default of {function.name}()"
        value = default.value if isinstance(default, ast.Constant) else None
        return Written(file=self._frames[at].file, line=default.lineno, text=text, value=value)

    def _spread(self, at: int, code: Code, call: ast.Call, name: str) -> Written | None:
        """``**options``: a dict of literals in the same function, or the caller's own keywords."""
        function, outer = self._function(at, code), self._code(at - 1)
        for node in (keyword.value for keyword in call.keywords if keyword.arg is None):
            if not isinstance(node, ast.Name) or function is None:
                continue
            above = self._call(at - 1)
            rest = function.args.kwarg
            given = argument(above, name) if above is not None and rest and rest.arg == node.id else None
            if given is not None and outer is not None:
                return self._resolved(at - 1, outer, given, name)
            for one in code.bindings(node, node.id):
                found = entry(one.value, name)
                if found is not None:
                    return self._resolved(at, code, found, name)
        return None

    def _say(self, at: int, node: ast.expr, text: str) -> Written:
        return Written(file=self._frames[at].file, line=node.lineno, text=text[:80])


def _given(call: ast.Call, names: Sequence[str], name: str) -> ast.expr | None:
    return argument(call, name, names.index(name) if name in names else None)


# What a setting is compared with


def never_equal(codes: Mapping[str, Code], key: str, value: Any) -> Written | None:
    """The place where the setting ``key`` is compared, if no comparison of it can ever be true of ``value``.

    None where the setting is used in any other way than to be compared with literals, or shown.
    """
    compared: list[tuple[str, ast.Compare, tuple[Any, ...]]] = []
    for file, code in codes.items():
        for read in _reads(code, key):
            for use in _uses(code, read):
                constants = _compared_with(use) if isinstance(use, ast.Compare) else None
                if constants is None or any(_same(value, constant) for constant in constants):
                    return None
                assert isinstance(use, ast.Compare)
                compared.append((file, use, constants))
    if not compared:
        return None
    file, node, constants = min(compared, key=lambda found: (found[0], found[1].lineno))
    words = " or ".join(repr(constant) for constant in constants[:3])
    return Written(file=file, line=node.lineno, text=f"compares {key} with {words}")


def _reads(code: Code, key: str) -> Iterator[ast.expr]:
    """``cfg.key``, ``cfg["key"]``, ``cfg.get("key")``."""
    for node in code.nodes(ast.expr):
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            continue
        is_key = isinstance(node, ast.Attribute) and node.attr == key
        is_key = is_key or (isinstance(node, ast.Subscript) and text_of(node.slice) == key)
        if is_key or (looked_up(node) or ("", None))[0] == key:
            yield node


def _uses(code: Code, read: ast.expr, depth: int = 3) -> Iterator[ast.AST]:
    """What is done with a value: through the names it is kept in, without prints and messages."""
    above = code.parents.get(read)
    while isinstance(above, ast.Attribute) and above.attr in _SPELLING:
        above = code.parents.get(above)
        above = code.parents.get(above) if isinstance(above, ast.Call) else above
    if isinstance(above, ast.FormattedValue) or (
        isinstance(above, ast.Call) and last_name(above.func) in _SHOWS
    ):
        return
    target = above.targets[0] if isinstance(above, ast.Assign) and len(above.targets) == 1 else None
    if isinstance(target, ast.Name | ast.Attribute) and depth:
        name = ast.unparse(target)
        nodes: list[ast.Name | ast.Attribute] = [*code.nodes(ast.Name), *code.nodes(ast.Attribute)]
        for node in nodes:
            same = last_name(node) == last_name(target) and ast.unparse(node) == name
            if same and isinstance(node.ctx, ast.Load):
                yield from _uses(code, node, depth - 1)
    elif above is not None:
        yield above


def _compared_with(node: ast.Compare) -> tuple[Any, ...] | None:
    """The literals that the comparison is true of; None where it is of another kind."""
    if len(node.ops) != 1 or not isinstance(node.ops[0], ast.Eq | ast.In):
        return None
    constants: list[Any] = []
    for side in (node.left, node.comparators[0]):
        if isinstance(side, ast.Constant):
            constants.append(side.value)
        elif isinstance(side, ast.Tuple | ast.List | ast.Set):
            constants += [e.value for e in side.elts if isinstance(e, ast.Constant)]
            if len(constants) != len(side.elts):
                return None
    return tuple(constants) or None


def _same(value: Any, constant: Any) -> bool:
    if isinstance(value, str) and isinstance(constant, str):
        return value.casefold() == constant.casefold()
    return bool(value == constant)
