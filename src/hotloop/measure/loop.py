"""The training loop in source: which functions it runs through, and what a sample's stack is part of.

A sample between two rows is read by its place in the step: what was last done (a batch fetched, forward,
backward, update), what is done next, and the line of the loop it was reached from. No source is read for it.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np

from hotloop.findings import Place
from hotloop.measure.attribution import AT_EXIT, SAVE_WRITE, At
from hotloop.measure.places import Frame, Places, Stack
from hotloop.measure.spans import Bools, Spans, Table
from hotloop.measure.steps import Role
from hotloop.record import rows as row
from hotloop.source.loops import loop_around
from hotloop.torch_facts import SERIALIZERS, TORCH_PHASES

FunctionKey = tuple[str, str, int]
#: A call's line and column (UTF-8 bytes); column -1 where it is not known.
Spot = tuple[int, int]

#: Packages whose frames mean that something is being logged or drawn.
LOGGERS = frozenset([
    "logging", "tqdm", "tensorboard", "tensorboardX", "matplotlib", "wandb", "rich", "loguru", "mlflow",
    "neptune", "comet_ml", "clearml", "aim", "seaborn", "plotly",
])  # fmt: skip
LOGGING_PATHS = ("torch.utils.tensorboard",)
#: A module is moved, cast, filled or switched: no forward, no batch and no target, whatever uses it.
PREPARES = frozenset(
    f"torch.nn.modules.module:Module.{name}" for name in ("_apply", "load_state_dict", "train", "eval")
)
#: What computes nothing: no forward either.
COPIES = PREPARES | {"copy:deepcopy"}
#: Packages that serve a viewer. What the standard library does with sockets has rows, if it serves anything.
SERVERS = frozenset(["websockets", "websocket", "socketserver", "viser", "zmq"])
ACCEPTS = "socket:socket.accept"

#: Functions of libraries that write; builtins have no frame of their own.
LOGGING_TEXT = re.compile(
    r"^(print|pprint|tqdm\.write|logging\.\w+|sys\.(stdout|stderr)\.\w+|wandb\.\w+|mlflow\.\w+|plt\.\w+)\s*\("
    r"|\b(add_scalars?|add_image|add_images|add_histogram|add_figure|savefig|imsave|imwrite|save_image)\s*\("
)
#: A statement that leads to one of these is part of it.
_TOUCHED: Final[tuple[tuple[str, Role, str], ...]] = (
    ("save", "checkpoint", "checkpoint"),
    ("log", "logging", "logging"),
    ("socket", "viewer", "other"),
)
#: What the functions of a framework that runs the whole loop say of themselves, as ``module:Class.function``.
_SAYS: Final[tuple[tuple[re.Pattern[str], Role, str], ...]] = (
    (re.compile(r"(^|[.:])_*save(_\w+)?$|Checkpoint\w*\."), "checkpoint", "checkpoint"),
    (
        re.compile(r"(^|[.:])_*(evaluate(_policy)?|evaluation_loop|validate)$|Evaluation\w*\."),
        "evaluation",
        "evaluation",
    ),
    (re.compile(r"(^|[.:])_*(on_)?log(_metrics|_dict)?$|Progress\w*\.|Logger\w*\."), "logging", "logging"),
    (re.compile(r"Loader\w*\.__(iter|next)__$"), "input", "data_wait"),
    (re.compile(r"(Optimizer\w*|^optim\w*:\w+)\.(step|zero_grad)$"), "other", "optimizer"),
)
#: Packages before the last module of ``fastai.optimizer:Lookahead.step``.
_OUTER: Final = re.compile(r"^[\w.]*\.(?=\w+:)")
#: Evaluations and checkpoints may come due in the middle of it.
_COLLECTS: Final = re.compile(r"(^|[.:])_*collect_(rollouts?|experiences?|episodes?)$|Collector\w*\.rollout$")
_PROGRESS: Final = row.LOG_OPS.index("progress")
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

    def __init__(self, places: Places, sites: Mapping[str, Sequence[Stack]], *, by_loader: bool) -> None:
        self.places = places
        self.by_loader = by_loader
        self.sites = sites
        self.lines = {name: _lines(stacks) for name, stacks in sites.items()}
        self.chain = {
            function
            for name in ("forward", "backward", "update", "fetch")
            for function in self.lines.get(name, {})
        }
        served = (self.statement(stack) or ((), ()) for stack in sites.get("socket", ()))
        self.viewers = {frame.function for _, below in served for frame in below}

    def statement(self, stack: Stack | None) -> tuple[Frame, tuple[Frame, ...]] | None:
        """The frame of a stack that belongs to the loop, and the user frames below it."""
        frames = stack.frames if stack is not None else ()
        for at in range(len(frames) - 1, -1, -1):
            if frames[at].function in self.chain:
                return frames[at], frames[at + 1 :]
        return None

    def spots(self, name: str, function: FunctionKey) -> set[Spot]:
        """Where a function leads to calls of a kind: forward, backward, update, fetch, save, log, socket."""
        return self.lines.get(name, {}).get(function, set())

    def place(self) -> Place | None:
        """The loop that drives the steps: the innermost one around everything seen of training."""
        names = ("forward", "backward", "update", "fetch")
        for stack in self.sites.get("backward", ()):
            for frame in reversed(stack.frames):
                wanted = [line for name in names for line, _ in self.spots(name, frame.function)]
                code = self.places.code(frame.file)
                loop = loop_around(code, wanted) if code is not None else None
                if loop is not None:
                    return Place(file=frame.file, line=loop.lineno, function=frame.func)
        return None

    def framework_call(self) -> Place | None:
        """The line in which a framework runs the whole training, None where the user's code has the loop."""
        for stack in self.sites.get("backward", ()):
            if self.runs_all(stack.frames[-1]):
                return stack.frames[-1].place()
        return None

    def runs_all(self, frame: Frame) -> bool:
        """Whether one call both trains and fetches or updates: a framework's ``trainer.fit()``."""
        spot = (frame.line, frame.col)
        drives = self.spots("update", frame.function) | self.spots("fetch", frame.function)
        return spot in self.spots("backward", frame.function) & drives

    def read(self, stack_id: int, key: int) -> Reading:
        """What a sample with this stack is part of, at a place in the step (``Gaps.key``)."""
        stack = self.places.stacks.get(stack_id)
        if stack is None or key == AT_EXIT:
            return NOTHING
        return self._read(stack, At.before(key), At.after(key))

    def _read(self, stack: Stack, before: At, after: At) -> Reading:
        found = self.statement(stack)
        statement = found[0].place() if found else None
        plain = self._plain(stack, found)
        if plain is not None:
            return Reading(role=plain[0], phase=plain[1], statement=statement)
        if found is None:
            return NOTHING
        if self.runs_all(found[0]):
            role, phase = named_phase(stack.library, found[1])
        else:
            role, phase = self._by_place(stack, *found, before, after)
        if not (COPIES if phase in ("forward", "evaluation") else PREPARES).isdisjoint(stack.library):
            role, phase = "other", "other"
        return Reading(role=role, phase=phase, statement=statement)

    def _plain(self, stack: Stack, found: tuple[Frame, tuple[Frame, ...]] | None) -> tuple[Role, str] | None:
        """Roles that show in the libraries that are called: saving, logging, sockets, torch."""
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
        below = {frame.function for frame in found[1]} if found else set()
        # A queue or a pipe from another process may be reached through one too, and brings batches.
        serves = (roots & SERVERS or ACCEPTS in stack.library) and "multiprocessing" not in roots
        if serves or below & self.viewers:
            return "viewer", "other"
        return None

    def _by_place(
        self, stack: Stack, frame: Frame, below: tuple[Frame, ...], before: At, after: At
    ) -> tuple[Role, str]:
        # What a library does around forward and backward (``torch.func``) is none of the user's work.
        inside = bool(stack.library) and self._computes(stack.frames[-1], "update", "fetch")
        if inside or any(self._computes(one) for one in stack.frames):
            return "forward", "forward"
        for name, role, phase in _TOUCHED:
            if any(line == frame.line for line, _ in self.spots(name, frame.function)):
                return role, phase
        updates = [line for line, _ in self.spots("update", frame.function)]
        backwards = [line for line, _ in self.spots("backward", frame.function)]
        last = max(updates or backwards, default=frame.line)
        if frame.line > last and not self.lines.get("update"):
            return "other", "optimizer"  # by hand
        if before is At.EVALUATED and below and after in (At.TURN, At.FETCHED):
            asked = min((line for line, _ in self.spots("evaluation", frame.function)), default=0)
            return ("evaluation", "evaluation") if frame.line >= asked else ("other", "other")  # its score
        if frame.line > last:
            return "other", "other"
        if before is At.FORWARD and after in (At.FORWARD, At.BACKWARD):
            return "forward", "forward"  # the loss
        if after is At.BACKWARD and (before is not At.BACKWARD or not self.lines.get("update")):
            return "forward", "forward"  # no module is called
        if after is At.FORWARD:
            if not self.by_loader:
                return "input", "data_wait"
            return ("targets" if before is At.FETCHED else "other"), "other"
        return "other", "other"

    def _computes(self, frame: Frame, *never: str) -> bool:
        """Whether a call leads to the model and to nothing else of the step (these kinds): it is forward."""
        spot, others = (frame.line, frame.col), never or ("backward", "update", "fetch")
        leads = spot in self.spots("forward", frame.function)
        return leads and not any(spot in self.spots(name, frame.function) for name in others)


