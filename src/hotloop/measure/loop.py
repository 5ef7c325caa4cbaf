"""The training loop in source: which functions it runs through, and what a sample's stack is part of."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hotloop.findings import Place
from hotloop.measure.attribution import EVAL_FETCH, SAVE_WRITE
from hotloop.measure.dataflow import Anchors, Function, Purpose, Source, handed_over, parse, reach, understand
from hotloop.measure.places import Frame, Places, Stack
from hotloop.measure.spans import Bools, Spans
from hotloop.measure.statements import Spot, around, holders, statements_of
from hotloop.measure.steps import Role
from hotloop.measure.ways import Ways
from hotloop.record import rows as row

FunctionKey = tuple[str, str, int]

#: Packages whose frames mean that something is being logged or drawn.
LOGGERS = frozenset(
    [
        "logging",
        "tqdm",
        "tensorboard",
        "tensorboardX",
        "matplotlib",
        "wandb",
        "rich",
        "loguru",
        "mlflow",
        "neptune",
        "comet_ml",
        "clearml",
        "aim",
        "seaborn",
        "plotly",
    ]
)
LOGGING_PATHS = ("torch.utils.tensorboard",)
#: Calls that write an image: logging where what they write goes into no batch (an augmentation encodes too).
WRITES_IMAGES = frozenset(["PIL.Image:Image.save"])
SERIALIZERS = ("torch.serialization", "safetensors", "pickle", "cloudpickle", "dill", "joblib")
#: Torch code on the way into or out of an observed call.
TORCH_PHASES = {
    "torch.nn.modules.module:__call__": "forward",
    "torch.nn.modules.module:_wrapped_call_impl": "forward",
    "torch.nn.modules.module:_call_impl": "forward",
    "torch.autograd:backward": "backward",
    "torch.autograd.graph:_engine_run_backward": "backward",
    "torch.optim.optimizer:profile_hook_step": "optimizer",
    "torch.optim.optimizer:wrapper": "optimizer",
    "torch.optim.optimizer:zero_grad": "optimizer",
}
#: A module is moved, cast, filled or switched: no forward, no batch and no target, whatever uses it.
PREPARES = frozenset(
    f"torch.nn.modules.module:Module.{name}" for name in ("_apply", "load_state_dict", "train", "eval")
)
#: What computes nothing: no forward either.
COPY = "copy:deepcopy"
COPIES = PREPARES | {COPY}
#: Packages that serve a viewer. What the standard library does with sockets has rows, if it serves anything.
SERVERS = frozenset(["websockets", "websocket", "socketserver", "viser", "zmq"])
ACCEPTS = "socket:socket.accept"

LOGGING_TEXT = re.compile(
    r"^(print|pprint|tqdm\.write|logging\.\w+|_?log(ger)?\.\w+|self\.(_?log(ger)?|writer|tb)\b[\w.]*|writer\.\w+"
    r"|sys\.(stdout|stderr)\.\w+|wandb\.\w+|mlflow\.\w+|plt\.\w+|pbar\.\w+|console\.\w+)\s*\("
    r"|\b(add_scalars?|add_image|add_images|add_histogram|add_figure|savefig|imsave|imwrite|save_image)\s*\("
)
#: A statement that calls a method of what is named as a logger or a writer.
LOGGER_CALL = re.compile(r"^(self\.)?_?(\w*logger|\w*writer|tracker)\.(?P<method>\w+)\s*\(")
#: What the functions of a framework that runs the whole loop say of themselves, as ``Class.function``.
_SAYS: Final[tuple[tuple[re.Pattern[str], Role, str], ...]] = (
    (re.compile(r"(^|\.)_*save(_\w+)?$|Checkpoint\w*\."), "checkpoint", "checkpoint"),
    (
        re.compile(r"(^|\.)_*(evaluate(_policy)?|evaluation_loop|validate)$|Evaluation\w*\."),
        "evaluation",
        "evaluation",
    ),
    (re.compile(r"(^|\.)_*(on_)?log(_metrics|_dict)?$|Progress\w*\.|Logger\w*\."), "logging", "logging"),
    (re.compile(r"Optimizer\w*\.(step|zero_grad)$"), "other", "optimizer"),
)
#: Evaluations and checkpoints may come due in the middle of it.
_COLLECTS: Final = re.compile(r"(^|\.)_*collect_(rollouts?|experiences?|episodes?)$|Collector\w*\.rollout$")
SAVING_TEXT = re.compile(
    r"\b(torch\.save|save_file|pickle\.dumps?|np\.savez?\w*|numpy\.savez?\w*|joblib\.dump|save_checkpoint)\s*\("
)


@dataclass(frozen=True, kw_only=True)
class Reading:
    """What a sample in a gap is part of: its role, its phase, and the statement of the loop."""

    role: Role
    phase: str
    statement: Place | None = None


NOTHING = Reading(role="other", phase="other")


class Loop:
    """Reads stacks against the functions through which training was seen to run."""

    def __init__(
        self,
        places: Places,
        sites: Mapping[str, Sequence[Stack]],
        *,
        by_loader: bool,
        updates_seen: bool,
        optimizers: Iterable[str] = (),
    ) -> None:
        self.places = places
        self.by_loader = by_loader
        self.updates_seen = updates_seen
        self.sites = sites
        self.lines = {name: _lines(stacks) for name, stacks in sites.items()}
        self.chain = {
            function
            for name in ("forward", "backward", "update", "fetch")
            for function in self.lines.get(name, {})
        }
        self.viewers = {frame.function for stack in sites.get("socket", ()) for frame in self._below(stack)}
        self._functions: dict[FunctionKey, Function | None] = {}
        self._trained: dict[FunctionKey, bool] = {}
        self._sources: dict[str, Source | None] = {}
        self._readings: dict[tuple[int, int], Reading] = {}
        self._optimizers = tuple(optimizers)

    def statement(self, stack: Stack) -> tuple[Frame, tuple[Frame, ...]] | None:
        """The frame of a stack that belongs to the loop, and the user frames below it."""
        for at in range(len(stack.frames) - 1, -1, -1):
            if stack.frames[at].function in self.chain:
                return stack.frames[at], stack.frames[at + 1 :]
        return None

    def _below(self, stack: Stack | None) -> tuple[Frame, ...]:
        found = self.statement(stack) if stack else None
        return found[1] if found else ()

    def function(self, key: FunctionKey) -> Function | None:
        """The loop's function as understood from its source; None without source."""
        if key not in self._functions:
            self._functions[key] = self._understand(key)
        return self._functions[key]

    def source(self, file: str) -> Source | None:
        """A parsed file, or None."""
        if file not in self._sources:
            lines = self.places.sources.get(file)
            self._sources[file] = parse(lines, self._optimizers) if lines else None
        return self._sources[file]

    def _understand(self, key: FunctionKey) -> Function | None:
        source = self.source(key[0])
        node = source.function(key[1], key[2]) if source else None
        if source is None or node is None:
            return None
        return understand(source, node, self.anchors(key))

    def anchors(self, key: FunctionKey) -> Anchors:
        """Lines of a function through which training was seen to go."""

        def lines(name: str) -> frozenset[Spot]:
            return frozenset(self.lines.get(name, {}).get(key, ()))

        return Anchors(
            forward=lines("forward"),
            backward=lines("backward"),
            update=lines("update"),
            fetch=lines("fetch"),
            frozen=lines("frozen"),
            evaluate=lines("evaluate"),
        )

    def place(self) -> Place | None:
        """The loop that drives the steps: the innermost one around everything seen of training."""
        for stack in self.sites.get("backward", ()):
            for frame in reversed(stack.frames):
                function = self.function(frame.function)
                if function is not None and function.loop_line is not None:
                    return Place(file=frame.file, line=function.loop_line, function=frame.func)
        return None

    def framework_call(self) -> Place | None:
        """The line in which a framework runs the whole training, None where the user's code has the loop."""
        for stack in self.sites.get("backward", ()):
            frame = stack.frames[-1]
            function = self.function(frame.function)
            if function is not None and function.runs_all((frame.line, frame.col)):
                return frame.place()
        return None

    def read(self, stack_id: int, key: int) -> Reading:
        """What a sample with this stack, between rows of these kinds, is part of."""
        cached = self._readings.get((stack_id, key))
        if cached is None:
            stack = self.places.stacks.get(stack_id)
            cached = self._read(stack, key >> 8, key & 0xFF) if stack else NOTHING
            self._readings[stack_id, key] = cached
        return cached

    def _read(self, stack: Stack, before: int, after: int) -> Reading:
        found = self.statement(stack)
        statement = found[0].place() if found else None
        plain = self._plain(stack, found)
        if plain is not None:
            return Reading(role=plain[0], phase=plain[1], statement=statement)
        if found is None:
            return NOTHING
        function = self.function(found[0].function)
        if function is not None and function.runs_all((found[0].line, found[0].col)):
            role, phase = told_by_names(stack.library, found[1])
        else:
            role, phase = self._by_flow(found[0], found[1], before, after)
        if (phase == "forward" and not COPIES.isdisjoint(stack.library)) or (
            role in ("input", "targets") and self._prepares(stack)
        ):
            role, phase = "other", "other"
        if role in ("other", "metrics") and phase == "other" and not WRITES_IMAGES.isdisjoint(stack.library):
            role, phase = "logging", "logging"
        return Reading(role=role, phase=phase, statement=statement)

    def _prepares(self, stack: Stack) -> bool:
        """Whether a module is moved, cast, filled or copied; data may be copied as well."""
        if not PREPARES.isdisjoint(stack.library) or COPY not in stack.library:
            return not PREPARES.isdisjoint(stack.library)
        source = self.source(stack.frames[-1].file)
        return source is not None and source.copies_module(stack.frames[-1].line)

    def _plain(self, stack: Stack, found: tuple[Frame, tuple[Frame, ...]] | None) -> tuple[Role, str] | None:
        """Roles that show without following data: saving, logging, sockets."""
        text = self.places.text(stack.frames[-1].file, stack.frames[-1].line) if stack.frames else ""
        modules = [entry.split(":")[0] for entry in stack.library]
        if any(m.startswith(SERIALIZERS) for m in modules) or SAVING_TEXT.search(text):
            return "checkpoint", "checkpoint"
        if found is None or not found[1]:
            phase = next((TORCH_PHASES[entry] for entry in stack.library if entry in TORCH_PHASES), None)
            if phase is not None:
                return ("forward" if phase == "forward" else "other"), phase
        roots = {module.split(".")[0] for module in modules}
        if roots & LOGGERS or any(m.startswith(LOGGING_PATHS) for m in modules) or LOGGING_TEXT.search(text):
            return "logging", "logging"
        if found is not None and found[1] and self._in_a_logger(*found):
            return "logging", "logging"
        below = {frame.function for frame in found[1]} if found else set()
        # A queue or a pipe from another process may be reached through one too, and brings batches.
        serves = (roots & SERVERS or ACCEPTS in stack.library) and "multiprocessing" not in roots
        if serves or below & self.viewers:
            return "viewer", "other"
        return None

    def _in_a_logger(self, frame: Frame, below: tuple[Frame, ...]) -> bool:
        """Whether the statement calls a method of a logger and the stack is in that method."""
        called = LOGGER_CALL.search(self.places.text(frame.file, frame.line))
        return called is not None and below[0].func.rpartition(".")[2] == called.group("method")

    def _by_flow(self, frame: Frame, below: tuple[Frame, ...], before: int, after: int) -> tuple[Role, str]:
        function = self.function(frame.function)
        purpose = _pick(function.purposes_at((frame.line, frame.col)), before, after) if function else None
        made: tuple[Role, str] = ("targets", "other") if self.by_loader else ("input", "data_wait")
        if self.by_loader and function is not None and function.beside_loops(frame.line):
            made = ("other", "other")  # a dataset built for every epoch
        if any(self._trains(called) for called in below) or (_is_forward(frame) and self._trains(frame)):
            made = ("forward", "forward")
        if purpose == "model":
            return made if after == row.FORWARD and before != row.FORWARD else ("forward", "forward")
        if purpose == "forward" and function and self._needs_no_model(function, frame, below):
            return made
        if purpose == "forward" or (purpose == "backward" and after == row.BACKWARD):
            return "forward", "forward"
        if purpose == "input":
            return made
        scores = function is not None and function.scores((frame.line, frame.col))
        if scores and below and before == EVAL_FETCH and purpose in ("metrics", "other"):
            return "evaluation", "evaluation"
        if purpose == "fetch":
            return ("targets", "other") if below else ("other", "other")
        if purpose == "update":
            return "other", "optimizer"
        if self._touches(function, frame, "save"):
            return "checkpoint", "checkpoint"
        if self._touches(function, frame, "log"):
            return "logging", "logging"
        if self._touches(function, frame, "socket"):
            return "viewer", "other"
        if not self.updates_seen and self._updates_by_hand(frame, below):
            return "other", "optimizer"
        return ("metrics", "other") if purpose == "metrics" else ("other", "other")

    def _trains(self, frame: Frame) -> bool:
        if frame.function not in self._trained:
            source = self.source(frame.file)
            self._trained[frame.function] = source is not None and source.trains(frame.func, frame.func_line)
        return self._trained[frame.function]

    def _needs_no_model(self, function: Function, frame: Frame, below: tuple[Frame, ...]) -> bool:
        """Whether a statement of the loss has called what uses nothing the model made: targets."""
        statements, made = function.statements, function.made
        for called in below:
            at = holders(statements, (frame.line, frame.col))
            source = self.source(called.file)
            node = source.function(called.function[1], called.function[2]) if source else None
            if len(at) != 1 or node is None or not statements[at[0]].values & made[at[0]]:
                return False
            names = handed_over(statements[at[0]], node, made[at[0]])
            if names is None:
                return False
            frame, statements = called, tuple(statements_of(node))
            dependent, made = reach(statements, frozenset(), names)
            inside = holders(statements, (called.line, called.col))
            if len(inside) == 1 and not dependent & {inside[0], *around(statements, called.line)}:
                return True
        return False

    def _touches(self, function: Function | None, frame: Frame, name: str) -> bool:
        """Whether the frame's statement is one through which logging, saving or a socket was reached."""
        lines = {line for line, _ in self.lines.get(name, {}).get(frame.function, set())}
        statement = function.statement(frame.line) if function else None
        if statement is None:
            return frame.line in lines
        return any(statement.first <= line <= statement.last for line in lines)

    def _updates_by_hand(self, frame: Frame, below: tuple[Frame, ...]) -> bool:
        texts = [self.places.text(f.file, f.line) for f in (frame, *below)]
        return any(".grad" in text or re.search(r"\.step\(", text) for text in texts)


