"""Every DataLoader: its settings, its waits, and what its makers did."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any, Literal

import numpy as np

from hotloop.findings import Place
from hotloop.measure.lines import LineTally, groups, merge_lines, tiled
from hotloop.measure.places import Places, places_of
from hotloop.measure.spans import Ints, Spans, Table, holder, innermost, nest, of_kind, table
from hotloop.measure.stepping import Seen
from hotloop.measure.steps import LineCost, LoaderUse, Padding
from hotloop.record import rows as row
from hotloop.record.fields import is_count
from hotloop.record.recording import Note, Process
from hotloop.source.loops import unread_parts
from hotloop.source.stateful import reading_for, set_by_script
from hotloop.source.written import called_as, called_at, holds, spelled_by

#: Fields of a ``loader`` note that are no settings.
NO_SETTINGS = frozenset(("note", "t", "id", "where", "via", "by", "own", "dataset"))


def loaders_of_iterators(process: Process) -> dict[int, int]:
    """Iterator id -> loader id."""
    return {
        int(note["id"]): int(note["loader"])
        for note in process.notes.get("iterator", ())
        if isinstance(note.get("id"), int) and isinstance(note.get("loader"), int)
    }


def loader_uses(
    process: Process, seen: Seen, places: Places, got: Mapping[int, float]
) -> tuple[LoaderUse, ...]:
    """One entry per loader that was built or used."""
    lives, stepping = seen.lives, seen.stepping
    notes = {int(n["id"]): n for n in process.notes.get("loader", ()) if isinstance(n.get("id"), int)}
    ids = sorted(set(notes) | {int(i) for i in lives.loader if i > 0})
    if len(lives) and (lives.loader == 0).any():
        ids.append(0)
    span = stepping.span if len(stepping) else (0, int(np.iinfo(np.int64).max))
    workers = _workers_of(process, ids)
    uses = []
    for number in ids:
        made = _making(process, workers[number], seen, number, span, places, got)
        uses.append(_use(process, notes.get(number, {}), number, seen, span, made, places))
    return tuple(uses)


def _use(
    process: Process,
    note: Note,
    number: int,
    seen: Seen,
    span: tuple[int, int],
    made: tuple[Table, Table, dict[str, Any]],
    places: Places,
) -> LoaderUse:
    spans, lives = seen.spans, seen.lives
    make, collate, shown = made
    mine = np.flatnonzero(lives.loader == number)
    trains = bool(len(mine)) and bool(lives.trains[mine].any())
    role: Literal["train", "evaluation", "unused"] = (
        "train" if trains else "evaluation" if len(mine) else "unused"
    )
    chosen = mine[lives.trains[mine]] if trains else mine
    holds = np.zeros(len(lives) + 1, np.bool_)
    holds[chosen] = True
    owned = holds[lives.of_row] & seen.events.used
    in_span = spans.began(*span) if trains else np.ones(len(spans), np.bool_)
    rows = np.flatnonzero(owned & in_span)
    # An iterator that is exhausted ends its workers inside the fetch that finds no batch.
    ends = (spans.kind == row.SHUTDOWN) & in_span & np.isin(spans.obj, lives.iterator[chosen])
    fetch = rows[(spans.kind[rows] == row.FETCH) & ((spans.flags[rows] & row.FETCH_END) == 0)]
    waits = spans.duration[fetch] / 1e9
    ready = spans.extra[fetch].astype(np.float64)
    ready[ready == row.U16_MAX] = np.nan
    asked, first = np.unique(lives.of_row[fetch], return_index=True)
    fed = (spans.flags[fetch] & row.FETCH_WORKERS) != 0
    batches = lives.num_batches[chosen]
    settings = {k: v for k, v in note.items() if k not in NO_SETTINGS}
    num_workers = settings.get("num_workers")
    # What a worker has put may wait in it for Python's lock while it computes: only a full queue is ready.
    full = max(1, int(num_workers or 0) * int(settings.get("prefetch_factor") or 2))
    delivered = waits[(ready >= full) & fed]
    own = {int(i) for i in lives.iterator[lives.loader == number]}
    batch = [one for one in process.notes.get("batch", ()) if one.get("iterator") in own]
    dataset = note.get("dataset")
    fields = tuple(batch[0].get("fields") or ()) if batch else ()
    by, where = str(note.get("by") or ""), _given_at(process, note, places)
    iterators = (one for one in process.notes.get("iterator", ()) if one.get("loader") == number)
    lengths = [one["num_batches"] for one in iterators if isinstance(one.get("num_batches"), int)]
    return LoaderUse(
        id=number,
        role=role,
        where=where,
        settings=settings,
        dataset=dataset if isinstance(dataset, dict) else {},
        dataset_changes=changes_of(process, number),
        dataset_written=written_of(process, number),
        num_iterators=int((batches[~lives.goes_on[chosen]] > 0).sum()),
        batches_per_epoch=_batches_per_epoch(batches[batches > 0]),
        length=max(lengths, default=None),
        anew=bool(note.get("rebuilt")) or len(set(lengths)) > 1,
        num_batches=len(fetch),
        wait_s=waits,
        ready=ready,
        iter_s=spans.duration[rows[spans.kind[rows] == row.ITER]] / 1e9,
        first_batch_s=waits[first[~lives.goes_on[asked]]],
        shutdown_s=spans.duration[ends] / 1e9,
        sample_s=_sample_s(make, collate, spans.value[fetch], own=bool(note.get("own"))),
        batch_bytes=_batch_bytes(make, batch),
        batch_fields=tuple(f for f in fields if isinstance(f, dict)),
        padding=_padding(batch),
        unused_fields=unread_fields(process, number, spans, fetch, places),
        busy_ratio=_busy(make, num_workers, span, spans),
        deliver_s=float(np.median(delivered)) if len(delivered) else None,
        **shown,
        by=by,
        maker=called_as(by) if where is not None and where == _site_of(note, places) else "",
        own=bool(note.get("own")),
    )


def changes_of(process: Process, number: int) -> tuple[str, ...]:
    """Attributes of a loader's dataset that the script had changed between two of its iterators."""
    return set_by_script(process.notes, number, _noted(process, number, "dataset_changed"))


