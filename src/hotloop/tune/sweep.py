"""Throughput against batch size: doubling until it no longer pays, or a size does not run."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hotloop import language
from hotloop.errors import CheckFailed
from hotloop.findings import Finding
from hotloop.remedy import catalogue
from hotloop.tune.launching import Launcher, Spent
from hotloop.tune.trial import Arm, Examined, Trial, command_of
from hotloop.units import rate, size

#: A doubling that gives less than this is past the knee; two of them end the sweep.
_PAYS: Final = 1.04
#: The knee: the smallest size this close to the fastest.
_KNEE: Final = 0.95
_LEAST_STEPS: Final = 12
_SHOWN_S: Final = 4.0
#: Batches that an epoch must have.
_LEAST_BATCHES: Final = 4


@dataclass(frozen=True, kw_only=True)
class Swept:
    """A trial of each size in order, the knee, and why there are no more of them."""

    sizes: dict[int, Trial]
    found: int  # the script's own size
    knee: int
    ended: str

    @property
    def best(self) -> int:
        """The size to take: a knee below the script's own is as fast as that, and no faster."""
        return max(self.found, self.knee)

    def at(self, number: int) -> float:
        """Samples per second at a size."""
        return self.sizes[number].samples_per_s or 0.0


def sweep(launcher: Launcher) -> Swept:
    """Launch the command with batches of more and more samples. Raises CheckFailed where that cannot be."""
    _, seen = launcher.first()
    found, samples = _own_size(seen)
    sizes: dict[int, Trial] = {}
    ended, flat, number, before = "", 0, found, None
    while not ended:
        try:
            trial = sizes[number] = _launch(launcher, number, before)
        except Spent:
            ended = "the budget is spent"
            break
        if trial.samples_per_s is None:
            ended = f"{number}: {trial.why}"
            break
        if before is not None:
            flat = flat + 1 if trial.samples_per_s < _PAYS * (before.samples_per_s or 0.0) else 0
        number, before = 2 * number, trial
        ended = _why_not(launcher, number, samples, flat)
    fast = {number: one.samples_per_s for number, one in sizes.items() if one.samples_per_s}
    if not fast:
        raise CheckFailed(f"no batch size ran: {ended}")
    for number in (found // 2, found // 4):  # the script's own may be past the knee itself
        near = fast[min(fast)] >= _KNEE * max(fast.values())
        if not near or number < 1 or not launcher.room(launcher.launch_s, f"size/{number}"):
            break
        try:
            sizes[number] = _launch(launcher, number, sizes[found])
        except Spent:
            break
        if (speed := sizes[number].samples_per_s) is None:
            break
        fast[number] = speed
    knee = min(number for number, speed in fast.items() if speed >= _KNEE * max(fast.values()))
    return Swept(sizes=dict(sorted(sizes.items())), found=found, knee=knee, ended=ended)


def arm_of(batch_size: int) -> Arm:
    """The remedy of a size."""
    return (catalogue.parse(f"batch-size={batch_size}"),)


def _own_size(seen: Examined) -> tuple[int, float]:
    """The script's batch size and the number of its samples (0 unknown)."""
    loader = seen.evidence.steps.train_loader() if seen.evidence is not None else None
    own = loader.settings.get("batch_size") if loader is not None else None
    if loader is None or not isinstance(own, int) or own < 1:
        raise CheckFailed(
            "the batch size of this run is not a DataLoader's: nothing to sweep",
            hint="change it in the script and compare two runs: hotloop compare A B",
        )
    return own, float(loader.dataset.get("len") or 0)


def _launch(launcher: Launcher, number: int, before: Trial | None) -> Trial:
    """One launch of a size, about as long as the one ``before`` says; None for the script's own."""
    steps, timeout_s = launcher.steps, launcher.patience_s
    if before is not None and before.s_per_step:
        step_s = 2 * before.s_per_step
        steps = max(_LEAST_STEPS, round(_SHOWN_S / step_s))
        timeout_s += 2 * steps * step_s
    arm = arm_of(number) if before is not None else ()
    return launcher.launch(f"size/{number}", arm, steps=steps, timeout_s=timeout_s)


def _why_not(launcher: Launcher, number: int, samples: float, flat: int) -> str:
    """Why this size is not tried, "" where it is."""
    if flat >= 2:
        return "two doublings in a row gave nothing"
    if samples and number * _LEAST_BATCHES > samples:
        return f"{number}: an epoch of {samples:,.0f} samples would have fewer than {_LEAST_BATCHES} batches"
    return "" if launcher.room(launcher.launch_s, f"size/{number}") else "the budget is spent"


def to_json(swept: Swept, launcher: Launcher, command: Sequence[str]) -> dict[str, Any]:
    """tune.json, schema 1, with ``sweep`` beside it."""
    arm = arm_of(swept.best) if swept.best != swept.found else ()
    return {
        "schema": 1,
        "baseline": {"samples_per_s": swept.at(swept.found)},
        "best": {
            "remedies": [str(one) for one in arm],
            "settings": {"batch_size": swept.best},
            "samples_per_s": swept.at(swept.best),
            "gain": None,
            "effect": "semantic" if arm else "exact",
        },
        "sweep": {
            "rows": [_row(*one) for one in swept.sizes.items()],
            "knee": swept.knee,
            "ended": swept.ended,
        },
        "trials": [trial.to_json() for trial in launcher.journal.trials.values()],
        "findings": [finding.to_json() for finding in findings(swept)],
        "command": shlex.join(command_of(arm, command)),
        "patch": None,
    }


def _row(number: int, trial: Trial) -> dict[str, Any]:
    names = ("samples_per_s", "s_per_step", "host_bytes", "device_bytes", "why")
    return {"batch_size": number, **{name: getattr(trial, name) for name in names}}


def findings(swept: Swept) -> tuple[Finding, ...]:
    """What the sizes say of the script's own."""
    if swept.knee >= swept.found:
        return ()
    own, knee = swept.sizes[swept.found], swept.sizes[swept.knee]
    gain = swept.at(swept.found) / swept.at(swept.knee)
    saved = own.device_bytes - knee.device_bytes or own.host_bytes - knee.host_bytes
    return (
        Finding(
            id="device/batch-past-the-knee",
            message=f"batch_size={swept.found} is past the knee: {swept.knee} gives as many samples/s.",
            advice=f"Try batch_size={swept.knee}, the learning rate scaled along; it changes the training.",
            evidence=(
                f"{gain:.2f} times the samples/s of {swept.knee}",
                *([f"{swept.knee} needs {size(saved)} less memory"] if saved > 0 else []),
            ),
            data={"effect": "semantic", "batch_size": swept.found, "knee": swept.knee},
        ),
    )


def render(swept: Swept) -> str:
    """The table for the terminal."""
    most = max(one.samples_per_s or 0.0 for one in swept.sizes.values())
    lines = [f"{'batch size':>10}{'samples/s':>12}{'host memory':>14}{'device memory':>15}"]
    for number, one in swept.sizes.items():
        if one.samples_per_s is None:
            lines.append(f"{number:>10}  {one.why}"[:80])
            continue
        mark = " <- knee" if number == swept.knee else ""
        mark += " (unmodified)" * (number == swept.found)
        bar = "#" * round(16 * one.samples_per_s / most)
        device = size(one.device_bytes) if one.device_bytes else "-"
        told = f"{number:>10}{rate(one.samples_per_s):>12}{size(one.host_bytes):>14}{device:>15}"
        lines.append(f"{told}  {bar}{mark}"[:80].rstrip())
    lines += ["", f"ended: {swept.ended}"]
    for finding in findings(swept):
        lines += language.lines(f"{finding.message} {finding.advice} ({'; '.join(finding.evidence)})")
    if swept.best != swept.found:
        factor = swept.knee / swept.found
        gain = swept.at(swept.knee) / max(swept.at(swept.found), 1e-12)
        lines += language.lines(
            f"batch-size={swept.knee} gives {gain:.2f}x. It is another training, fewer updates per epoch: "
            f"multiply the learning rate by {factor:g}, warm it up, and watch the loss."
        )
    return "\n".join(lines) + "\n"
