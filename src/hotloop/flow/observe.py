"""``run``: a command under observation, its recording in a folder. What it writes can be dropped."""

from __future__ import annotations

import os
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext, suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import IO, Any, Final, TypeVar

from hotloop.errors import UsageError
from hotloop.fix.in_force import InForce
from hotloop.flow.alerts import WINDOW_S, Alerts
from hotloop.flow.course import Course
from hotloop.flow.export import Live
from hotloop.footprint.watch import MemoryWatch
from hotloop.language import said
from hotloop.launch.command import Outcome, last_words, run_command
from hotloop.launch.guard import Guard
from hotloop.launch.machine import facts, oom_kills, oom_kills_since
from hotloop.launch.system import Sampler
from hotloop.launch.throwaway import Refused, Throwaway, prepare
from hotloop.launch.within import REFUSED
from hotloop.record.store import Store
from hotloop.record.warned import kept_in

#: What ``python -m`` runs and what a shell runs, to name a run folder after the script and not after the
#: interpreter.
_INTERPRETERS = re.compile(r"^(python[\d.]*|torchrun|accelerate|launch|sh|bash|env|uv|run|-.*|.*=.*)$")

#: Without these the course of the run stands still for who looks at it.
_FEEDS: Final = frozenset({"sampling the system", "storing the run", "following the run"})
_T = TypeVar("_T")


def new_run_folder(out: Path | None, command: Sequence[str], kind: str = "") -> Path:
    """The folder of a new run, created, ``kind`` before its name. One with something in it is refused.

    Where the working folder cannot be written and no other was asked for, it is a temporary folder.
    """
    name = f"{time.strftime('%Y%m%d-%H%M%S')}-{kind}{_name(command)}"
    if out is not None:
        return _created(out)
    try:
        return _created(_free(Path("hotloop-runs") / name))
    except UsageError:
        return _created(Path(tempfile.gettempdir()) / f"hotloop-{os.getpid()}" / name)


def observe(
    command: Sequence[str],
    folder: Path,
    *,
    steps: int | None = None,
    profile: bool = False,
    memory: bool = False,
    memory_every: int | None = None,
    quiet: bool = False,
    patience: float | None = None,
    exports: Live | None = None,
    env: Mapping[str, str] | None = None,
    patch: InForce | None = None,
    watch_tick: Callable[[], None] | None = None,
    told: Sequence[str] = (),
    stdout: IO[str] | None = None,
    stderr: IO[str] | None = None,
    throw_away: bool = False,
    instead: Mapping[Path, bytes] | None = None,
    guard: Guard | None = None,
) -> Outcome:
    """Run the command under observation; the recording lies in ``folder`` when it returns.

    ``memory`` watches closely what grows (slows the command down); ``memory_every`` prints a line on standard
    error every so many steps; ``quiet`` warns of nothing, ``patience`` (1.0) warns as ``flow.alerts`` says,
    None of memory only. ``exports`` get a point at each sample. ``env`` is added to the command's
    environment (remedies, interventions); ``patch`` is enabled in it; ``watch_tick`` is called once or twice
    a second; ``told`` goes to the warnings. ``throw_away`` drops what the command writes elsewhere than to
    ``folder``, and shows it other bytes ``instead`` of those of some files; ``guard`` ends it where it must.
    """
    with throwing_away(command, folder, instead=instead) if throw_away else nullcontext() as room:
        if room is not None:
            guard = guard or Guard(only_disk=True)
            guard.disk = room.scratch
        course, say = Course(window_s=WINDOW_S * (patience or 1.0)), kept_in(folder, _say)
        alerts = None if quiet or patience is None else Alerts(course, say, patience=patience)
        watching = _Watching()
        store = Store(
            folder, partial(watching.call, "following the run", course.follow) if alerts or exports else None
        )
        machine, kills = facts(with_gpus=False), oom_kills()
        asked = {"STEPS": steps, "PROFILE": int(profile) or None, "MEMORY": int(memory) or None}
        how = {f"HOTLOOP_{name}": str(value) for name, value in asked.items() if value is not None}
        put = patch.put(folder) if patch is not None else {}
        more = {"patch": {"files": list(map(str, patch.files))}} if patch is not None else {}
        store.begin(command, machine, **more)
        sampler = Sampler(closely=memory)
        gpus = cache(lambda: store.add_machine(gpus=sampler.gpus.facts()))  # a driver may take seconds
        watch = MemoryWatch(machine, say=say, every=memory_every, quiet=quiet)

        def tick(pid: int) -> None:
            if guard is not None:
                guard.steps = store.progress[1]
                watching.call("guarding the machine", guard.look, pid)
            samples = watching.call(
                "sampling the system", sampler.sample, pid, extra_pids=store.living_pids
            ) or ([], [])
            watching.call("asking for the GPUs", gpus)
            watching.call("storing the run", store.take_in, samples)
            trainer, step = store.progress
            watching.call("watching memory", watch.look, *samples, pid=trainer, step=step)
            fed = watching.off.isdisjoint(_FEEDS)  # what stands still would look like a run that does
            if alerts is not None and fed:
                watching.call("looking out for faults", alerts.look, samples)
            if exports is not None and fed:
                watching.call("exporting", exports.look, course, samples)
            if watch_tick is not None:
                watching.call("looking for its end", watch_tick)

        try:
            outcome = run_command(
                command,
                raw_dir=folder / "raw",
                src_dir=Path(__file__).resolve().parents[2],
                env_extra={**(env or {}), **put, **how},
                on_tick=tick,
                stdout=stdout,
                stderr=stderr,
                prefix=room.prefix if room is not None else (),
                leave_none=guard is not None,
            )
        except UsageError:
            if patch is not None:
                patch.take_back(folder)
            store.discard()
            raise
        store.warnings += [*watching.told, *told]
        store.add_machine(oom_kills=oom_kills_since(kills))
        gpus()
        store.take_in()
        store.finish(outcome)
        return replace(
            outcome,
            warnings=(*outcome.warnings, *store.warnings),
            ended_for=guard.why if guard is not None else "",
            started=room is None or outcome.exit_code != REFUSED,
        )