def written_of(process: Process, number: int) -> tuple[str, ...]:
    """Attributes of a loader's dataset that were written while it was gone through, and samples made of."""
    reading = reading_for(process.notes, number)
    return reading.workers_would_miss(_noted(process, number, "dataset_written")) if reading else ()


def _noted(process: Process, number: int, kind: str) -> tuple[str, ...]:
    notes = process.notes.get(kind, ())
    return tuple({str(name): 0 for note in notes if note.get("loader") == number for name in note["names"]})


def _given_at(process: Process, note: Note, places: Places) -> Place | None:
    """Where a loader's settings are given: at its construction, or where what a library made it from has
    them, another loader of the user's or the framework's own arguments. A process that a library started
    may have no line of the user's above it.
    """
    by = str(note.get("by") or "")
    if not by and note.get("where"):
        return _site_of(note, places)
    used = {one.get("loader") for one in process.notes.get("iterator", ())}
    alike = {
        _site_of(one, places)
        for one in process.notes.get("loader", ())
        if not one.get("by") and one.get("id") not in used and one.get("dataset") == note.get("dataset")
    } - {None}
    if len(alike) == 1:
        return alike.pop()
    spelled = spelled_by(by)
    texts = {file: "\n".join(lines) for file, lines in places.sources.items()}
    held = called_at(texts, spelled.holder, partial(holds, spelled)) if spelled is not None else None
    return Place(file=held.file, line=held.line) if held is not None else _site_of(note, places)


def _site_of(note: Note, places: Places) -> Place | None:
    where = note.get("where")
    return places.site(where) if isinstance(where, int) else None


def _batches_per_epoch(batches: Ints) -> float:
    """The mean over iterators; the last one counts only where it was not cut short by the end of the run."""
    if len(batches) > 1 and batches[-1] < batches[:-1].mean():
        batches = batches[:-1]
    return float(batches.mean()) if len(batches) else 0.0


def _sample_s(make: Table, collate: Table, held: Ints, *, own: bool) -> float:
    """Mean seconds of a sample. What is no DataLoader may make whole batches of ``held`` samples each."""
    num = float(make.extra.sum())
    if own and num == len(make) and held.any():
        num *= float(held[held > 0].mean())
    spent = float(make.duration.sum() - collate.duration.sum())
    return max(0.0, spent) / num / 1e9 if num else 0.0