def named_phase(library: Sequence[str], called_back: Iterable[Frame] = ()) -> tuple[Role, str]:
    """What a framework does, by the names of its functions and of the user's that it calls; the outermost
    that says something counts, before one that only says that it collects what is trained on.
    """
    own = (_OUTER.sub("", entry) for entry in library if not entry.startswith("torch."))
    functions = [*(frame.func for frame in called_back), *own]
    for function in functions:
        for names, role, phase in _SAYS:
            if names.search(function):
                return role, phase
    collects = any(_COLLECTS.search(function) for function in functions)
    return ("input", "data_wait") if collects else ("other", "other")


def collecting(found: Bools, spans: Spans, samples: Table, places: Places) -> tuple[Bools, Bools]:
    """Those of the forwards without gradients by which a framework asks for actions while it collects what
    is trained on (``collect_rollouts``), and those of its evaluations: as the functions of the samples beside
    each say.
    """
    collected, scored = np.zeros(len(spans), np.bool_), np.zeros(len(spans), np.bool_)
    index = np.flatnonzero(found)
    if not len(samples) or not len(index):
        return collected, scored
    stacks, which = np.unique(samples.value, return_inverse=True)
    known = [places.stacks.get(int(number)) for number in stacks]
    phases = [named_phase(stack.library)[1] if stack else "" for stack in known]
    collects = np.array([phase == "data_wait" for phase in phases], np.bool_)[which]
    evaluates = np.array([phase == "evaluation" for phase in phases], np.bool_)[which]
    after = np.searchsorted(samples.start, spans.start[index])
    before = np.maximum(after - 1, 0)
    after = np.minimum(after, len(samples) - 1)
    collected[index] = collects[after] | (collects[before] & ~evaluates[after])
    scored[index] = (evaluates[after] | evaluates[before]) & ~collected[index]
    return collected, scored