def told_by_names(library: Sequence[str], called_back: Iterable[Frame] = ()) -> tuple[Role, str]:
    """What a framework does, by the names of its functions and of the user's that it calls; the outermost
    that says something counts, before one that only says that it collects what is trained on.
    """
    own = (entry.partition(":")[2] for entry in library if not entry.startswith("torch."))
    functions = [*(frame.func for frame in called_back), *own]
    for function in functions:
        for names, role, phase in _SAYS:
            if names.search(function):
                return role, phase
    collects = any(_COLLECTS.search(function) for function in functions)
    return ("input", "data_wait") if collects else ("other", "other")


def _is_forward(frame: Frame) -> bool:
    """Whether a function is a module's ``forward``, called by that name: what it makes is no batch."""
    return frame.func.rpartition(".")[2] == "forward"


#: Which statement of a line that holds several a gap belongs to, by the row that comes after it.
_LEADS_TO: dict[int, tuple[Purpose, ...]] = {
    row.FORWARD: ("input", "model", "fetch"),
    row.BACKWARD: ("forward", "backward"),
    row.OPTIMIZER: ("update",),
    row.FETCH: ("metrics", "other"),
}


def _pick(purposes: Sequence[Purpose], before: int, after: int) -> Purpose | None:
    """The purpose of a sample whose line holds one statement or several."""
    if len(set(purposes)) == 1:
        return purposes[0]
    wanted = _LEADS_TO.get(after, ())
    if before == row.FORWARD and after != row.BACKWARD:  # the loss of what was just called
        wanted = ("forward", "model")
    return next((purpose for purpose in wanted if purpose in purposes), "other" if purposes else None)