def _batch_bytes(make: Table, batch: list[Note]) -> float:
    measured = make.value[(make.value > 0) & (make.value < row.U32_MAX)]
    if len(measured):
        return float(measured.mean())
    noted = [float(n["bytes"]) for n in batch if isinstance(n.get("bytes"), int | float)]
    return float(np.mean(noted)) if noted else 0.0


def _padding(batch: list[Note]) -> Padding | None:
    """Of the masks that have one length in all noted batches, what the one with the most padding shows."""
    masks: dict[str, list[tuple[int, ...]]] = {}
    for mask in (one for note in batch for one in note.get("fields") or () if "longest" in one):
        shown = (*(mask.get("shape") or ()), mask["longest"], mask.get("real"))
        if len(shown) == 4 and is_count(*shown) and 0 not in shown[:2]:
            masks.setdefault(str(mask.get("path")), []).append(shown)
    found = [
        Padding(
            length=int(length[0]),
            longest=float(longest.mean()),
            real=float((real / rows).mean()),
            num_batches=len(rows),
        )
        for rows, length, longest, real in (np.array(shown).T for shown in masks.values())
        if (length == length[0]).all()
    ]
    return max(found, key=lambda one: one.length - one.longest, default=None)


def _busy(make: Table, num_workers: Any, span: tuple[int, int], spans: Spans) -> float | None:
    if not isinstance(num_workers, int) or num_workers < 1 or not len(make):
        return None
    end = min(span[1], int(spans.end.max()) if len(spans) else span[1])
    available = num_workers * max(1, end - span[0])
    begin = np.clip(make.start, span[0], end)
    return float(min(1.0, (np.clip(make.end, span[0], end) - begin).sum() / available))


# What the makers did


def _workers_of(process: Process, ids: Iterable[int]) -> dict[int, list[Process]]:
    """Loader id -> its worker processes, by the pids its iterators noted; all of them of an only loader."""
    loader_of = {}
    for note in process.notes.get("iterator", ()):
        for pid in note.get("workers") or ():
            loader_of[pid] = note.get("loader")
    found: dict[int, list[Process]] = {number: [] for number in ids}
    for worker in process.workers:
        number = loader_of.get(worker.pid, next(iter(found)) if len(found) == 1 else None)
        if isinstance(number, int) and number in found:
            found[number].append(worker)
    return found


def _making(
    process: Process,
    workers: list[Process],
    seen: Seen,
    number: int,
    span: tuple[int, int],
    places: Places,
    got: Mapping[int, float],
) -> tuple[Table, Table, dict[str, Any]]:
    """MAKE and COLLATE rows of one loader's makers, and what they show of it."""
    spans, lives, origin = seen.spans, seen.lives, process.origin_ns
    kinds = (row.MAKE, row.COLLATE, row.SLOWEST)
    mine = np.append(lives.loader == number, False)[lives.of_row] & (spans.kind == row.FETCH)
    parts = {kind: [] for kind in kinds}  # type: dict[int, list[Table]]
    line_parts: list[LineCost] = []
    slowest_parts: list[LineCost] = []
    cpu: list[tuple[float, float]] = []
    total = 0.0
    sources = [(process, places, mine)] if mine.any() else []
    for maker, its_places, inside in [
        *sources,
        *((w, _with_sources(places_of(w), places), None) for w in workers),
    ]:
        tables = {kind: of_kind(maker, kind, origin=origin) for kind in kinds}
        if inside is not None:  # the main process: only what was made inside this loader's fetches
            start, end = spans.start[inside], spans.end[inside]
            tables = {kind: t.take(holder(start, end, t.start) >= 0) for kind, t in tables.items()}
        made = nest(tables[row.MAKE])
        if len(made) or inside is None:  # a worker that gave no batch was at its first
            samples, ran = tiled(of_kind(maker, row.SAMPLE, origin=origin)), got.get(maker.pid, 1.0)
            tally, shares = _maker_lines(samples, made, its_places, span)
            line_parts.extend(tally.costs(ran))
            if len(slow := nest(tables[row.SLOWEST])):
                slowest_parts.extend(_maker_lines(samples, slow, its_places, span)[0].costs(ran))
            total += tally.total_ns / 1e9
            cpu.append((shares[0] / ran, shares[1]))
        for kind, t in tables.items():
            parts[kind].append(t.take(t.began(*span)))
    merged = {kind: _concat(parts[kind]) for kind in kinds}
    weight = sum(w for _, w in cpu)
    make, collate, slowest = merged.values()
    return (
        make,
        collate,
        {
            "make_s": make.duration / 1e9,
            "collate_s": float(collate.duration.mean() / 1e9) if len(collate) else 0.0,
            "slowest_sample_s": slowest.duration / 1e9,
            "lines": merge_lines(line_parts),
            "lines_total_s": total,
            "slowest_lines": merge_lines(slowest_parts),
            "make_on_cpu_ratio": min(1.0, sum(c for c, _ in cpu) / weight) if weight else None,
            "worker_stats": _stats(workers),
            "num_worker_processes": len({worker.pid for worker in workers}),
        },
    )


