"""A cache plan in words: the table, what to write, and what is left to the user to choose."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from hotloop import units

if TYPE_CHECKING:
    from hotloop.feed.planning import CachePlan

WIDTH = 80
#: A stage that makes its input this much larger is an expansion to leave to the device.
EXPANSION = 3.5
#: A random stage whose input is this much larger than its output crops or shrinks.
SHRINKING = 1.5


def table(plan: CachePlan) -> str:
    """The plan as text of at most 80 columns."""
    lines = [
        f"{plan.dataset}: {plan.num_samples:,} samples, {units.size(plan.max_bytes)} for the cache, "
        f"{_count(plan.num_workers, 'worker')}",
        f"measured on {_count(plan.num_measured, 'sample')}, one thread, ms a sample",
        "",
        f"{'stage':<21}{'ms':>9}{'10-90 %':>15}{'CPU ms':>9}{'kept':>11}{'fits':>7}{'ms then':>8}",
    ]
    for stage, cut in zip(plan.stages, plan.cuts, strict=True):
        spread = f"{_ms(stage.low_s)}-{_ms(stage.high_s)}"
        row = f"{stage.name[:20]:<21}{_ms(stage.time_s):>9}{spread:>15}{_ms(stage.cpu_s):>9}"
        if cut.refused:
            word = cut.refused if len(cut.refused) <= 14 else cut.refused[:13] + "…"
            lines.append(f"{row}{units.size(stage.num_bytes):>11} {word}"[:WIDTH])
        else:
            lines.append(
                f"{row}{units.size(stage.num_bytes):>11}{units.share(cut.fraction):>7}{_ms(cut.time_s):>8}"
            )
    lines.append(f"{'a sample':<21}{_ms(plan.time_s):>9}{'':>15}{_ms(plan.cpu_s):>9}")
    lines.append("")
    for text in (_advice(plan), *plan.notes):
        lines += _wrapped(text)
    return "\n".join(lines)


def notes_on(plan: CachePlan, why_whole: str) -> tuple[str, ...]:
    """What a reader should know besides the table."""
    notes = [_sustained(plan), _remainder(plan), _late_expansion(plan), _resize(plan)]
    if why_whole:
        notes.append(f"Its stages could not be told apart: {why_whole}. Name them with @stage.")
    if plan.verdict.state_changes:
        notes.append(f"Reading changes the dataset ({plan.verdict.state_changes[0]}); a hit will not.")
    return tuple(note for note in notes if note)


def _advice(plan: CachePlan) -> str:
    best = plan.best
    if best is None:
        refused = [cut for cut in plan.cuts if cut.refused]
        if len(refused) == len(plan.cuts):
            return f"No stage can be cached: {refused[0].refused if plan.verdict else plan.verdict}."
        return "No cache: none of the stages would save a tenth of a sample's time within this memory."
    where = "" if best.stage == plan.stages[-1].name else f', stage="{best.stage}"'
    return (
        f"Cache after {best.stage}: cached(dataset{where}, max_bytes={plan.max_bytes}). "
        f"{units.share(best.fraction)} of the samples fit and hit from the second epoch on: "
        f"{_ms(plan.time_s)} ms a sample become {_ms(best.time_s)} ms "
        f"(CPU {_ms(plan.cpu_s)} ms become {_ms(best.cpu_s)} ms)."
    )


def _sustained(plan: CachePlan) -> str:
    rate = (
        f"{_count(plan.num_workers, 'worker')} sustain {units.rate(plan.miss_rate_per_s)} samples/s uncached"
    )
    if plan.consumption_per_s is None or plan.needed_fraction is None:
        return f"{rate}. Give consumption_per_s to learn how much of the dataset has to fit."
    wanted = f"training takes {units.rate(plan.consumption_per_s)}"
    if plan.needed_fraction == 0:
        return f"{rate}, {wanted}: the loader keeps up without a cache."
    text = f"{rate}, {wanted}: c* = {units.share(plan.needed_fraction)} of the samples must hit"
    best = plan.best
    if best is None:
        return text + "."
    if best.needed_fraction is None:
        return f"{text}; what follows {best.stage} is too slow even if all hit: take more workers."
    enough = "fits" if best.fraction >= best.needed_fraction else f"{units.share(best.fraction)} fits"
    return f"{text}, {units.share(best.needed_fraction)} with the work after {best.stage}; {enough}."


def _remainder(plan: CachePlan) -> str:
    if plan.best is None or plan.best.fraction == 1:
        return ""
    total = units.size(plan.best.num_bytes * plan.num_samples)
    return f"All of it would take {total}: with cached(..., disk=FOLDER) the rest comes from a local disk."


def _late_expansion(plan: CachePlan) -> str:
    """Eight bits before, floats after, or floats that come from eight bits: keep and ship the bytes."""
    for before, stage in zip(plan.stages, plan.stages[1:], strict=False):
        if (
            "uint8" in before.dtypes
            and any(dtype.startswith(("float", "bfloat")) for dtype in stage.dtypes)
            and stage.num_bytes > EXPANSION * before.num_bytes > 0
        ):
            return (
                f"{stage.name} turns uint8 into {', '.join(stage.dtypes)}, "
                f"{units.size(before.num_bytes)} into {units.size(stage.num_bytes)} a sample. "
                "Cache and ship the uint8 and do this on the device."
            )
    expanded = next((stage for stage in plan.stages if stage.is_eight_bit), None)
    if expanded is None:
        return ""
    return (
        f"The floats of {expanded.name} come from eight bits: kept as uint8 they take a quarter "
        f"of {units.size(expanded.num_bytes)}, and are made floats on the device."
    )


def _resize(plan: CachePlan) -> str:
    """A smaller input to a random crop would fit better, and is another augmentation."""
    for k, cut in enumerate(plan.cuts):
        if cut.refused != "random" or k == 0 or plan.best is None or plan.best.fraction == 1:
            continue
        before, stage = plan.stages[k - 1], plan.stages[k]
        if before.num_elements > SHRINKING * stage.num_elements > 0:
            return (
                f"{stage.name} makes less of {units.size(before.num_bytes)}. Shrinking before it would let "
                "more fit, but changes what the augmentation sees: yours to choose, never done unasked."
            )
        return ""
    return ""


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def _ms(seconds: float) -> str:
    value = seconds * 1e3
    if value >= 100:
        return f"{value:,.0f}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}" if value >= 1 else f"{value:.3f}"


def _wrapped(text: str) -> list[str]:
    return textwrap.wrap(text, WIDTH, break_long_words=False, break_on_hyphens=False)
