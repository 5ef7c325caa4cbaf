"""One side of a comparison: a recording, measured, with the evidence of its training processes."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from hotloop.errors import UsageError
from hotloop.findings import Finding
from hotloop.foreign import clean
from hotloop.measure.measure import main_job, measure
from hotloop.measure.rebuilt import merge_rebuilt
from hotloop.measure.steps import Floats, Steps, span_s
from hotloop.record import rows as row
from hotloop.record.read import open_recording
from hotloop.record.recording import Note, Process, Recording

_PRECISION_FLAGS: Final = ("matmul_allow_tf32", "cudnn_allow_tf32", "float32_matmul_precision")
#: Stands in ``Trace.precision`` where a device multiplies float32 with the 10 binary digits of TF32.
TENSOR_FLOAT: Final = "TensorFloat-32"

#: Samples of the system, or of a process, that a number is told from.
_LEAST_SAMPLES: Final = 3

U32 = npt.NDArray[np.uint32]


@dataclass(frozen=True, kw_only=True)
class Batches:
    """The batches of one training loader, in the order they were handed out.

    ``order``: [n] checksum of the sample indices, ``sums`` their sum modulo 2^16; empty where the loader has
    none. ``first`` is [n] whether a batch is the first of its pass. ``leaves`` maps a field's name to [n]
    checksums, 0 where there was none. ``unread``: fields that the script did not look at.
    """

    loader: int
    order: U32
    sums: U32
    first: npt.NDArray[np.bool_]
    leaves: Mapping[str, U32]
    unread: frozenset[str] = frozenset()

    @property
    def num_batches(self) -> int:
        """How many were handed out."""
        return max([len(self.order), *map(len, self.leaves.values())], default=0)


@dataclass(frozen=True, kw_only=True)
class Trace:
    """The evidence of one training process. ``losses`` [n] as float32, ``exact`` [n] with all their bits."""

    rank: int
    recorded: bool
    losses: Floats
    exact: npt.NDArray[np.uint64]
    loaders: tuple[Batches, ...]
    trained: Mapping[str, Note] = field(default_factory=dict)  # "Class", "Class 2" -> note
    checkpoints: tuple[Note, ...] = ()
    metrics: Mapping[str, Note] = field(default_factory=dict)
    seed: int | None = None
    executable: str = ""
    updates: int | None = None  # of all optimizers, in the whole run
    perturbed: bool = False  # see probe.evidence.perturbed
    precision: tuple[str, ...] = ()  # what numbers were computed in, as far as it is known


def trace_of(process: Process, steps: Steps) -> Trace:
    """The evidence in a process's rows and notes."""
    process = merge_rebuilt(process)
    rows = process.rows
    losses = rows[rows["kind"] == row.LOSS]
    values = losses["value"].astype(np.uint32)
    notes = process.notes
    seed = process.last("exit").get("torch_seed")
    return Trace(
        rank=steps.rank,
        recorded="evidence" in process.notes,
        losses=values.view(np.float32).astype(np.float64),
        exact=values.astype(np.uint64) << np.uint64(16) | losses["extra"].astype(np.uint64),
        loaders=_loaders(process, steps),
        trained=_numbered(notes.get("trained", [])),
        checkpoints=tuple(notes.get("checkpoint", ())),
        metrics={str(note["name"]): note for note in notes.get("metric", ())},
        seed=seed if isinstance(seed, int) else None,
        updates=process.last("exit").get("updates"),
        executable=str(process.first("process").get("executable") or ""),
        perturbed=bool(process.first("evidence").get("perturbed")),
        precision=_precision(process),
    )


def _precision(process: Process) -> tuple[str, ...]:
    autocast, flags = process.last("autocast"), process.last("torch")
    cast = f"autocast {autocast.get('dtype')}" if autocast.get("share") else ""
    kinds = sorted(
        {kind for note in process.notes.get("module", ()) for kind in note.get("param_dtypes") or ()}
    )
    on_device = flags.get("device_count") and any(flags.get(name) is True for name in _PRECISION_FLAGS)
    rounds = (TENSOR_FLOAT,) if on_device else ()
    return (cast, *kinds, *(f"{name} {flags.get(name)}" for name in _PRECISION_FLAGS), *rounds)


def _numbered(notes: list[Note]) -> dict[str, Note]:
    found: dict[str, Note] = {}
    for note in notes:
        name, number = str(note["of"]), 2
        while name in found:
            name, number = f"{note['of']} {number}", number + 1
        found[name] = note
    return found


def _loaders(process: Process, steps: Steps) -> tuple[Batches, ...]:
    """The training loaders in the order of their first batch; without any, what modules were called with."""
    rows = process.rows
    trains = {use.id for use in steps.loaders if use.role == "train"}
    seen = dict.fromkeys(int(obj) for obj in rows["obj"][rows["kind"] == row.CONTENT])
    wanted = [loader for loader in seen if loader in trains] or [loader for loader in seen if loader == 0]
    paths, unread = (
        {int(note["loader"]): note[name] for note in process.notes.get(kind, ())}
        for kind, name in (("leaves", "paths"), ("unread", "unread"))
    )
    evidence = rows[np.isin(rows["kind"], (row.ORDER, row.CONTENT, row.ITER))]
    return tuple(_batches(evidence, one, paths.get(one, []), unread.get(one, ())) for one in wanted)


