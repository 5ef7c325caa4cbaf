"""One process of a Recording -> Steps. Read ``measure`` from top to bottom: it is the whole chain."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from hotloop.measure.attribution import (
    Bytes,
    Gaps,
    find_gaps,
    happened,
    saves_of,
    span_phases,
    startup_parts,
    tabulate,
    uncovered_ns,
)
from hotloop.measure.evaluation import (
    Untrained,
    eval_forwards,
    named_evaluation,
    regions_of,
    untrained,
    widened,
)
from hotloop.measure.facts import device_use, facts_of, module_costs, with_kernels
from hotloop.measure.joining import joined
from hotloop.measure.lines import Sampled, main_lines, read_samples, split_gaps, tiled
from hotloop.measure.loaders import loader_uses, loaders_of_iterators
from hotloop.measure.loop import Loop, collecting, training_sites
from hotloop.measure.places import places_of
from hotloop.measure.rebuilt import merge_rebuilt
from hotloop.measure.settings import settings_of
from hotloop.measure.sites import intervals, site_costs, with_graphs, with_last_interval
from hotloop.measure.spans import (
    Bools,
    Spans,
    Table,
    events_of,
    innermost,
    lives_of,
    of_kind,
    owners,
    wall_ns,
)
from hotloop.measure.stacks import main_stacks
from hotloop.measure.stepping import Piece, Seen, Stepping, bounded, find_steps, pieces
from hotloop.measure.steps import Floats, Steps
from hotloop.phases import COLUMN, PHASES
from hotloop.record import rows as row
from hotloop.record.recording import IN_MEMORY, Process, Recording, release

#: Warm-up is at most this share of the steps, and at most this many.
WARM_UP_RATIO = 0.10
WARM_UP_STEPS = 20
#: Iterations that DDP times one by one; its means over fewer say nothing.
TIMED_BY_DDP = 10

#: Tells the recording which functions the user calls evaluation (``hotloop run --evaluation``).
EVALUATION = "HOTLOOP_EVALUATION"
_CANNOT_TELL = (
    "the forwards at {} count as acting (a rollout); rows cannot tell that from an "
    "evaluation: if they are one, give hotloop run --evaluation FUNCTION"
)


def measure(
    process: Process, *, got: Mapping[int, float] = MappingProxyType({}), at_once: int = IN_MEMORY
) -> Steps:
    """Measures one process. Never raises for odd rows or notes: what is not understood stays ``other``.

    ``got``: by process, of the core time that it wanted the share it got (``others.core_time_got``).
    A long recording is measured in pieces of ``at_once`` rows: memory holds one of them. Steps inside the
    window of ``--profile`` are in none.
    """
    parts: list[Steps] = []
    acting: set[int] = set()
    left_out = until = 0
    for piece in pieces(process, lambda part: _seen(part, later=True)[0].stepping, at_once):
        parts.append(_measure(piece, acting, got))
        if parts[1:] and parts[-1].num_steps:
            left_out += piece.begin - until
        until = piece.until or 0
        release(process.rows)
    steps = joined(parts)
    noted = merge_rebuilt(replace(process, rows=process.rows[:0]))
    settings = settings_of(noted, steps.train_loader(), steps.facts, steps.backwards_per_update)
    return replace(steps, settings=settings, left_out_s=left_out / 1e9, partly=any(process.cuts))


def _seen(process: Process, *, later: bool) -> tuple[Seen, Bools]:
    """The rows with the steps found in them, and which of their forwards evaluate."""
    spans = owners(process)
    events = events_of(spans, killed=not process.last("exit"))
    lives = lives_of(spans, events, loaders_of_iterators(process), later=later)
    flagged = eval_forwards(spans, events, lives)
    stepping = find_steps(spans, events, lives, flagged)
    return Seen(spans=spans, events=events, lives=lives, stepping=stepping), flagged


def _measure(piece: Piece, acting: set[int], got: Mapping[int, float]) -> Steps:
    process = merge_rebuilt(piece.process)
    wall = wall_ns(process) if piece.until is None else piece.until
    samples = tiled(of_kind(process, row.SAMPLE))
    places = places_of(process)

    seen, flagged = _seen(process, later=piece.begin > 0)
    spans, events, lives = seen.spans, seen.events, seen.lives
    seen = replace(seen, stepping=bounded(seen.stepping, piece.begin, piece.until))
    collects, scores = collecting(_forwards(seen, row.FORWARD_PARAMS), spans, samples, places)
    flagged = (flagged & ~collects) | scores
    named = named_evaluation(spans, places, (process.first("process").get("env") or {}).get(EVALUATION, ""))
    sorted_out = untrained(seen, flagged, named, collects | scores, acting)
    evaluates, acts = sorted_out.evaluates & ~collects, sorted_out.acts | collects
    regions = widened(regions_of(seen, evaluates, acts), seen, evaluates, samples, places)
    saves = saves_of(spans)
    if piece.until is None:
        ended = (spans.kind == row.FETCH) & ((spans.flags & row.FETCH_END) != 0)
        training = spans.start[events.work | (events.fetch & lives.training_row & ~ended)]
        longer = with_last_interval(seen.stepping, training, regions, saves, later=piece.begin > 0)
        seen = replace(seen, stepping=longer)

    stepping = seen.stepping
    trained = _used(seen, sorted_out)
    done = happened(seen, trained, evaluates)
    phase = span_phases(seen, regions, saves)
    exit_t = process.last("exit").get("t")  # none where it was killed
    exit_ns = exit_t - process.origin_ns if isinstance(exit_t, int) else None
    gaps = find_gaps(seen, done, regions, saves, piece.begin, wall, exit_ns)
    in_span = spans.began(*stepping.span)
    training = in_span & (phase != COLUMN["evaluation"])
    held = in_span & evaluates
    sites = training_sites(spans, places, training, held, lives.training_row, trained, len(stepping))
    loop = Loop(places, sites, by_loader=stepping.by_loader)
    forward = phase == COLUMN["forward"]
    phase[acts & training & forward] = COLUMN["data_wait"]
    # Modules without parameters that build no graph are beside the model: an augmentation, a metric.
    phase[(sorted_out.shows | _forwards(seen, 0)) & training & forward] = COLUMN["other"]
    sampled = read_samples(samples, spans, phase, gaps, loop)
    phases, span_totals, totals = tabulate(seen, phase, gaps, split_gaps(sampled, gaps))
    # What follows a piece's last sample is the weight of one in the next piece.
    told_until = (exit_ns or wall) if piece.until is None or not len(samples) else int(samples.start[-1])
    uncovered = uncovered_ns(samples, gaps, told_until)
    unaccounted = min(uncovered / 1e9, max(0.0, float(totals[COLUMN["other"]])))
    pauses = of_kind(process, row.GC)
    paused = _phase_of(pauses, spans, phase, sampled, gaps)
    del gaps
    totals[COLUMN["other"]] -= unaccounted

    facts = facts_of(process, spans)
    # Where rows cannot tell a rollout from an evaluation.
    asked = (places.site(int(site)) for site in np.unique(spans.site[sorted_out.acts & training]))
    told = ", ".join(dict.fromkeys(f"{Path(one.file).name}:{one.line}" for one in asked if one is not None))
    facts["unclear"] = [_CANNOT_TELL.format(told)] if told else []
    ran = got.get(process.pid, 1.0)
    backward_s = float(span_totals[COLUMN["backward"]]) / max(1, len(stepping))
    on_host = not facts["accelerator"]  # else the host does not wait for it
    exchange_s = _exposed_communication(process, stepping, backward_s, on_host=on_host)
    part = exchange_s / backward_s if exchange_s and on_host else 0.0
    compiled = np.isin(np.arange(len(stepping)), stepping.of(spans.start[spans.kind == row.COMPILE]))
    losses = of_kind(process, row.LOSS)
    steady = _steady(stepping, compiled, first=not piece.begin)
    return Steps(
        rank=process.rank,
        pid=process.pid,
        start_s=stepping.start / 1e9,
        end_s=stepping.end / 1e9,
        phases=_with_exchange(phases, part),
        samples=_samples(seen, of_kind(process, row.STEP)),
        steady=steady,
        totals=_by_name(_with_exchange(totals, part)),
        span_totals=_by_name(_with_exchange(span_totals, part)),
        wall_s=wall / 1e9,
        span=(stepping.span[0] / 1e9, stepping.span[1] / 1e9),
        unaccounted_s=unaccounted,
        num_updates=stepping.num_updates,
        num_epochs=int((lives.num_batches[stepping.driving & ~lives.goes_on] > 0).sum()),
        backwards_per_update=stepping.backwards_per_update,
        startup=startup_parts(process, seen, samples, places, exit_ns or wall, totals[COLUMN["startup"]]),
        stacks=main_stacks(sampled, places),
        lines=main_lines(sampled, loop, places, stepping.span, span_totals, ran),
        loaders=loader_uses(process, seen, places, got),
        core_ratio=ran,
        evaluations=with_graphs(intervals(seen, regions, loop, places, samples), seen),
        checkpoints=intervals(seen, saves, loop, places, samples),
        sites=site_costs(seen, phase, places, loop),
        compiles_at=tuple(np.flatnonzero(compiled).tolist()),
        graph_breaks=sum((process.last("compile").get("graph_breaks") or {}).values()),
        modules=module_costs(process, of_kind(process, row.MODULE)),
        device=with_kernels(device_use(of_kind(process, row.DEVICE), seen, phase), process.last("profile")),
        scaler_steps=int(((spans.kind == row.SCALER) & (spans.obj == 1) & events.used).sum()),
        scaler_skips=int(events.skipped.sum()),
        facts=facts,
        collective_in_backward_s=exchange_s,
        source_loop=loop.place(),
        framework_call=loop.framework_call(),
        compile_s=float(spans.exclusive[(spans.kind == row.COMPILE) & (in_span | (not len(stepping)))].sum())
        / 1e9,
        losses=losses.value.astype(np.uint32).view(np.float32).astype(np.float64),
        loss_steps=stepping.of(losses.start),
        **_collections(pauses, paused, stepping, steady),
    )


def _by_name(values: Floats) -> dict[str, float]:
    return {name: float(values[i]) for i, name in enumerate(PHASES)}


def _samples(seen: Seen, marked: Table) -> Floats:
    """Samples of each step's batches of the driving loader; else those of marked steps; nan where neither is
    known.
    """
    spans, stepping = seen.spans, seen.stepping
    step = np.searchsorted(stepping.end, marked.start, side="right")  # it began before its first row
    told = np.bincount(step, weights=marked.value, minlength=len(stepping))[: len(stepping)]
    result = np.where(told > 0, told, np.nan)
    if not len(stepping) or not stepping.by_loader:
        return result
    drives = np.append(stepping.driving, False)[seen.lives.of_row] & seen.events.fetch
    fetch = np.flatnonzero(drives & ((spans.flags & row.FETCH_END) == 0) & (spans.value > 0))
    step = stepping.of(spans.start[fetch])
    known = step >= 0
    sums = np.bincount(step[known], weights=spans.value[fetch][known], minlength=len(stepping))
    return np.where(sums > 0, sums, result)


def _used(seen: Seen, sorted_out: Untrained) -> Bools:
    """[rows] forwards of the step: those that build a graph, and a teacher's where a loader drives."""
    teaches = seen.stepping.by_loader & ((seen.spans.flags & row.FORWARD_PARAMS) != 0)
    used = seen.events.forward & (seen.events.built | teaches)
    return np.asarray(used & ~(sorted_out.evaluates | sorted_out.acts | sorted_out.shows))