class _Watching:
    """What looks at a run. One that raises is not called again, which is told once; the others go on."""

    def __init__(self) -> None:
        self.told: list[str] = []
        self.off: set[str] = set()

    def call(self, what: str, look: Callable[..., _T], *given: Any, **named: Any) -> _T | None:
        """What it gives, None where it is off."""
        if what in self.off:
            return None
        try:
            return look(*given, **named)
        except Exception as error:
            self.off.add(what)
            self.told.append(f"hotloop stopped {what}: {type(error).__name__}: {error}")
            _say(f"warning: {self.told[-1].removeprefix('hotloop ')}")
            return None


def observe_quietly(command: Sequence[str], folder: Path, **more: Any) -> tuple[Outcome, str]:
    """``observe`` in a new folder, the command's output in ``output.log`` there; with its last words."""
    folder = new_run_folder(folder, command)
    output = folder / "output.log"
    with output.open("w") as log:
        outcome = observe(command, folder, stdout=log, stderr=log, **more)
    return outcome, last_words(output.read_text(errors="replace"))


@contextmanager
def throwing_away(
    command: Sequence[str],
    folder: Path,
    *,
    way_out: str = "leave --throw-away out",
    instead: Mapping[Path, bytes] | None = None,
) -> Iterator[Throwaway]:
    """A run whose writes are dropped, those to ``folder`` kept. Raises UsageError where it cannot be."""
    try:
        room = prepare(command, keep=[folder], instead=instead or {})
    except Refused as refused:
        with suppress(OSError):  # nothing ran: leave no empty folder
            (folder / "raw").rmdir()
            if folder.resolve() != Path.cwd():
                folder.rmdir()
        raise UsageError(
            f"what the command writes cannot be kept apart from your files here ({refused.message})",
            hint=f"run it on a copy, or {way_out}: then it writes where it always does",
        ) from refused
    try:
        yield room
    finally:
        room.close()


def say_why_ended(outcome: Outcome) -> None:
    """What the command was ended for, on standard error."""
    if outcome.ended_for:
        _say(f"the command was ended: it {outcome.ended_for}")


def _say(words: str) -> None:
    print("hotloop: " * (words[0] != "[") + said(words), file=sys.stderr, flush=True)


def _created(folder: Path) -> Path:
    try:
        if folder.is_dir() and any(folder.iterdir()):
            raise UsageError(f"{folder} is not empty", hint="give --out a new folder, or remove that one")
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "raw").mkdir()
    except OSError as error:
        raise UsageError(
            f"cannot write the run folder {folder}: {error.strerror}",
            hint="give --out a folder that can be written",
        ) from error
    return folder.resolve()


def _name(command: Sequence[str]) -> str:
    scripts = [word for word in command if word.endswith(".py")]
    for word in scripts or command:  # an option of a launcher may have a value of its own
        stem = Path(word).name
        if not _INTERPRETERS.match(stem):
            return re.sub(r"[^\w.-]+", "_", stem.removesuffix(".py"))[:40] or "run"
    return "run"


def _free(folder: Path) -> Path:
    candidate, number = folder, 2
    while candidate.exists():
        candidate, number = folder.with_name(f"{folder.name}-{number}"), number + 1
    return candidate