def _batches(
    evidence: npt.NDArray[np.void], loader: int, paths: Sequence[str], unread: Iterable[str]
) -> Batches:
    order, content = (
        evidence[(evidence["kind"] == kind) & (evidence["obj"] == loader)]
        for kind in (row.ORDER, row.CONTENT)
    )
    passes = evidence["start"][(evidence["kind"] == row.ITER) & (evidence["value"] == loader)]
    number = content["extra"].astype(np.int64)
    # Leaves are numbered upwards within a batch.
    begins = np.ones(len(content), np.bool_)
    begins[1:] = number[1:] <= number[:-1]
    batch, count = np.cumsum(begins) - 1, int(begins.sum())
    leaves = {}
    for leaf in np.unique(number):
        mine = number == leaf
        crc = np.zeros(count, np.uint32)
        crc[batch[mine]] = content["value"][mine]
        leaves[paths[leaf] if leaf < len(paths) else f"leaf {leaf}"] = crc
    first = np.zeros(count, np.bool_)
    at = np.searchsorted(content["start"][begins], passes)
    first[at[at < count]] = True
    return Batches(
        loader=loader,
        order=order["value"].astype(np.uint32),
        sums=order["extra"].astype(np.uint32),
        first=first,
        leaves=leaves,
        unread=frozenset(unread),
    )


@dataclass(frozen=True, kw_only=True)
class Run:
    """``findings`` are those of the rules, where the caller had them run."""

    label: str
    recording: Recording
    ranks: tuple[Steps, ...]
    traces: tuple[Trace, ...]
    findings: tuple[Finding, ...] = field(default=())

    @property
    def lead(self) -> Steps:
        """The rank with the most steps: in a job of several they wait for each other."""
        return max(self.ranks, key=lambda steps: (steps.num_steps, -steps.rank))

    @property
    def trace(self) -> Trace:
        """The evidence of the leading rank."""
        return next(trace for trace in self.traces if trace.rank == self.lead.rank)

    @property
    def process(self) -> Process:
        """The leading rank's process."""
        return next(process for process in self.recording.ranks if process.pid == self.lead.pid)

    def while_training(self, at: Floats, values: Floats) -> Floats | None:
        """Of values sampled at these seconds [n] those of the training span; None where they are too few."""
        start, end = span_s(self.recording, self.process, self.lead)
        inside = values[(at >= start) & (at <= end) & np.isfinite(values)]
        return inside if len(inside) >= _LEAST_SAMPLES else None

    @property
    def command(self) -> str:
        """As it would be typed."""
        return shlex.join(self.recording.command)

    @property
    def applied(self) -> tuple[dict[str, Any], ...]:
        """The remedies that were in force, each with its last status."""
        last = {note["id"]: note for note in self.process.notes.get("remedy", ())}
        return tuple(last.values())


def run_of(path: Path, label: str = "") -> Run:
    """Read and measure a run folder. Raises UsageError where it holds no training."""
    return measured(open_recording(path), label or clean(path))


def measured(
    recording: Recording, label: str, ranks: Sequence[Steps] = (), findings: Sequence[Finding] = ()
) -> Run:
    """A recording as one side; ``ranks`` where it is measured already."""
    if not ranks:
        recording, ranks = main_job(recording, [measure(process) for process in recording.ranks])
    steps = tuple(one for one in ranks if one.num_steps)
    if not steps:
        ended = how_it_failed(recording)
        raise UsageError(
            f"{label} has no training step in it{f': {ended}' if ended else ''}",
            hint="compare runs of a command that trains for some steps",
        )
    by_pid = {process.pid: process for process in recording.ranks}
    return Run(
        label=label,
        recording=recording,
        ranks=steps,
        traces=tuple(trace_of(by_pid[one.pid], one) for one in steps),
        findings=tuple(findings),
    )


def how_it_failed(recording: Recording) -> str:
    """Why a run is not whole, "" where it is."""
    notes = [process.last("exit") for process in recording.ranks]
    raised = next((note for note in notes if note.get("exception")), {})
    if raised.get("exception") not in (None, "SystemExit", "KeyboardInterrupt"):
        message = str(raised.get("message") or "").strip().rpartition("\n")[2]
        return f"it ended with {raised['exception']}: {message}"[:200]
    if recording.exit_code:
        return f"it ended with exit code {recording.exit_code}"
    if recording.exit_code is None or not recording.complete:
        return "it was killed, or still runs"
    return ""


def ended_on_purpose(base: Run, candidate: Run) -> bool:
    """Whether the run with fewer steps has fewer because ``--steps`` asked for them."""
    if base.lead.num_steps == candidate.lead.num_steps:
        return False
    fewer = min(base, candidate, key=lambda run: run.lead.num_steps)
    return bool(fewer.process.last("exit").get("reason") == "steps")