def _forwards(seen: Seen, flags: int) -> Bools:
    """[rows] forwards with these flags of gradients and parameters."""
    asked = row.FORWARD_GRAD | row.FORWARD_PARAMS
    return np.asarray(seen.events.forward & ((seen.spans.flags & asked) == flags))


def _steady(stepping: Stepping, compiled: Bools, *, first: bool) -> Bools:
    """Leading steps outside the later steps' distribution are warm-up; steps with a compile never count."""
    num = len(stepping)
    steady = ~compiled
    if not num or not first:
        return steady
    length = (stepping.end - stepping.start).astype(np.float64)
    most = max(1, min(WARM_UP_STEPS, int(num * WARM_UP_RATIO)))
    usual = np.quantile(length[most:], 0.95) if num > most else np.inf
    warm = 1
    while warm < most and length[warm] > usual:
        warm += 1
    steady[:warm] = False
    return steady


def _exposed_communication(
    process: Process, stepping: Stepping, backward_s: float, *, on_host: bool
) -> float:
    """Seconds per step of DDP's gradient exchange that backward did not hide.

    DDP times its first ten iterations and every hundredth, so ranks that start apart weigh in its means: of
    ``backward_s``, in which the host waits for the exchange, it is no more than what is not computing.
    """
    note = process.last("ddp")
    spent, hidden, computing, counted = (
        float(told) if isinstance(told := note.get(name), int | float) else 0.0
        for name in ("avg_backward_comm_s", "overlap_s", "avg_backward_compute_s", "iterations")
    )
    steps = len(stepping)
    if counted < TIMED_BY_DDP or not steps:
        return 0.0
    each = spent - hidden
    # Under no_sync() only the last of the steps of an update exchanges; DDP counts and averages those alone.
    if counted <= 1.5 * stepping.num_updates < steps:
        each *= stepping.num_updates / steps
    return max(0.0, min(each, backward_s - (computing if on_host else 0.0)))


