"""The pieces of a long recording, measured one by one, put together again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import numpy as np

from hotloop.measure.lines import merge_lines
from hotloop.measure.steps import EACH_BATCH, EACH_STEP, DeviceUse, Interval, LoaderUse, SiteCost, Steps
from hotloop.record.spill import end_to_end

#: What is kept to fewer digits than it is measured with: seconds to seven.
_NARROW: Final = {"phases": np.float32, "loss_steps": np.int32, "ready": np.float32}


def laid_down(steps: Steps, folder: Path | None) -> Steps:
    """The same with its arrays in files, where they are large."""

    def columns(one: Steps | LoaderUse, names: Iterable[str]) -> dict[str, Any]:
        arrays = {name: getattr(one, name) for name in names}
        return {
            name: end_to_end([array.astype(_NARROW.get(name, array.dtype), copy=False)], folder)
            for name, array in arrays.items()
        }

    loaders = tuple(replace(use, **columns(use, EACH_BATCH)) for use in steps.loaders)
    return replace(steps, loaders=loaders, **columns(steps, EACH_STEP))


def joined(parts: list[Steps], folder: Path | None = None) -> Steps:
    """One Steps of all pieces, in order; ``parts`` is emptied on the way. ``settings`` are not in it.

    Its arrays lie in files beside the recording in ``folder``, where they are large.
    """
    if len(parts) == 1:
        return parts.pop()
    first, last = parts[0], parts[-1]
    stepped = [part for part in parts if part.num_steps] or parts
    offsets = np.cumsum([0, *(len(part.start_s) for part in parts)]).tolist()[:-1]
    weights = [part.span_s for part in parts]
    updates = [part.num_updates for part in parts]
    accelerator = any(part.facts.get("accelerator") for part in parts)
    small = replace(
        first,
        totals=_sums(part.totals for part in parts),
        span_totals=_sums(part.span_totals for part in parts),
        wall_s=last.wall_s,
        span=(stepped[0].span[0], stepped[-1].span[1]),
        unaccounted_s=sum(part.unaccounted_s for part in parts),
        num_updates=sum(updates),
        num_epochs=sum(part.num_epochs for part in parts),
        backwards_per_update=_mean([part.backwards_per_update for part in parts], updates),
        lines=merge_lines(line for part in parts for line in part.lines),
        loaders=_loaders([part.loaders for part in parts], weights, folder),
        evaluations=_intervals([part.evaluations for part in parts], offsets),
        checkpoints=_intervals([part.checkpoints for part in parts], offsets),
        sites=_sites([part.sites for part in parts]),
        core_ratio=_mean([part.core_ratio for part in parts], weights),
        gc_s=sum(part.gc_s for part in parts),
        gc_count=sum(part.gc_count for part in parts),
        gc_s_by_phase=_sums(part.gc_s_by_phase for part in parts),
        compile_s=sum(part.compile_s for part in parts),
        compiles_at=tuple(
            at + offset for part, offset in zip(parts, offsets, strict=True) for at in part.compiles_at
        ),
        modules=next((part.modules for part in parts if part.modules), ()),
        device=_device([part.device for part in parts], weights),
        scaler_steps=sum(part.scaler_steps for part in parts),
        scaler_skips=sum(part.scaler_skips for part in parts),
        facts={**first.facts, "accelerator": accelerator},
        source_loop=next((part.source_loop for part in parts if part.source_loop), None),
        framework_call=next((part.framework_call for part in parts if part.framework_call), None),
    )
    columns = {name: [getattr(part, name) for part in parts] for name in EACH_STEP}
    # A step ends where the next one begins: one array for both.
    del columns["end_s"]
    columns["start_s"].append(stepped[-1].end_s[-1:])
    columns["loss_steps"] = [
        np.where(numbers >= 0, numbers + np.int32(offset), np.int32(-1))
        for numbers, offset in zip(columns["loss_steps"], offsets, strict=True)
    ]
    parts.clear()
    del first, last, stepped
    whole: dict[str, Any] = {name: end_to_end(columns.pop(name), folder) for name in list(columns)}
    edges = whole.pop("start_s")
    return replace(small, start_s=edges[:-1], end_s=edges[1:], **whole)


def _sums(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0.0) + value
    return total


def _mean(values: Sequence[float], weights: Sequence[float]) -> float:
    return float(np.average(values, weights=weights)) if sum(weights) > 0 else float(values[0])


def _known(values: Sequence[float | None], weights: Sequence[float]) -> float | None:
    kept = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
    return _mean([value for value, _ in kept], [weight for _, weight in kept]) if kept else None


def _intervals(parts: Sequence[Sequence[Interval]], offsets: Sequence[int]) -> tuple[Interval, ...]:
    return tuple(
        replace(interval, after_step=interval.after_step + offset)
        for part, offset in zip(parts, offsets, strict=True)
        for interval in part
    )


def _sites(parts: Sequence[Mapping[str, Sequence[SiteCost]]]) -> dict[str, tuple[SiteCost, ...]]:
    found: dict[str, dict[Any, list[SiteCost]]] = {}
    for part in parts:
        for view, costs in part.items():
            for cost in costs:
                found.setdefault(view, {}).setdefault((cost.place, cost.operation), []).append(cost)
    return {
        view: tuple(sorted(map(_site, by_place.values()), key=lambda cost: -cost.seconds))
        for view, by_place in found.items()
    }


def _site(costs: Sequence[SiteCost]) -> SiteCost:
    counts = [cost.count for cost in costs]
    return replace(
        costs[0],
        count=sum(counts),
        seconds=sum(cost.seconds for cost in costs),
        num_bytes=sum(cost.num_bytes for cost in costs),
        flags={name: _mean([cost.flags[name] for cost in costs], counts) for name in costs[0].flags},
        in_step=sum(cost.count for cost in costs if cost.in_step) * 2 > sum(counts),
    )


def _device(parts: Sequence[DeviceUse | None], weights: Sequence[float]) -> DeviceUse | None:
    seen = [(part, weight) for part, weight in zip(parts, weights, strict=True) if part is not None]
    if not seen:
        return None
    return replace(
        seen[0][0],
        busy_ratio=_mean([part.busy_ratio for part, _ in seen], [weight for _, weight in seen]),
        idle_s_by_phase=_sums(part.idle_s_by_phase for part, _ in seen),
    )


def _loaders(
    parts: Sequence[Sequence[LoaderUse]], weights: Sequence[float], folder: Path | None
) -> tuple[LoaderUse, ...]:
    by_id: dict[int, list[tuple[LoaderUse, float]]] = {}
    for part, weight in zip(parts, weights, strict=True):
        for use in part:
            by_id.setdefault(use.id, []).append((use, weight))
    order = sorted(by_id, key=lambda number: (number == 0, number))
    return tuple(_loader(by_id[number], folder) for number in order)


def _loader(pieces: Sequence[tuple[LoaderUse, float]], folder: Path | None) -> LoaderUse:
    """One loader's use over the pieces in which it played its part: training, where it did in any."""
    roles = ("train", "evaluation", "unused")
    role = min((use.role for use, _ in pieces), key=roles.index)
    uses = [use for use, _ in pieces if use.role == role]
    weights = [weight for use, weight in pieces if use.role == role]
    batches = [use.num_batches for use in uses]
    iterators = sum(use.num_iterators for use in uses)
    made = [len(use.make_s) for use in uses]

    def each(name: str, by: Sequence[float]) -> float:
        return _mean([getattr(use, name) for use in uses], by)

    def maybe(name: str, by: Sequence[float]) -> float | None:
        return _known([getattr(use, name) for use in uses], by)

    def of_first(holds: Callable[[LoaderUse], Any]) -> LoaderUse:
        return next((use for use in uses if holds(use)), uses[0])

    arrays: dict[str, Any] = {
        name: end_to_end([getattr(use, name) for use in uses], folder) for name in EACH_BATCH
    }
    return replace(
        uses[0],
        **arrays,
        num_iterators=iterators,
        # Cut epochs make both of these too small, whole ones neither.
        batches_per_epoch=max(
            sum(batches) / max(1, iterators),
            *(use.batches_per_epoch for use in uses if use.num_iterators),
            0.0,
        ),
        num_batches=sum(batches),
        sample_s=each("sample_s", made),
        collate_s=each("collate_s", made),
        batch_bytes=each("batch_bytes", batches),
        batch_fields=of_first(lambda use: use.batch_fields).batch_fields,
        unused_fields=of_first(lambda use: use.num_batches).unused_fields,
        make_on_cpu_ratio=maybe("make_on_cpu_ratio", made),
        busy_ratio=maybe("busy_ratio", weights),
        deliver_s=maybe("deliver_s", batches),
        lines=merge_lines(line for use in uses for line in use.lines),
        lines_total_s=sum(use.lines_total_s for use in uses),
    )