def _lines(stacks: Iterable[Stack]) -> dict[FunctionKey, set[Spot]]:
    found: dict[FunctionKey, set[Spot]] = defaultdict(set)
    for stack in stacks:
        for frame in stack.frames:
            found[frame.function].add((frame.line, frame.col))
    return dict(found)


def training_sites(
    spans: Spans,
    ways: Ways,
    in_span: Bools,
    training_fetch: Bools,
    eval_forward: Bools,
    evaluates: Bools,
    num_steps: int,
) -> dict[str, tuple[Stack, ...]]:
    """How call sites of the training span were reached, by what they do; the loop's are seen in at least 1 of
    200 steps.
    """
    kind = spans.kind
    train = in_span & ~evaluates
    least = num_steps / 200
    built = (spans.flags & row.FORWARD_GRAD) != 0

    def sites(mask: Bools, rare: bool = False) -> tuple[Stack, ...]:
        counts = np.bincount(spans.site[mask], minlength=1)
        return ways.of([int(n) for n in np.flatnonzero(counts) if n and (rare or counts[n] >= least)], mask)

    def once_a_step(mask: Bools) -> tuple[Stack, ...]:
        """A policy asked for many actions a step makes data, a teacher's answer is part of the step."""
        counts = np.bincount(spans.site[mask], minlength=1)
        usual = (counts >= 0.5 * num_steps) & (counts <= 2 * num_steps)
        return ways.of([int(n) for n in np.flatnonzero(usual) if n], mask)

    return {
        "forward": sites(train & (kind == row.FORWARD) & built & ~eval_forward),
        "evaluate": sites(in_span & (kind == row.FORWARD) & eval_forward, rare=True),
        "frozen": once_a_step(train & (kind == row.FORWARD) & ~built & ~eval_forward),
        "backward": sites(train & (kind == row.BACKWARD)),
        "update": sites(train & ((kind == row.OPTIMIZER) | ((kind == row.SCALER) & (spans.obj == 1)))),
        "fetch": sites(train & (kind == row.FETCH) & training_fetch),
        "log": sites(train & (kind == row.LOG), rare=True),
        "save": sites(train & (kind == row.SAVE) & (spans.obj == SAVE_WRITE), rare=True),
        "socket": sites(train & (kind == row.SOCKET), rare=True),
    }