def _with_exchange(phases: Floats, part: float) -> Floats:
    """Seconds by phase, this part of backward counted as the collective in it."""
    moved = phases.copy()
    moved[..., COLUMN["backward"]] *= 1.0 - part
    moved[..., COLUMN["collective"]] += part * phases[..., COLUMN["backward"]]
    return moved


def _collections(pauses: Table, phase: Bytes, stepping: Stepping, steady: Bools) -> dict[str, Any]:
    """The garbage collector's part of the span; in the warm-up it is that of what is imported there."""
    begin, end = stepping.span
    warm_up = int(steady.argmax()) if steady.any() else 0
    warmed = begin if warm_up == 0 else int(stepping.start[warm_up])
    inside = pauses.began(warmed, end)
    took = pauses.duration[inside]
    by_phase = np.bincount(phase[inside], weights=took, minlength=len(PHASES)) / 1e9
    return {
        "gc_s": float(took.sum()) / 1e9,
        "gc_count": int(inside.sum()),
        "gc_s_by_phase": _by_name(by_phase),
    }


def _phase_of(times: Table, spans: Spans, phase: Bytes, sampled: Sampled, gaps: Gaps) -> Bytes:
    """[n] the phase of short intervals: of the row they fell into, else of the gap; where samples decide, of
    the one taken next in it.
    """
    owner = innermost(spans, times.start)
    gap = np.where(owner >= 0, -1, gaps.of(times.start))
    found = np.full(len(times), COLUMN["other"], np.uint8)
    found[owner >= 0] = phase[owner[owner >= 0]]
    found[gap >= 0] = gaps.phase[gap[gap >= 0]]
    after = np.searchsorted(sampled.samples.start, times.end)
    told = (gap >= 0) & (after < len(sampled.samples))
    told[told] = sampled.gap[after[told]] == gap[told]
    found[told] = sampled.phase[after[told]]
    return found


