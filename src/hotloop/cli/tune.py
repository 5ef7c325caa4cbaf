"""``hotloop tune -- COMMAND``: try what the diagnosis asks for, keep what is faster, prove by how much."""

from __future__ import annotations

import argparse
import json
import shlex
import shutil
import sys
import textwrap
import time
from collections.abc import Sequence
from contextlib import closing, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotloop.cli.apart import apart
from hotloop.errors import UsageError
from hotloop.units import duration, parse_duration, rate

if TYPE_CHECKING:
    from hotloop.compare.trace import Trace
    from hotloop.flow import Examination
    from hotloop.launch.throwaway import Throwaway
    from hotloop.record.recording import Recording
    from hotloop.tune.trial import Bench, Examined, Ran, Request, Trial

_USAGE = (
    "hotloop tune [--budget 10m] [--allow exact|numeric|semantic] [--memory SIZE] [--sweep batch-size] "
    "[--out DIR] [--in-place] [--json] -- COMMAND..."
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop tune``."""
    parser.usage = _USAGE
    parser.add_argument(
        "--out", metavar="DIR", type=Path, help="folder of the trials; one that was ended there goes on"
    )
    parser.add_argument(
        "--budget", metavar="TIME", type=_duration, default=600.0, help="for everything (default: 10m)"
    )
    parser.add_argument(
        "--allow",
        choices=("exact", "numeric", "semantic"),
        default="exact",
        help="what a remedy may alter (default: exact, nothing)",
    )
    parser.add_argument(
        "--sweep", choices=("batch-size",), help="throughput and memory against batch size, instead"
    )
    parser.add_argument("--memory", metavar="SIZE", help="host memory a trial may use: 24GiB")
    parser.add_argument(
        "--in-place",
        action="store_true",
        help="let trials write where the command writes",
    )
    parser.add_argument("--json", action="store_true", help="tune.json on standard output")
    parser.add_argument(
        "command", metavar="COMMAND", nargs=argparse.REMAINDER, help="the training command, after --"
    )


def main(options: argparse.Namespace) -> int:
    """0 where something faster was found, 1 where nothing was."""
    command = list(options.command)
    command = command[1:] if command[:1] == ["--"] else command
    if not command:
        raise UsageError("no command to run", hint=f"write the training command after --: {_USAGE}")
    from hotloop.tune.launching import Interrupted

    folder, made = _folder(options.out, command)
    try:
        document, words, found = _tune(options, command, folder)
    except Interrupted:
        again = shlex.join(_again(options, folder, command))
        print(f"hotloop: ended; this goes on where it was:\n    {again}", file=sys.stderr)
        return 130
    except BaseException:
        _drop(folder, made)
        raise
    sys.stdout.write(json.dumps(document, indent=2) + "\n" if options.json else words)
    print(f"tune: {folder / 'tune.json'}", file=sys.stderr)
    return 0 if found else 1


def _again(options: argparse.Namespace, folder: Path, command: Sequence[str]) -> list[str]:
    """The command that goes on with a tuning."""
    words = ["hotloop", "tune", "--out", str(folder), "--budget", f"{options.budget:g}s"]
    words += ["--allow", options.allow] if options.allow != "exact" else []
    words += ["--sweep", options.sweep] if options.sweep else []
    words += ["--memory", options.memory] if options.memory else []
    words += ["--in-place"] if options.in_place else []
    words += ["--json"] if options.json else []
    return [*words, "--", *command]


def _tune(options: argparse.Namespace, command: list[str], folder: Path) -> tuple[dict[str, Any], str, bool]:
    """tune.json, its words, and whether anything faster was found; all of it is on disk."""
    from hotloop.record.publish import write_bytes_atomic, write_text_atomic
    from hotloop.tune import outcome, sweep
    from hotloop.tune.candidates import Limits
    from hotloop.tune.journal import Journal
    from hotloop.tune.launching import Launcher, Say
    from hotloop.tune.search import Search
    from hotloop.tune.subject import subject

    limits = Limits(allow=options.allow, most_bytes=_bytes(options.memory))
    heading = {"command": command, "allow": options.allow, "sweep": options.sweep, **subject(command)}
    journal = Journal(folder, heading)
    _check_apart(command, folder, in_place=options.in_place)
    with closing(journal), _Progress(options.budget) as progress:
        bench = _bench(command, folder, progress, in_place=options.in_place)
        say = Say(trying=progress.trying, done=progress.done)
        launcher = Launcher(
            bench=bench, journal=journal, folder=folder, budget_s=options.budget, limits=limits, say=say,
            command=command,
        )  # fmt: skip
        if options.sweep:
            swept = sweep.sweep(launcher)
            document, words = sweep.to_json(swept, launcher, command), sweep.render(swept)
            found = swept.best != swept.found
        else:
            tuned = Search(launcher=launcher).run()
            written, put = None, None
            if tuned.best:
                patches = launcher.patches
                assert patches is not None  # there was a first run
                written = patches.write(tuned.best)
                write_text_atomic(folder / "tune.patch", written.diff)
                if in_force := patches.in_force(tuned.best):
                    put = folder / outcome.IN_FORCE
                    write_bytes_atomic(put, in_force.diff)
            document = outcome.to_json(tuned, command, written, put)
            words, found = outcome.render(tuned, command, written, folder, put), bool(tuned.best)
    write_text_atomic(folder / "tune.json", json.dumps(document, indent=2) + "\n")
    return document, words, found


def _folder(out: Path | None, command: Sequence[str]) -> tuple[Path, bool]:
    """The folder of the tuning, and whether it is new."""
    from hotloop import flow
    from hotloop.tune.journal import NAME

    if out is not None and (out / NAME).is_file():
        return out.resolve(), False
    folder = flow.new_run_folder(out, command)
    (folder / "raw").rmdir()  # trials have their own
    return folder, True


def _drop(folder: Path, made: bool) -> None:
    """Leave no folder in which no trial came to an end."""
    from hotloop.tune.journal import NAME

    journal = folder / NAME
    if made and not (journal.exists() and journal.read_text().count("\n") > 1):
        shutil.rmtree(folder, ignore_errors=True)


def _check_apart(command: Sequence[str], folder: Path, *, in_place: bool) -> None:
    """Raises UsageError where writes cannot be kept apart and the user did not allow them."""
    if in_place:
        print("hotloop: --in-place: every trial writes where the command writes", file=sys.stderr)
        return
    with apart(command, folder, way_out="add --in-place"):
        pass


def _bench(command: Sequence[str], folder: Path, progress: _Progress, *, in_place: bool) -> Bench:
    from hotloop import flow
    from hotloop.diagnose import Limits, evidence_of
    from hotloop.diagnose.crowding import is_crowded
    from hotloop.launch.guard import Guard
    from hotloop.launch.output import last_words
    from hotloop.launch.within import REFUSED
    from hotloop.remedy import catalogue
    from hotloop.report.ranks import lead
    from hotloop.tune.trial import Bench, Examined, Ran
    from hotloop.whatif.estimate import estimate

    def run(request: Request) -> Ran:
        where = flow.new_run_folder(request.folder, command)
        aside = nullcontext() if in_place else apart(command, folder)
        with aside as room, (where / "output.log").open("w") as log:
            guard = Guard(
                timeout_s=request.timeout_s,
                stop_s=request.stop_s,
                most_bytes=request.most_bytes,
                disk=room.scratch if room is not None else where,
            )
            outcome = flow.observe(
                command,
                where,
                steps=request.steps,
                env=catalogue.environment(request.live) | _plan(request) | _recorded(request),
                patch=request.patch,
                watch_tick=progress.tick,
                stdout=log,
                stderr=log,
                apart=room,
                guard=guard,
            )
            would = _would_write(room)
        started = room is None or outcome.exit_code != REFUSED
        for leftover in where.glob("what-if.blocks*"):
            leftover.unlink()
        return Ran(
            exit_code=outcome.exit_code,
            wall_s=outcome.wall_s,
            ended_for=guard.why or ("" if started else "its writes could not be kept apart"),
            started=started,
            stopped=guard.stopped,
            interrupted=bool(outcome.passed_on) or outcome.abandoned,
            peak_bytes=guard.peak_bytes,
            would_write=would,
            last_words=last_words((where / "output.log").read_text(errors="replace")),
        )

    def examine(where: Path) -> Examined:
        found = flow.examine(flow.read(where))
        steps = lead(found.ranks)
        evidence = None
        if steps is not None and steps.num_steps:
            evidence = evidence_of(found.recording, steps, found.ranks, Limits())
        notes = [note for rank in found.recording.ranks for note in rank.notes.get("remedy", ())]
        applied = {str(note["id"]): str(note.get("status")) for note in notes}
        echoes = [note for rank in found.recording.ranks for note in rank.notes.get("echo", ())]
        return Examined(
            evidence=evidence,
            findings=found.findings,
            applied=applied,
            blocks=estimate(found.recording, steps),
            alone_s=float(echoes[0]["step_s"]) if echoes else None,
            draws=_draws(found),
            turns=_turns(found),
            crowded=evidence is not None and is_crowded(evidence),
            files=_files(found.recording),
            missed=found.recording.patch.missed if found.recording.patch is not None else (),
            trace=_trace(found),
        )

    return Bench(run=run, examine=examine)


def _trace(found: Examination) -> Trace | None:
    from hotloop.compare.trace import trace_of
    from hotloop.report.ranks import lead

    steps = lead(found.ranks)
    process = next((one for one in found.recording.ranks if steps and one.pid == steps.pid), None)
    if steps is None or process is None or not process.notes.get("evidence"):
        return None
    return trace_of(process, steps)


def _draws(found: Examination) -> tuple[str, ...]:
    """The generators that samples of the loaders that feed training were seen to draw from."""
    from hotloop.report.ranks import lead

    steps = lead(found.ranks)
    loaders = steps.loaders if steps is not None else ()
    feeding = {loader.dataset.get("class") for loader in loaders if loader.role == "train"}
    processes = [one for rank in found.recording.ranks for one in (rank, *rank.workers)]
    notes = [note for one in processes for note in one.notes.get("draws", ())]
    drawn = {name for note in notes if note["dataset"] in feeding for name in note["generators"]}
    return tuple(sorted(drawn))


def _turns(found: Examination) -> tuple[str, ...]:
    """The generators that the order of training samples is drawn from by turns with others."""
    from hotloop.report.ranks import lead

    steps = lead(found.ranks)
    loaders = steps.loaders if steps is not None else ()
    return tuple(sorted({name for loader in loaders if loader.role == "train" for name in loader.turns}))


def _files(recording: Recording) -> tuple[Path, ...]:
    """The user's small files of code and configuration that the run found there, and did not write."""
    from hotloop.tune.subject import MOST_BYTES

    kinds = ("source", "config")
    notes = [note for rank in recording.ranks for kind in kinds for note in rank.notes.get(kind, ())]
    found = []
    for path in sorted({Path(str(note["file"])) for note in notes if note.get("file")}):
        with suppress(OSError):
            facts = path.stat()
            if facts.st_size < MOST_BYTES and facts.st_mtime < recording.start_unix_s:
                found.append(path)
    return tuple(found)


def _plan(request: Request) -> dict[str, str]:
    """What makes a launch a what-if run."""
    if request.plan is None:
        return {}
    board = str(request.folder / "what-if.blocks")
    return {"HOTLOOP_WHAT_IF": json.dumps({**request.plan, "board": board, "go_on": False})}


def _recorded(request: Request) -> dict[str, str]:
    return {"HOTLOOP_DRAWS": "1"} | ({"HOTLOOP_EVIDENCE": "1"} if request.evidence else {})


def _would_write(room: Throwaway | None) -> tuple[str, ...]:
    return tuple(f"{kind} {path}" for kind, path in room.written()) if room is not None else ()


class _Progress:
    """A bar on a terminal; elsewhere a line for each trial."""

    def __init__(self, budget_s: float) -> None:
        self._budget_s, self._what, self._share = budget_s, "", 0.0
        self._begun_s = 0.0
        self._bar: Any = None

    def __enter__(self) -> _Progress:
        """Start the bar, where there is a terminal."""
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.progress import BarColumn, Progress, TextColumn

            columns = (TextColumn("{task.fields[spent]}"), BarColumn(20), TextColumn("{task.fields[what]}"))
            self._bar = Progress(*columns, console=Console(stderr=True), transient=True)
            self._bar.add_task("", total=1.0, what="", spent="")
            self._bar.start()
        else:
            words = (
                f"tuning for up to {duration(self._budget_s)}; a line for each launch, the run as found first"
            )
            print(f"hotloop: {words}", file=sys.stderr, flush=True)
        return self

    def __exit__(self, *_: object) -> None:
        """Take the bar away."""
        if self._bar is not None:
            self._bar.stop()

    def trying(self, what: str, share: float) -> None:
        """Before a launch: what is tried, and the share of the budget that is spent."""
        self._what, self._share, self._begun_s = what, share, time.monotonic()
        self.tick()

    def tick(self) -> None:
        """Called once or twice a second."""
        if self._bar is not None:
            share = self._share + (time.monotonic() - self._begun_s) / self._budget_s
            spent = f"{duration(share * self._budget_s)} of {duration(self._budget_s)}"
            self._bar.update(0, completed=min(1.0, share), what=f"trying {self._what}"[:44], spent=spent)

    def done(self, trial: Trial) -> None:
        """After a launch."""
        for line in (line for told in _told(trial) for line in _wrapped(f"hotloop: {told}")):
            if self._bar is not None:
                self._bar.console.print(line, highlight=False, markup=False)
            else:
                print(line, file=sys.stderr, flush=True)


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, 80, subsequent_indent="    ", break_long_words=False, break_on_hyphens=False)


