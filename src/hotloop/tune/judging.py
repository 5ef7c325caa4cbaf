"""What came of a launch, and what of an arm decides how long one has to be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from hotloop.tune.trial import (
    Arm,
    Bench,
    Examined,
    Ran,
    Request,
    Trial,
    device_bytes,
    edited,
    rate,
)

CACHE: Final = "cache-samples"
#: Show nothing before they are filled.
_FILLED: Final = (CACHE, "memoize")
#: Patches with these have something done less often: launches that are cut short may never see it.
_RARER: Final = ("less-frequent-evaluation", "less-frequent-checkpoint")
#: How the words of a command that failed begin.
FAILED: Final = "exit code"


def rarer(arm: Arm) -> bool:
    """Whether the patch of an arm has something done less often."""
    return any(one.remedy.id in _RARER for one in edited(arm))


def fills(arm: Arm) -> list[str]:
    """The remedies of an arm that show nothing before its first epoch is over."""
    return [one.remedy.id for one in arm if one.remedy.id in _FILLED]


def settings(arm: Arm) -> dict[str, Any]:
    """What an arm sets of the loader's workers."""
    given = {one.remedy.parameter.name: one.value for one in arm if one.remedy.parameter is not None}
    return {"num_workers": 0, **given} if any(one.remedy.id == "no-workers" for one in arm) else given


def epoch_of(seen: Examined) -> int:
    """Batches of an epoch of the training loader, 0 where they are not known."""
    loader = seen.evidence.steps.train_loader() if seen.evidence is not None else None
    if loader is None or seen.evidence is None:
        return 0
    samples = float(loader.dataset.get("len") or 0) / len(seen.evidence.ranks)
    whole = samples / float(loader.settings.get("batch_size") or samples or 1)
    return round(whole if loader.num_iterators < 2 else loader.batches_per_epoch)


def judged(key: str, request: Request, ran: Ran, bench: Bench, once: int) -> Trial:
    """What came of a launch; ``once`` as in ``rate``."""
    folder = request.folder
    blank = Trial(
        key=key,
        remedies=tuple(map(str, request.arm)),
        status="failed",
        folder=f"{folder.parent.name}/{folder.name}",
        seconds=0.0,
        host_bytes=ran.peak_bytes,
        more={"wall_s": ran.wall_s, "stopped": ran.stopped, "would_write": list(ran.would_write)}
        | ({} if ran.started else {"started": False}),
    )
    if ran.ended_for:
        return replace(blank, status="ended", why=ran.ended_for)
    seen = bench.examine(folder)
    oom = next((one.message for one in seen.findings if one.id == "memory/out-of-memory"), "")
    if oom or (ran.exit_code and not ran.stopped):
        return replace(blank, why=oom or f"{FAILED} {ran.exit_code}: {ran.last_words}".rstrip(": "))
    if seen.evidence is None:
        return replace(blank, why="no training step was seen")
    missing = _not_in_effect(request.arm, seen)
    if missing:
        return replace(blank, status="refused", why="; ".join(missing))
    filling = bool(fills(request.arm))
    found = rate(seen.evidence.ranks, seen.evidence.steps, strict=key != "first", fills=filling, once=once)
    if found is None:
        return replace(blank, why="too few training steps were seen")
    return replace(
        blank,
        status="measured",
        s_per_step=found.s_per_step,
        samples_per_s=found.samples_per_s,
        num_steps=found.num_steps,
        more={**blank.more, "steps": seen.evidence.steps.num_steps},
        device_bytes=device_bytes(seen.evidence),
    )


def _not_in_effect(arm: Arm, seen: Examined) -> list[str]:
    """What the remedies say that were not in effect, each in one line."""
    if seen.missed:
        return [
            f"the patch was not met: {', '.join(Path(file).name for file in seen.missed)} was not imported"
        ]
    live = [one for one in arm if one not in edited(arm)]
    status = {one.remedy.id: seen.applied.get(one.remedy.id, "nothing was noted") for one in live}
    missing = {name: words for name, words in status.items() if not words.startswith("in effect")}
    return [
        " ".join((words if len(arm) == 1 else f"{name}: {words}").split()) for name, words in missing.items()
    ]
