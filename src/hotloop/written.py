"""What source text says of a value: where an argument was written, and what a setting is compared with.

Works on syntax trees alone, for runs (with the stacks that say who called whom) and for audits.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final

Function = ast.FunctionDef | ast.AsyncFunctionDef
_FUNCTIONS: Final = (ast.FunctionDef, ast.AsyncFunctionDef)
#: ``DataLoader``'s arguments by position.
LOADER_POSITIONS: Final = (
    "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn",
    "pin_memory", "drop_last", "timeout", "worker_init_fn",
)  # fmt: skip
#: What ``DataLoader`` takes where these are not passed (two batches ahead for each worker).
LOADER_DEFAULTS: Final[dict[str, Any]] = {
    "num_workers": 0, "prefetch_factor": 2, "pin_memory": False, "persistent_workers": False,
    "batch_size": 1, "drop_last": False, "shuffle": False,
}  # fmt: skip
#: What a loader without workers refuses.
OF_WORKERS: Final = frozenset(["persistent_workers", "prefetch_factor"])
#: What calls of DataLoader, of its subclasses and of their ``super().__init__`` are called.
_LOADER_CALL: Final = re.compile(r"([A-Z]\w*)?Loader|__init__")
#: Methods that leave a text what it is, but for its case.
_SPELLING: Final = frozenset(["lower", "upper", "strip", "casefold"])


@dataclass(frozen=True, kw_only=True)
class Spelled:
    """How a framework that builds the loaders itself takes their arguments: in a call of ``holder``."""

    holder: str
    names: Mapping[str, str]  # DataLoader's name of an argument: its name there
    evaluation: Mapping[str, str]  # those that evaluation has its own of


_TRANSFORMERS: Final = Spelled(
    holder="TrainingArguments",
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
#: By the package whose function the user's code called when the loader was built.
_SPELLED: Final = {"transformers": _TRANSFORMERS, "trl": _TRANSFORMERS}


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


@lru_cache(maxsize=256)
def tree_of(text: str) -> ast.Module | None:
    """The syntax tree of a text, None where it does not parse."""
    try:
        return ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None


def spelled_by(function: str) -> Spelled | None:
    """How the package of a function (``transformers.trainer:Trainer.train``) takes a loader's arguments."""
    return _SPELLED.get(re.split(r"[.:]", function)[0])


def called_as(function: str) -> str:
    """What a call of a function is called in source: ``timm.data.loader:create_loader`` is ``create_loader``,
    ``webdataset.compat:WebLoader.__init__`` is ``WebLoader``.
    """
    names = function.partition(":")[2].removesuffix(".__init__").split(".")
    return names[-1]


