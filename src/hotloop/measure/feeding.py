"""Passes over a loader in evaluation mode whose results are trained on: pseudo labels, features of a frozen
network, losses by which samples are chosen.

The source is followed from the model's call to where training reads a batch, calls the model or asks for
gradients: through names, lists, datasets, attributes and files. A number for a message, a schedule or a best
checkpoint ends before that.
"""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from hotloop.measure.dataflow import innermost_loop
from hotloop.measure.environments import steps_environment
from hotloop.measure.evaluation import Events, Lives
from hotloop.measure.loop import LOGGING_TEXT, FunctionKey, Loop
from hotloop.measure.paths import (
    bound_names,
    handed,
    held_by_class,
    imported,
    is_plain,
    last_name,
    made_from,
    made_of,
    overlap,
    path_of,
    sample_classes,
    texts,
    users,
)
from hotloop.measure.places import Frame, Stack
from hotloop.measure.spans import Bools, Ints, Spans
from hotloop.measure.statements import FunctionNode, Spot, own_nodes
from hotloop.measure.ways import Ways
from hotloop.record import rows as row

#: Functions entered at a call; None where it is the observed one itself.
_Entered = set[FunctionKey | None]

#: So many statements and calls are followed; of a source that takes more nothing is said.
MOST_STATEMENTS = 20_000
#: Functions that no stack leads through are entered so deep.
_DEEPEST = 4
#: So many relations between objects count as a statement.
_RELATED = 50

#: What these give back is a number or a word.
_NUMBERS = frozenset(["item", "float", "int", "bool", "len", "str", "repr", "format", "isinstance", "print"])
#: Of these the values that an action has.
_VALUES = frozenset(["item", "float", "int", "bool"])
_SHAPES = frozenset(["shape", "size", "dim", "ndim", "numel", "device", "dtype"])
_MEASURES = re.compile(
    r"(^|_)(acc|accuracy|auc|auroc|f1|iou|miou|dice|bleu|rouge|psnr|ssim|fid|recall|precision|metrics?|mse|mae"
    r"|rmse|r2|wer|cer|perplexity|ppl|confusion|report)(_|\d|$)",
    re.I,
)
#: Methods that keep what they are given in what they are called on, whatever becomes of their answer.
_KEEPS = frozenset(["append", "extend", "insert", "appendleft", "add", "put", "setdefault"])
#: Methods of models, optimizers and schedules: no result is kept by what they are called on.
_INERT = frozenset(
    [
        "step",
        "backward",
        "zero_grad",
        "train",
        "eval",
        "to",
        "cuda",
        "cpu",
        "load_state_dict",
        "write",
        "close",
    ]
)
_WRITES = frozenset(
    ["save", "savez", "savez_compressed", "savetxt", "tofile", "dump", "to_csv", "to_parquet", "to_pickle"]
)
#: The last part of a file's name: after a slash, or with an ending.
_FILE_NAME = re.compile(r"(?:^|[/\\])([^/\\\s]*\w\.[A-Za-z]\w{0,7})$|[/\\]([^/\\\s]+)$")
#: Without arguments each makes one number of all it is called on, or is given.
_REDUCTIONS = frozenset(["sum", "mean", "max", "min", "norm", "std", "var", "median", "any", "all"])
_LOSS = re.compile(r"loss|criterion|cross_entropy", re.I)
#: Only the first thing that they are given is passed on.
_PASS_FIRST = frozenset(["tqdm", "trange", "enumerate", "track"])
#: What no batch is made of, whatever it is told.
_NO_DATA = re.compile(
    r"(^|_)(opt|optim|optimi[sz]er|sched|scheduler|scaler|logger|writer|history|hist|tuner|study|trial"
    r"|meters?|stopper|stopping|stop|pbar|progress|tracker|wandb)(_|\d|$)",
    re.I,
)
#: What batches are made of.
_DATA = re.compile(
    r"data|dataset|loader|sampler|(^|_)(ds|bank|memory|mem|buffer|replay|pool|queue|cache|store|samples?|batch(es)?"
    r"|images?|features?|labels?|targets?|index|indices|weights|trainset)(_|\d|$)",
    re.I,
)
#: Settings and states: of one of their parts the others are not made.
_OF_PARTS = re.compile(r"(^|_)(args|cfg|conf|config|opts?|options|hparams|settings|state|params)$", re.I)