def _lines(stacks: Iterable[Stack]) -> dict[FunctionKey, set[Spot]]:
    found: dict[FunctionKey, set[Spot]] = defaultdict(set)
    for stack in stacks:
        for frame in stack.frames:
            found[frame.function].add((frame.line, frame.col))
    return dict(found)


def training_sites(
    spans: Spans,
    places: Places,
    train: Bools,
    evaluates: Bools,
    training_fetch: Bools,
    trained: Bools,
    num_steps: int,
) -> dict[str, tuple[Stack, ...]]:
    """The stacks of training's call sites (``train``), by what they do; the loop's are seen in at least 1 of
    200 steps. ``trained``: forwards that training uses; ``evaluates``: those of evaluations.
    """
    kind = spans.kind
    least = num_steps / 200

    def sites(mask: Bools, rare: bool = False) -> tuple[Stack, ...]:
        counts = np.bincount(spans.site[mask], minlength=1)
        used = [int(n) for n in np.flatnonzero(counts) if n and (rare or counts[n] >= least)]
        return tuple(places.sites[n] for n in used if n in places.sites and places.sites[n].frames)

    return {
        "forward": sites(train & trained),
        "backward": sites(train & (kind == row.BACKWARD)),
        "update": sites(train & ((kind == row.OPTIMIZER) | ((kind == row.SCALER) & (spans.obj == 1)))),
        "fetch": sites(train & (kind == row.FETCH) & training_fetch),
        "evaluation": sites(evaluates, rare=True),
        # A bar goes around a loop: the statement that leads to it does much else.
        "log": sites(train & (kind == row.LOG) & (spans.obj != _PROGRESS), rare=True),
        "save": sites(train & (kind == row.SAVE) & (spans.obj == SAVE_WRITE), rare=True),
        "socket": sites(train & (kind == row.SOCKET), rare=True),
    }