def _with_sources(own: Places, parent: Places) -> Places:
    """A worker's places; source text it did not write itself comes from its parent."""
    return Places(sites=own.sites, stacks=own.stacks, sources={**parent.sources, **own.sources})


def _maker_lines(
    samples: Table, made: Spans, places: Places, span: tuple[int, int]
) -> tuple[LineTally, tuple[float, float]]:
    """Lines sampled while making batches, and (on-CPU weight, weight)."""
    tally = LineTally(places)
    seen = samples.began(*span) | (span[1] <= span[0])
    chosen = seen & ((innermost(made, samples.start) >= 0) | (not len(made)))
    index = np.flatnonzero(chosen)
    for group in groups(samples.value[index].astype(np.int64)):
        tally.add(samples, index[group], "data_wait", "input")
    known = chosen & (samples.obj != row.U16_MAX)
    weight = samples.duration[known].astype(np.float64)
    return tally, (float((weight * np.minimum(samples.obj[known] / 1000, 1)).sum()), float(weight.sum()))


def _concat(tables: list[Table]) -> Table:
    if not tables:
        return table(np.zeros(0, np.dtype(row.ROW_FIELDS)), 0)
    columns = {
        name: np.concatenate([getattr(t, name) for t in tables]) for name in Table.__dataclass_fields__
    }
    order = np.argsort(columns["start"], kind="stable")
    return Table(**{name: column[order] for name, column in columns.items()})


def _stats(workers: list[Process]) -> dict[str, float]:
    total: dict[str, float] = {}
    for worker in workers:
        for key, value in worker.last("worker_stat").items():
            if key in ("note", "t", "worker", "loader") or not isinstance(value, int | float):
                continue
            name = "rchar_bytes" if key == "rchar" else key
            total[name] = total.get(name, 0.0) + float(value)
    return total


def unread_fields(
    process: Process, number: int, spans: Spans, fetch: Ints, places: Places
) -> tuple[str, ...]:
    """Keys that the probe saw nobody read, and positions whose variable the source never reads."""
    noted = [n for n in process.notes.get("unread", ()) if n.get("loader") == number]
    read = {str(key) for n in noted for key in n.get("read") or ()}
    unread = {str(key) for n in noted for key in n.get("unread") or ()} - read
    sites = np.bincount(spans.site[fetch], minlength=1) if len(fetch) else np.zeros(1, np.int64)
    used = [int(site) for site in np.flatnonzero(sites) if site]
    by_source = [_unread_targets(site, places) for site in used]
    if by_source:
        unread |= set.intersection(*by_source)
    return tuple(sorted(unread))


def _unread_targets(site: int, places: Places) -> set[str]:
    """Positions in the batch whose variable is never read in its function: ``for x, y, extra in loader``."""
    stack = places.sites.get(site)
    if stack is None or not stack.frames:
        return set()
    frame = stack.frames[-1]
    code = places.code(frame.file)
    if code is None:
        return set()
    module = frame.func == "<module>"
    function = code.module if module else code.function_at(frame.func, frame.func_line)
    return unread_parts(code, function, frame.line) if function is not None else set()