@dataclass
class _Held:
    """What holds results at one point of a function, by path: ``name``, ``name.attribute``, a file's name."""

    paths: set[str] = field(default_factory=set)
    #: Paths that were changed in place: who handed the object over sees it.
    changed: set[str] = field(default_factory=set)
    returned: list[tuple[bool, ...]] = field(default_factory=list)
    #: Parameters -> those that they were made of.
    made_of: dict[str, frozenset[str]] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Fed:
    """What makes that on which training goes on: forwards, and passes over loaders they are given."""

    forwards: Bools  # [rows]
    passes: Bools  # [lives]


def trained_passes(
    spans: Spans, events: Events, lives: Lives, eval_forward: Bools, ways: Ways, loop: Loop
) -> Fed:
    """Those of the forwards for evaluation whose results are trained on, by loader, or by call site."""
    fed = Fed(forwards=np.zeros(len(spans), np.bool_), passes=np.zeros(len(lives), np.bool_))
    rows = np.flatnonzero(eval_forward)
    items = np.flatnonzero(((lives.of_row >= 0) & (spans.kind == row.FETCH) & events.used) | events.work)
    before = np.searchsorted(spans.start[items], spans.start[rows]) - 1
    life = np.append(lives.of_row[items], -1)[before]
    given = (life >= 0) & ~np.append(lives.trains, False)[life]
    feeds = functools.cache(functools.partial(is_trained_on, loop))
    for site in np.unique(spans.site[rows[~given]]):
        mine = rows[~given & (spans.site[rows] == site)]
        fed.forwards[mine] = any(map(feeds, _ways(spans, mine, ways)))
    rows, life = rows[given], life[given]
    loader = np.where(lives.loader > 0, lives.loader, -lives.iterator - 1)
    for number in np.unique(loader[life]):
        mine = loader[life] == number
        if any(map(feeds, _ways(spans, rows[mine], ways))):
            fed.forwards[rows[mine]] = True
            fed.passes[life[mine]] = True
    return fed


def _ways(spans: Spans, rows: Ints, ways: Ways) -> Iterator[Stack]:
    for site in np.unique(spans.site[rows]):
        chosen = np.zeros(len(spans), np.bool_)
        chosen[rows[spans.site[rows] == site]] = True
        yield from ways.of([int(site)], chosen)


def rollouts(spans: Spans, rows: Bools, ways: Ways, loop: Loop) -> Bools:
    """Those of the rows, forwards without gradients, in which a policy is asked for what an environment is
    given: its answers are made into batches. None where a loader drives the steps.
    """
    result = np.zeros(len(spans), np.bool_)
    if loop.by_loader or not rows.any():
        return result
    asked = {
        int(site): list(_ways(spans, np.flatnonzero(rows & (spans.site == site)), ways))
        for site in np.unique(spans.site[rows])
    }
    found = [(stack, at) for stacks in asked.values() for stack in stacks if (at := _stepped(loop, stack))]
    for site, stacks in asked.items():
        if stacks and all(any(_together(loop, one, *other) for other in found) for one in stacks):
            result |= rows & (spans.site == site)
    return result


def _stepped(loop: Loop, stack: Stack) -> Frame | None:
    """Where an environment is given what a stack's call returns, if its answer is trained on."""
    steps = _follow(loop, stack, to_environment=True)
    return steps[-1] if steps and _follow(loop, Stack(frames=steps), numbers=True) is not None else None


def _together(loop: Loop, one: Stack, other: Stack, stepped: Frame) -> bool:
    """Whether a call is that of another stack, or in the same loop around an environment's step, where that
    loop only collects.
    """
    apart = _apart(other.frames, _trained(loop))
    if apart is not None and one.frames[: apart + 1] == other.frames[: apart + 1]:
        return True
    source = loop.source(stepped.file)
    node = source.function(stepped.func, stepped.func_line) if source is not None else None
    around = innermost_loop(node, [stepped.line]) if node is not None else None
    if around is None:
        return False
    within = range(around.lineno, (around.end_lineno or around.lineno) + 1)
    if any(line in within for line in loop.anchors(stepped.function).lines):
        return False
    return any(frame.function == stepped.function and frame.line in within for frame in one.frames)