# Which training processes of a command are ranks of one job


def main_job(recording: Recording, measured: Sequence[Steps]) -> tuple[Recording, tuple[Steps, ...]]:
    """The recording with the ranks of that job only which trained longest, and their steps.

    ``measured`` are the steps of ``recording.ranks``. Trainings one after the other in a script, or beside
    each other, are no ranks: they do not wait for each other, and their rates do not add up.
    """
    trained = [(process, steps) for process, steps in zip(recording.ranks, measured, strict=True)]
    jobs = _jobs([process for process, steps in trained if steps.num_steps])
    if not jobs:
        return recording, tuple(measured)
    seconds = {id(process): steps.span_s for process, steps in trained}
    longest = max(jobs, key=lambda job: max(seconds[id(process)] for process in job))
    keys = {id(process) for process in longest}
    ranks = [pair for pair in trained if id(pair[0]) in keys]
    begin, end = longest[0].start_ns, longest[0].end_ns
    here = {one.pid for one in recording.node_of(longest[0].pid).ranks}
    others = [one for job in jobs if job is not longest for one in job if one.pid in here]
    shared = sum(max(0, min(end, one.end_ns) - max(begin, one.start_ns)) for one in others)
    only = replace(
        recording,
        ranks=tuple(process for process, _ in ranks),
        num_jobs=len(jobs),
        num_beside=shared / max(1, end - begin),
    )
    return only, tuple(steps for _, steps in ranks)


def _jobs(processes: Sequence[Process]) -> list[list[Process]]:
    """Processes of different ranks and one world size of which each began before any other ended."""
    jobs: list[tuple[list[Process], set[int], int, object]] = []  # with its ranks, first end and world size
    for process in sorted(processes, key=lambda process: process.start_ns):
        world = process.first("process").get("world_size")
        for at, (job, ranks, end_ns, size) in enumerate(jobs):
            if process.rank not in ranks and process.start_ns < end_ns and world == size:
                job.append(process)
                jobs[at] = job, {*ranks, process.rank}, min(end_ns, process.end_ns), size
                break
        else:
            jobs.append(([process], {process.rank}, process.end_ns, world))
    return [job for job, *_ in jobs]