def _told(trial: Trial) -> list[str]:
    """A trial in words."""
    rows = [row for row in trial.more.get("rows", ()) if row["ratio"] is not None]
    if trial.key == "blocks" and not trial.why:
        return [f"{row['intervention']}: {row['ratio']:.2f}x in interleaved blocks" for row in rows]
    if trial.key == "alone":
        alone_s = trial.more.get("step_alone_s")
        unknown = trial.why or "no single loader feeds the steps, or they were too few"
        return [f"the step alone: {duration(alone_s) if alone_s else f'not measured: {unknown}'}"]
    what = " + ".join(trial.remedies) or "as found"
    told = trial.why or f"{duration(trial.s_per_step or 0.0)} per step"
    if trial.samples_per_s:
        told += f", {rate(trial.samples_per_s)} samples/s"
    lines = [f"{what}: {told}"]
    would = trial.more.get("would_write", ())
    if trial.key == "first" and would:
        few = ", ".join(words.removeprefix("written ") for words in would[:3]) + ", ..." * (len(would) > 3)
        lines.append(
            f"would have written {len(would)} file{'s' * (len(would) > 1)}, dropped each time: {few}"
        )
    return lines


def _duration(text: str) -> float:
    try:
        return parse_duration(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is no duration: write 90s, 10m or 1h") from None


def _bytes(text: str | None) -> float | None:
    if text is None:
        return None
    from hotloop.feed.budget import named_bytes, total_memory_bytes

    try:
        return float(named_bytes(text, total_memory_bytes))
    except ValueError as error:
        raise UsageError(f"--memory: {error}") from error