class _FoundError(Exception):
    """What was looked for, with the frames that lead there."""

    def __init__(self, frames: tuple[Frame, ...] = ()) -> None:
        super().__init__()
        self.frames = frames


class _TooMuchError(Exception):
    """More statements than are followed."""


def is_trained_on(loop: Loop, stack: Stack) -> bool:
    """Whether what the innermost call of a stack gives reaches training, as far as the source tells."""
    return _follow(loop, stack) is not None


def _follow(
    loop: Loop, stack: Stack, *, to_environment: bool = False, numbers: bool = False
) -> tuple[Frame, ...] | None:
    """The frames of the environment's step (``to_environment``) or none, where the results of a stack's call
    arrive; None where they do not. ``numbers`` are results too.
    """
    trained = _trained(loop)
    apart = _apart(stack.frames, trained)
    if apart is None:
        return None
    walk = _Walk(loop, stack.frames, trained, apart)
    walk.to_environment, walk.numbers = to_environment, numbers or to_environment
    try:
        outermost = stack.frames[0].function
        walk.enter(outermost, walk.shared if outermost[1] == "<module>" else _Held(), at=0)
    except _FoundError as found:
        return found.frames
    except (_TooMuchError, RecursionError):
        pass
    return None


def _trained(loop: Loop) -> list[tuple[Frame, ...]]:
    return [
        one.frames for name in ("forward", "backward", "update", "fetch") for one in loop.sites.get(name, ())
    ]


def _apart(frames: Sequence[Frame], trained: Sequence[Sequence[Frame]]) -> int | None:
    """Index of the first frame in which a stack leaves the ways of training; None where it never does, or
    never was on one.
    """
    shared = 0
    for other in trained:
        same = 0
        while same < min(len(frames), len(other)) and frames[same] == other[same]:
            same += 1
        shared = max(shared, same)
    if shared == len(frames) or not any(
        len(other) > shared and other[shared].function == frames[shared].function for other in trained
    ):
        return None
    return shared