def held_at(sources: Mapping[str, str], spelled: Spelled) -> Written | None:
    """The one call in these sources that the arguments belong to; None for none and for several."""
    found = [
        Written(file=file, line=node.lineno, text=ast.unparse(node.func))
        for file, text in sources.items()
        if spelled.holder in text
        for node in ast.walk(tree_of(text) or ast.Module([], []))
        if isinstance(node, ast.Call) and holds(spelled, ast.unparse(node.func))
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
        call = self._call(at)
        if call is None:
            return None
        given = _keyword(call, name) or _positional(call, LOADER_POSITIONS, name)
        if given is not None:
            return self._resolved(at, given, name)
        spreads = [k.value for k in call.keywords if k.arg is None]
        if not spreads and not any(isinstance(a, ast.Starred) for a in call.args):
            if not _LOADER_CALL.fullmatch(ast.unparse(call.func).rpartition(".")[2]):
                return None  # a library's function made the loader
            here = self._say(at, call, f"{name} is not passed")
            return replace(here, value=LOADER_DEFAULTS.get(name))
        return self._spread(at, spreads, name)

    def _call(self, at: int) -> ast.Call | None:
        """The call that runs in a frame; None where the line has several and the column cannot tell."""
        frame = self._frames[at] if at >= 0 else None
        tree = tree_of(self._sources.get(frame.file, "")) if frame else None
        if frame is None or tree is None:
            return None
        calls = [n for n in ast.walk(tree) if isinstance(n, ast.Call)]
        found = [c for c in calls if (c.lineno, c.col_offset) == (frame.line, frame.col)]
        if frame.col < 0:
            found = [c for c in calls if c.lineno == frame.line]
        if len(found) > 1:  # `Maker().make(1)`: both calls begin there
            below = self._frames[at + 1].func if at + 1 < len(self._frames) else "DataLoader"
            name = below.removesuffix(".__init__").rpartition(".")[2]
            found = [c for c in found if ast.unparse(c.func).rpartition(".")[2] == name]
        return found[0] if len(found) == 1 else None

    def _resolved(self, at: int, node: ast.expr, name: str, depth: int = 4) -> Written | None:
        """The literal behind an expression, else the expression where it stands."""
        here = self._say(at, node, f"{name}={ast.unparse(node)}")
        if isinstance(node, ast.Constant):
            return replace(here, value=node.value)
        if not isinstance(node, ast.Name) or not depth:
            return here
        function = self._function(at)
        parameters = _parameters(function) if function is not None else []
        bound = list(_bindings(function, node.id)) if function is not None else []
        if node.id in parameters and not bound and function is not None:
            return self._passed(at, function, parameters, node.id, depth) or here
        if not bound:
            bound = list(_bindings(tree_of(self._sources[self._frames[at].file]), node.id))
        if len(bound) != 1:
            return here
        behind = self._resolved(at, bound[0], node.id, depth - 1)
        return behind if behind is not None and behind.value is not None else here

    def _passed(
        self, at: int, function: Function, parameters: list[str], name: str, depth: int
    ) -> Written | None:
        """What the caller of a function gave for a parameter, or the parameter's default."""
        call = self._call(at - 1)
        if call is None or any(k.arg is None for k in call.keywords):
            return None
        bound = parameters[1:] if parameters[:1] in (["self"], ["cls"]) else parameters
        given = _keyword(call, name) or _positional(call, bound, name)
        if given is not None:
            return self._resolved(at - 1, given, name, depth - 1)
        default = _default(function, name)
        if default is None or any(isinstance(a, ast.Starred) for a in call.args):
            return None
        text = f"{name}={ast.unparse(default)} is the default of {function.name}()"
        value = default.value if isinstance(default, ast.Constant) else None
        return Written(file=self._frames[at].file, line=default.lineno, text=text, value=value)

    def _spread(self, at: int, spreads: list[ast.expr], name: str) -> Written | None:
        """``**options``: a dict of literals in the same function, or the caller's own keywords."""
        function = self._function(at)
        for node in spreads:
            if not isinstance(node, ast.Name) or function is None:
                continue
            if function.args.kwarg is not None and function.args.kwarg.arg == node.id:
                call = self._call(at - 1)
                given = _keyword(call, name) if call is not None else None
                if given is not None:
                    return self._resolved(at - 1, given, name)
            for value in _bindings(function, node.id):
                entry = _entry(value, name)
                if entry is not None:
                    return self._resolved(at, entry, name)
        return None

    def _function(self, at: int) -> Function | None:
        frame = self._frames[at]
        tree = tree_of(self._sources.get(frame.file, ""))
        name = frame.func.rpartition(".")[2]
        for node in ast.walk(tree) if tree is not None else ():
            if isinstance(node, _FUNCTIONS) and node.name == name:
                first = min([node.lineno, *(d.lineno for d in node.decorator_list)])
                if first == frame.func_line:
                    return node
        return None

    def _say(self, at: int, node: ast.expr, text: str) -> Written:
        return Written(file=self._frames[at].file, line=node.lineno, text=text[:80])


def _keyword(call: ast.Call, name: str) -> ast.expr | None:
    return next((k.value for k in call.keywords if k.arg == name), None)


def _positional(call: ast.Call, names: Sequence[str], name: str) -> ast.expr | None:
    at = names.index(name) if name in names else len(call.args)
    if at >= len(call.args) or any(isinstance(a, ast.Starred) for a in call.args[: at + 1]):
        return None
    return call.args[at]


def _parameters(function: Function) -> list[str]:
    arguments = function.args
    return [a.arg for a in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _default(function: Function, name: str) -> ast.expr | None:
    arguments = function.args
    plain = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(reversed(plain), reversed(arguments.defaults), strict=False),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    return next((value for argument, value in pairs if argument.arg == name), None)


def _bindings(scope: ast.AST | None, name: str) -> Iterator[ast.expr]:
    """The expressions assigned to a name in a function or module, without what is inside it."""
    waiting: list[ast.AST] = list(getattr(scope, "body", ()))
    while waiting:
        node = waiting.pop()
        if isinstance(node, (*_FUNCTIONS, ast.ClassDef, ast.Lambda)):
            continue
        targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
        if any(isinstance(t, ast.Name) and t.id == name for t in targets):
            value = getattr(node, "value", None)
            # A loop's target has no value of its own: a name that leads nowhere.
            yield value if isinstance(value, ast.expr) else ast.Name(id="", lineno=1, col_offset=0)
        waiting += ast.iter_child_nodes(node)


def _entry(node: ast.expr, name: str) -> ast.expr | None:
    if isinstance(node, ast.Dict):
        pairs = zip(node.keys, node.values, strict=True)
        return next((v for k, v in pairs if isinstance(k, ast.Constant) and k.value == name), None)
    if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "dict":
        return _keyword(node, name)
    return None


# What a setting is compared with


def never_equal(trees: Mapping[str, ast.Module], key: str, value: Any) -> Written | None:
    """The place where the setting ``key`` is compared, if no comparison of it can ever be true of ``value``.

    None where the setting is used in any other way than to be compared with literals, or shown.
    """
    compared: list[tuple[str, ast.Compare, tuple[Any, ...]]] = []
    for file, tree in trees.items():
        parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        for read in _reads(tree, key):
            uses = list(_uses(tree, parents, read))
            if not all(isinstance(use, ast.Compare) for use in uses):
                return None
            for use in uses:
                assert isinstance(use, ast.Compare)
                constants = _compared_with(use)
                if constants is None or any(_same(value, constant) for constant in constants):
                    return None
                compared.append((file, use, constants))
    if not compared:
        return None
    file, node, constants = min(compared, key=lambda entry: (entry[0], entry[1].lineno))
    words = " or ".join(repr(constant) for constant in constants[:3])
    return Written(file=file, line=node.lineno, text=f"compares {key} with {words}")


def _reads(tree: ast.Module, key: str) -> Iterator[ast.expr]:
    """``cfg.key``, ``cfg["key"]``, ``cfg.get("key")``."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and node.attr == key and isinstance(node.ctx, ast.Load):
            yield node
        elif isinstance(node, ast.Subscript) and isinstance(node.ctx, ast.Load):
            if isinstance(node.slice, ast.Constant) and node.slice.value == key:
                yield node
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
            first = node.args[0]
            if node.func.attr == "get" and isinstance(first, ast.Constant) and first.value == key:
                yield node


def _uses(
    tree: ast.Module, parents: Mapping[ast.AST, ast.AST], read: ast.expr, depth: int = 3
) -> Iterator[ast.AST]:
    """What is done with a value: through the names it is kept in, without prints and messages."""
    above = parents.get(read)
    inner = above
    while isinstance(inner, ast.Attribute) and inner.attr in _SPELLING:
        read, inner = inner, parents.get(inner)
        if isinstance(inner, ast.Call):
            read, inner = inner, parents.get(inner)
        above = inner
    if isinstance(above, ast.FormattedValue) or _is_message(above):
        return
    if isinstance(above, ast.Assign) and len(above.targets) == 1 and depth:
        target = above.targets[0]
        if isinstance(target, ast.Name | ast.Attribute):
            name = ast.unparse(target)
            for node in ast.walk(tree):
                if not isinstance(node, ast.Name | ast.Attribute) or not isinstance(node.ctx, ast.Load):
                    continue
                if ast.unparse(node) == name:
                    yield from _uses(tree, parents, node, depth - 1)
            return
    if above is not None:
        yield above


def _is_message(node: ast.AST | None) -> bool:
    if not isinstance(node, ast.Call):
        return False
    name = ast.unparse(node.func).rpartition(".")[2]
    return name in ("print", "info", "debug", "warning", "str", "repr")


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
