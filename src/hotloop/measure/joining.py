"""The pieces of a long recording, measured one by one, put together again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from hotloop.measure.lines import merge_lines
from hotloop.measure.stacks import merge_stacks
from hotloop.measure.steps import DeviceUse, Interval, LoaderUse, SiteCost, Steps

#: What a Steps, and a LoaderUse, has an array of.
_OF_STEPS: Final = ("start_s", "end_s", "samples", "steady", "losses", "phases")
_OF_BATCHES: Final = (
    "wait_s", "ready", "iter_s", "first_batch_s", "shutdown_s", "make_s", "slowest_sample_s",
)  # fmt: skip
#: A LoaderUse has a mean of, in each piece.
_OF_MEANS: Final = (
    "sample_s", "collate_s", "batch_bytes", "make_on_cpu_ratio", "busy_ratio", "deliver_s",
)  # fmt: skip


def joined(parts: Sequence[Steps]) -> Steps:
    """One Steps of all pieces, in order. ``settings`` are not in it."""
    if len(parts) == 1:
        return parts[0]
    first, last = parts[0], parts[-1]
    stepped = [part for part in parts if part.num_steps] or parts
    offsets = np.cumsum([0, *(len(part.start_s) for part in parts)]).tolist()[:-1]
    weights = [part.span_s for part in parts]
    updates = [part.num_updates for part in parts]
    anywhere = {
        name: any(part.facts.get(name) for part in parts) for name in ("accelerator", "checkpoint_read")
    }
    return replace(
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
        stacks=merge_stacks(stack for part in parts for stack in part.stacks),
        loaders=_loaders([part.loaders for part in parts]),
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
        facts={**first.facts, **anywhere},
        source_loop=next((part.source_loop for part in parts if part.source_loop), None),
        framework_call=next((part.framework_call for part in parts if part.framework_call), None),
        loss_steps=np.concatenate(
            [
                np.where(part.loss_steps >= 0, part.loss_steps + offset, -1)
                for part, offset in zip(parts, offsets, strict=True)
            ]
        ),
        **_arrays(parts, _OF_STEPS),
    )


def _arrays(parts: Sequence[Steps] | Sequence[LoaderUse], names: Iterable[str]) -> dict[str, Any]:
    return {name: np.concatenate([getattr(part, name) for part in parts]) for name in names}


def _sums(parts: Iterable[Mapping[str, float]]) -> dict[str, float]:
    total: dict[str, float] = {}
    for part in parts:
        for name, value in part.items():
            total[name] = total.get(name, 0.0) + value
    return total


def _mean(values: Iterable[float | None], weights: Iterable[float]) -> Any:
    """The mean of those that are known; None where none is."""
    known = [(value, weight) for value, weight in zip(values, weights, strict=True) if value is not None]
    if sum(weight for _, weight in known) > 0:
        return float(np.average([value for value, _ in known], weights=[weight for _, weight in known]))
    return known[0][0] if known else None


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
    seen = [part for part in parts if part is not None]
    if not seen:
        return None
    busy = _mean((part.busy_ratio if part else None for part in parts), weights)
    return replace(seen[0], busy_ratio=busy, idle_s_by_phase=_sums(part.idle_s_by_phase for part in seen))


def _loaders(parts: Sequence[Sequence[LoaderUse]]) -> tuple[LoaderUse, ...]:
    by_id: dict[int, list[LoaderUse]] = {}
    for use in (use for part in parts for use in part):
        by_id.setdefault(use.id, []).append(use)
    order = sorted(by_id, key=lambda number: (number == 0, number))
    return tuple(_loader(by_id[number]) for number in order)


def _loader(pieces: Sequence[LoaderUse]) -> LoaderUse:
    """One loader's use over the pieces in which it played its part: training, where it did in any."""
    roles = ("train", "evaluation", "unused")
    role = min((use.role for use in pieces), key=roles.index)
    uses = [use for use in pieces if use.role == role]
    batches = [use.num_batches for use in uses]
    iterators = sum(use.num_iterators for use in uses)
    usual = next((use for use in uses if use.num_batches), uses[0])
    means = {name: _mean((getattr(use, name) for use in uses), batches) for name in _OF_MEANS}
    return replace(
        usual,
        **_arrays(uses, _OF_BATCHES),
        **means,
        num_iterators=iterators,
        # Cut epochs make both of these too small, whole ones neither.
        batches_per_epoch=max(
            sum(batches) / max(1, iterators),
            *(use.batches_per_epoch for use in uses if use.num_iterators),
            0.0,
        ),
        num_batches=sum(batches),
        lines=merge_lines(line for use in uses for line in use.lines),
        lines_total_s=sum(use.lines_total_s for use in uses),
        slowest_lines=merge_lines(line for use in uses for line in use.slowest_lines),
    )