class _Walk:
    """The functions of a stack and of training, followed from the outermost one."""

    def __init__(
        self, loop: Loop, frames: Sequence[Frame], trained: Sequence[Sequence[Frame]], apart: int
    ) -> None:
        self.loop = loop
        self.frames = frames
        self.apart = apart
        self.to_environment = self.numbers = False
        #: Files with results, by what their name is made of.
        self.files: set[str] = set()
        #: What holds results at the level of modules.
        self.shared = _Held()
        self._under: list[FunctionKey] = []
        self._left = MOST_STATEMENTS
        self._calls: dict[FunctionKey, dict[Spot, _Entered]] = defaultdict(lambda: defaultdict(set))
        for stack in trained:
            for frame, below in zip(stack, [*stack[1:], None], strict=True):
                entered = self._calls[frame.function][frame.line, frame.col]
                entered.add(below.function if below is not None else None)
        #: File -> name -> lines of its functions.
        self._lines: dict[str, dict[str, set[int]]] = {}
        self._matched: dict[tuple[FunctionKey, int], dict[ast.Call, _Entered]] = {}

    def enter(
        self, key: FunctionKey, held: _Held, *, at: int | None, deep: int = 0, way: tuple[Frame, ...] = ()
    ) -> bool:
        """Follows a function from what it is given; ``held`` becomes what it leaves. ``at``: its place in the
        stack. ``way``: who called it. False where its source is not known.
        """
        node = self.node(key)
        if node is None or key in self._under or deep > _DEEPEST:
            return False
        self._under.append(key)
        try:
            _Body(self, key, node, held, at=at, deep=deep, way=way).run()
        finally:
            self._under.pop()
        return True

    def node(self, key: FunctionKey) -> FunctionNode | None:
        """A function's source."""
        source = self.loop.source(key[0])
        return source.function(key[1], key[2]) if source is not None else None

    def count(self, number: int = 1) -> None:
        """One more statement or call, or work of so many."""
        self._left -= number
        if self._left < 0:
            raise _TooMuchError

    def calls(self, key: FunctionKey, node: FunctionNode) -> Mapping[ast.Call, _Entered]:
        """Calls of a function through which training went -> functions entered there, None for torch."""
        return self._match(key, node, -1, self._calls.get(key, {}))

    def asked(self, key: FunctionKey, node: FunctionNode, at: int) -> Mapping[ast.Call, _Entered]:
        """The same for the frame of the stack at a place in it."""
        frame = self.frames[at]
        below: _Entered = {self.frames[at + 1].function if at + 1 < len(self.frames) else None}
        return self._match(key, node, at, {(frame.line, frame.col): below})

    def _match(
        self, key: FunctionKey, node: FunctionNode, at: int, spots: Mapping[Spot, _Entered]
    ) -> Mapping[ast.Call, _Entered]:
        if (key, at) not in self._matched:
            found: dict[ast.Call, _Entered] = defaultdict(set)
            calls = [one for one in own_nodes(node) if isinstance(one, ast.Call)]
            for spot, entered in spots.items():
                for call in _at(calls, spot, entered):
                    found[call] |= entered
            self._matched[key, at] = found
        return self._matched[key, at]

    def heads(self, key: FunctionKey) -> frozenset[int]:
        """Lines of a function at which training asks for batches."""
        return frozenset(line for line, _ in self.loop.lines.get("fetch", {}).get(key, ()))

    def reads(self, key: FunctionKey, call: ast.Call) -> bool:
        """Whether a class or function of the file, called by its name, names a file with results."""
        source = self.loop.source(key[0])
        name = last_name(call.func)
        return source is not None and any(
            node.name == name and not self.files.isdisjoint(map(_file_name, texts(node)))
            for node in source.tree.body
            if isinstance(node, ast.ClassDef | ast.FunctionDef)
        )

    def named(self, key: FunctionKey, call: ast.Call) -> FunctionKey | None:
        """The one function of the file that a call by a plain name can mean."""
        source = self.loop.source(key[0])
        if source is None or not isinstance(call.func, ast.Name):
            return None
        if key[0] not in self._lines:
            lines = self._lines[key[0]] = defaultdict(set)
            for (own, _), node in source.functions.items():
                if not isinstance(node, ast.Module) and node not in source.classes:
                    lines[own].add(node.lineno)
        name = call.func.id
        found = self._lines[key[0]].get(name, set())
        return (key[0], name, min(found)) if len(found) == 1 else None


def _at(calls: Sequence[ast.Call], spot: Spot, entered: _Entered) -> list[ast.Call]:
    """The calls that a spot can mean: of ``a.b().c()`` all begin at one place."""
    names = {_last_name_of(key) for key in entered if key is not None}
    line, column = spot
    near = [one for one in calls if one.lineno <= line <= (one.end_lineno or one.lineno)]
    exact = [one for one in near if (one.lineno, one.col_offset) == spot]
    by_name = [one for one in exact or near if last_name(one.func) in names]
    if by_name:
        return by_name
    if column < 0:
        return [one for one in near if one.lineno == line and not _holds_call(one)]
    around = exact or [one for one in near if (one.lineno, one.col_offset) < spot < _end(one)]
    return [min(around, key=_end)] if around else []


def _holds_call(node: ast.Call) -> bool:
    return any(isinstance(one, ast.Call) for child in ast.iter_child_nodes(node) for one in ast.walk(child))


def _end(node: ast.expr) -> Spot:
    return node.end_lineno or node.lineno, node.end_col_offset or 0


class _Body:
    """One function, from its first statement to its last."""

    def __init__(
        self,
        walk: _Walk,
        key: FunctionKey,
        node: FunctionNode,
        held: _Held,
        *,
        at: int | None,
        deep: int,
        way: tuple[Frame, ...],
    ) -> None:
        self.walk = walk
        self.way = way
        self.key = key
        self.node = node
        self.held = held
        self.at = at
        self.deep = deep
        self.trained = walk.calls(key, node)
        self.asked = walk.asked(key, node, at) if at is not None else {}
        self.heads = walk.heads(key)
        #: What is done apart from training reads no result for it: a function may do both.
        self.trains = deep == 0 and (at is None or at <= walk.apart) and not walk.to_environment
        self.effects = _effects(node)
        source = walk.loop.source(key[0])
        owner = source.classes.get(node) if source is not None else None
        readers = sample_classes(source.tree) if source is not None else frozenset()
        held_by_owner = held_by_class(owner, readers) if owner is not None else {}
        self.relations = [one for one in (made_of(node, readers), held.made_of, held_by_owner) if one]
        self.modules = imported(source.tree) if source is not None else frozenset()
        # What a function inside another one does not bind is the other one's.
        self.bound = None if "<locals>" in key[1] or isinstance(node, ast.Module) else bound_names(node)
        self.because = 0  # inside what runs for some results only

    def run(self) -> None:
        self.block(self.node.body)

    # -- statements

    def block(self, statements: Sequence[ast.stmt]) -> None:
        for one in statements:
            self.walk.count()
            self.statement(one)

    def statement(self, node: ast.stmt) -> None:
        match node:
            case ast.FunctionDef() | ast.AsyncFunctionDef() | ast.ClassDef():
                return
            case ast.Assign(targets=targets, value=value):
                if self.walk.to_environment:
                    self.step(node, value)
                parts = self.parts(value)
                for target in targets:
                    self.bind(target, parts, value)
            case ast.AnnAssign(target=target, value=ast.expr() as value):
                self.bind(target, self.parts(value), value)
            case ast.AugAssign(target=target, value=value):
                if self.carries(value) or (self.because and isinstance(target, ast.Subscript)):
                    self.take(path_of(target), changed=True)
            case ast.Expr(value=value):
                self.carries(value)
            case ast.Return(value=ast.expr() as value):
                self.held.returned.append(self.parts(value))
            case ast.For() | ast.AsyncFor():
                carries = self.carries(node.iter)
                last = node.iter.end_lineno or node.lineno
                if carries and self.trains and any(node.lineno <= line <= last for line in self.heads):
                    raise _FoundError
                for _ in range(2):
                    self.bind(node.target, (carries,), node.iter)
                    self.block(node.body)
                self.block(node.orelse)
            case ast.While():
                for _ in range(2):
                    self.branch(node.test, node.body, node.orelse)
            case ast.If():
                self.branch(node.test, node.body, node.orelse)
            case ast.With() | ast.AsyncWith():
                for item in node.items:
                    carries = self.carries(item.context_expr)
                    if item.optional_vars is not None:
                        self.bind(item.optional_vars, (carries,), item.context_expr)
                self.block(node.body)
            case ast.Try():
                for part in (node.body, *(one.body for one in node.handlers), node.orelse, node.finalbody):
                    self.block(part)
            case ast.Match():
                for case in node.cases:
                    self.block(case.body)

    def frame(self, call: ast.Call) -> Frame:
        """The frame of this function in which a call is made."""
        return Frame(self.key[0], call.lineno, self.key[1], self.key[2], call.col_offset)

    def step(self, node: ast.Assign, value: ast.expr) -> None:
        """Ends where an environment is given results."""
        call = value.value if isinstance(value, ast.Await) else value
        if isinstance(call, ast.Call) and steps_environment(ast.unparse(node)) and self.any_of(call.args):
            raise _FoundError((*self.way, self.frame(call)))

    def branch(self, test: ast.expr, body: Sequence[ast.stmt], orelse: Sequence[ast.stmt]) -> None:
        """Either of two blocks: what holds results after one of them does."""
        because = self.carries(test)
        self.because += because
        before = set(self.held.paths)
        self.block(body)
        after, self.held.paths = self.held.paths, before
        self.block(orelse)
        self.held.paths |= after
        self.because -= because

    # -- what holds results

    def bind(self, target: ast.expr, parts: tuple[bool, ...], value: ast.expr) -> None:
        """An assignment: of several values each to its own name, where both show how many there are."""
        if isinstance(target, ast.Tuple | ast.List):
            each = parts if len(parts) == len(target.elts) else (any(parts),) * len(target.elts)
            for one, part in zip(target.elts, each, strict=True):
                self.bind(one, (part,), value)
            return
        path = path_of(target)
        if any(parts):
            self.take(path, changed=not isinstance(target, ast.Name))
        elif isinstance(target, ast.Subscript) and not is_plain(target):
            if self.because or self.carries(target.slice):
                self.take(path, changed=True)
        elif is_plain(target):
            home = self.home(path)
            home.paths -= {one for one in home.paths if one == path or one.startswith(f"{path}.")}

    def take(self, path: str, *, changed: bool) -> None:
        """A path holds results now, and so does what was made of it."""
        if not path or (changed and any(map(_NO_DATA.search, path.split(".")))):
            return
        home = self.home(path)
        home.paths.add(path)
        if changed:
            home.changed.add(path)
            made = self.made_from(path)
            home.paths |= made
            home.changed |= made

    @functools.cached_property
    def uses(self) -> Mapping[str, set[str]]:
        """What each object was used to make."""
        self.walk.count(sum(map(len, self.relations)) // _RELATED)
        found: dict[str, set[str]] = defaultdict(set)
        for relation in self.relations:
            for one, names in users(relation).items():
                found[one] |= names
        return found

    def made_from(self, path: str) -> set[str]:
        """What was made of an object, as far as it reads samples."""
        self.walk.count(len(self.uses) // _RELATED)
        return made_from(self.uses, path)

    def home(self, path: str) -> _Held:
        """Where a path's name belongs: to the function, or to its module."""
        return self.held if self.bound is None or path.split(".")[0] in self.bound else self.walk.shared

    def is_data(self, path: str) -> bool:
        """Whether an object is known for samples: by its name, or by what is made of it."""
        return any(map(_DATA.search, path.split("."))) or any(
            # Two names of one object are made of each other.
            any(one not in self.uses.get(name, ()) for name in names)
            for one, names in self.uses.items()
            if path == one or path.startswith(f"{one}.")
        )

    def holds(self, path: str, *, parts: bool = True) -> bool:
        """Whether an object holds results, itself or (``parts``) in a part, or is part of what does."""
        paths = self.home(path).paths
        if self.bound is None:
            paths = paths | self.walk.shared.paths
        if not parts or _OF_PARTS.search(path):
            return any(one == path or path.startswith(f"{one}.") for one in paths)
        return any(overlap(one, path) for one in paths)

    # -- expressions

    def parts(self, node: ast.expr) -> tuple[bool, ...]:
        """Whether results are in the value, or in each of the values of a tuple."""
        if isinstance(node, ast.Tuple | ast.List):
            return tuple(self.carries(one) for one in node.elts) or (False,)
        return self.call(node) if isinstance(node, ast.Call) else (self.carries(node),)

    def carries(self, node: ast.AST | None) -> bool:
        """Whether results are in the value of an expression; what it calls is followed."""
        match node:
            case None | ast.Constant() | ast.Lambda():
                if isinstance(node, ast.Constant) and isinstance(node.value, str):
                    return bool(self.walk.files) and _file_name(node.value) in self.walk.files
                return False
            case ast.JoinedStr() | ast.BinOp(left=ast.Constant(value=str()), op=ast.Mod()):
                self.any_of(ast.iter_child_nodes(node))
                return False
            case ast.Name(id=name):
                return self.holds(name)
            case ast.Attribute(value=value, attr=attr):
                path = path_of(node)
                if attr in _SHAPES:
                    self.carries(value)
                    return False
                return self.holds(path) if path and is_plain(node) else self.carries(value)
            case ast.Subscript() if is_plain(node):
                return self.holds(path_of(node))
            case ast.Call():
                return any(self.call(node))
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self.carries(test)
                return self.any_of([body, orelse])
            case ast.NamedExpr(target=target, value=value):
                parts = self.parts(value)
                self.bind(target, parts, value)
                return any(parts)
            case ast.Yield(value=value):
                self.held.returned.append((self.carries(value),))
                return False
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self.comprehension(node)
        return self.any_of(ast.iter_child_nodes(node))

    def any_of(self, nodes: Iterable[ast.AST]) -> bool:
        """Whether one of several carries results; all of them are followed."""
        return any(list(map(self.carries, nodes)))

    def comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> bool:
        chosen = False
        before = set(self.held.paths)
        for one in node.generators:
            carries = self.carries(one.iter)
            if carries and self.trains and one.iter.lineno in self.heads:
                raise _FoundError
            self.bind(one.target, (carries,), one.iter)
            chosen |= self.any_of(one.ifs)
        parts = [node.key, node.value] if isinstance(node, ast.DictComp) else [node.elt]
        made = self.any_of(parts)
        self.held.paths = before | {one for one in self.held.paths if one in self.held.changed}
        counts = parts and all(isinstance(one, ast.Constant) for one in parts)
        return made or (chosen and not counts)

    def call(self, node: ast.Call) -> tuple[bool, ...]:
        """What a call gives; what it does to its object and its arguments is noted."""
        self.walk.count()
        arguments = [*node.args, *(keyword.value for keyword in node.keywords)]
        given = [self.carries(one) for one in arguments]
        receiver = node.func.value if isinstance(node.func, ast.Attribute) else None
        owner = path_of(receiver) if receiver is not None and is_plain(receiver) else ""
        nobody = owner in ("self", "cls") or owner.split(".")[0] in self.modules
        of_owner = self.carries(receiver) if receiver is not None and not nobody else False
        if of_owner and owner and not self.holds(owner, parts=self.is_data(owner)):
            of_owner = False
        entered = self.entered(node)
        name = last_name(node.func)
        if None in self.trained.get(node, ()) and self.trains:
            gradients = name == "backward" or name == "grad"
            if any(given) or (gradients and of_owner):
                raise _FoundError
        if node in self.asked and self.at == len(self.walk.frames) - 1:
            return (True,)
        if entered:
            return entered
        if node in self.trained and self.trains:
            return (False,)  # a model's answer in training, gradients
        if name in _WRITES and (any(given) or of_owner):
            self.write(arguments, given)
            return (False,)
        number = name in _NUMBERS and not (self.walk.numbers and name in _VALUES)
        if number or _MEASURES.search(name) or LOGGING_TEXT.search(_called(node)):
            return (False,)
        if _reduces(node, of_module=bool(nobody and owner)) and not self.walk.numbers:
            return (False,)
        if name in _PASS_FIRST:
            return (bool(given) and given[0],)
        if self.walk.files and self.walk.reads(self.key, node):
            return (True,)
        function = self.walk.named(self.key, node)
        if function is not None and any(given):
            found = self.into(node, function, at=None, deep=self.deep + 1)
            if found is not None:
                return found
        if _LOSS.search(name) and node not in self.effects and not self.per_sample():
            return (False,)
        keeps = name in _KEEPS or name.endswith("_")
        path = path_of(receiver) if receiver is not None and not nobody else ""
        # A statement of its own is made for its effect.
        effective = keeps or (
            node in self.effects and name not in _INERT and (name == "update" or self.is_data(path))
        )
        if effective and not _OF_PARTS.search(path) and (any(given) or (self.because and keeps)):
            self.take(path, changed=True)
        return (any(given) or of_owner,)

    def write(self, arguments: Sequence[ast.expr], given: Sequence[bool]) -> None:
        """Results go to a file: whoever names it reads them."""
        for one, carries in zip(arguments, given, strict=True):
            if carries:
                continue
            names = {name for name in map(_file_name, texts(one)) if name}
            self.walk.files |= names
            if not names and (path := path_of(one)):
                used = {each for relation in self.relations for each in relation.get(path, ())}
                for each in (path, *used):
                    self.take(each, changed=True)

    def per_sample(self) -> bool:
        """Whether the file asks losses for a value per sample."""
        source = self.walk.loop.source(self.key[0])
        return source is not None and _unreduced(source.tree)

    def entered(self, node: ast.Call) -> tuple[bool, ...]:
        """What the functions give that the stack or training were seen to enter at a call; empty for none."""
        result: tuple[bool, ...] = ()
        on_stack = self.asked.get(node, set())
        for key in sorted(key for key in on_stack | self.trained.get(node, set()) if key is not None):
            at = self.at + 1 if key in on_stack and self.at is not None else None
            found = self.into(node, key, at=at, deep=self.deep)
            if found is None:
                found = (key in on_stack,)
            same = len(found) == len(result)
            result = tuple(a or b for a, b in zip(result, found, strict=True)) if same else result or found
        return result

    def into(self, call: ast.Call, key: FunctionKey, *, at: int | None, deep: int) -> tuple[bool, ...] | None:
        """Enters a function with what is handed to it; what it changes is changed here. None: it cannot."""
        node = self.walk.node(key)
        if node is None or isinstance(node, ast.Module):
            return None
        known = handed(call, node)
        inner = _Held()
        plain = {parameter: path_of(value) for parameter, value in known.items() if is_plain(value)}
        for parameter, path in plain.items():
            reading = self.made_from(path)
            for other, its in plain.items():
                if its != path and its in reading:
                    inner.made_of[other] = inner.made_of.get(other, frozenset()) | {parameter}
        for parameter, value in known.items():
            path = plain.get(parameter, "")
            if path:
                for one in self.home(path).paths:
                    if one == path or path.startswith(f"{one}."):
                        inner.paths.add(parameter)
                    elif one.startswith(f"{path}."):
                        inner.paths.add(parameter + one[len(path) :])
            elif self.carries_quietly(value):
                inner.paths.add(parameter)
        if "<locals>" in key[1] and key[0] == self.key[0]:
            inner.paths |= self.held.paths
        if not self.walk.enter(key, inner, at=at, deep=deep, way=(*self.way, self.frame(call))):
            return None
        for parameter, value in known.items():
            for one in inner.changed:
                if parameter in plain and (one == parameter or one.startswith(f"{parameter}.")):
                    self.take(plain[parameter] + one[len(parameter) :], changed=True)
                elif one == parameter:
                    self.write([value], [False])
        if "<locals>" in key[1]:
            for one in inner.changed:
                self.take(one, changed=True)
        made = _last_name_of(key) == "__init__" and bool(inner.paths)
        widths = {len(one) for one in inner.returned}
        if len(widths) == 1:
            return tuple(any(one) or made for one in zip(*inner.returned, strict=True))
        return (made or any(any(one) for one in inner.returned),)

    def carries_quietly(self, node: ast.expr) -> bool:
        """Whether results are in an argument that was followed already."""
        return any(
            self.holds(path_of(part))
            for part in ast.walk(node)
            if isinstance(part, ast.Name | ast.Attribute) and path_of(part) not in ("", "self", "cls")
        ) or any(isinstance(part, ast.Call) and part in self.asked for part in ast.walk(node))


@functools.cache
def _effects(node: FunctionNode) -> frozenset[ast.expr]:
    """Expressions that are statements of their own."""
    return frozenset(one.value for one in own_nodes(node) if isinstance(one, ast.Expr))


@functools.cache
def _called(node: ast.Call) -> str:
    """What is called, as it is written."""
    return f"{ast.unparse(node.func)}("


@functools.cache
def _unreduced(tree: ast.Module) -> bool:
    return any(
        isinstance(node, ast.keyword)
        and isinstance(node.value, ast.Constant)
        and ((node.arg == "reduction" and node.value.value == "none") or (node.arg == "reduce"))
        for node in ast.walk(tree)
    )


def _reduces(node: ast.Call, *, of_module: bool) -> bool:
    """Whether a call makes one number: ``a.mean()``, ``torch.mean(a)``, ``max(a, b)``."""
    name = last_name(node.func)
    if name not in _REDUCTIONS or any(one.arg in ("dim", "axis") for one in node.keywords):
        return False
    if isinstance(node.func, ast.Name):
        return name in ("max", "min", "any", "all")
    return len(node.args) == of_module


def _file_name(text: str) -> str:
    """The last part of what looks like a file's name; "" of other words."""
    found = _FILE_NAME.search(text)
    return next(filter(None, found.groups())) if found else ""


def _last_name_of(key: FunctionKey) -> str:
    return key[1].rpartition(".")[2]
