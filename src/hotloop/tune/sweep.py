"""Throughput against batch size: doubling until it no longer pays, or memory would run out."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final

from hotloop.errors import CheckFailed
from hotloop.findings import Finding
from hotloop.launch.guard import LEAST_MEMORY_RATIO, free_memory
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
class Size:
    """One size: its throughput (None where it did not run, ``why``), and the memory it held."""

    batch_size: int
    samples_per_s: float | None
    s_per_step: float | None
    host_bytes: float
    device_bytes: float
    why: str = ""


@dataclass(frozen=True, kw_only=True)
class Swept:
    """The sizes in order, the knee, and why there are no more of them."""

    sizes: tuple[Size, ...]
    found: int  # the script's own size
    knee: int
    ended: str

    @property
    def best(self) -> int:
        """The size to take: a knee below the script's own is as fast as that, and no faster."""
        return max(self.found, self.knee)

    def at(self, number: int) -> float:
        """Samples per second at a size."""
        return next(one.samples_per_s or 0.0 for one in self.sizes if one.batch_size == number)


def sweep(launcher: Launcher) -> Swept:
    """Launch the command with batches of more and more samples. Raises CheckFailed where that cannot be."""
    _, seen = launcher.first(3)
    found, samples = _own_size(seen)
    sizes: list[Size] = []
    ended, flat, number = "", 0, found
    while not ended:
        try:
            trial = _launch(launcher, number, sizes)
        except Spent:
            ended = "the budget is spent"
            break
        sizes.append(_size(number, trial))
        if sizes[-1].samples_per_s is None:
            ended = f"{number}: {trial.why}"
            break
        if len(sizes) > 1:
            before = sizes[-2].samples_per_s or 0.0
            flat = flat + 1 if (sizes[-1].samples_per_s or 0.0) < _PAYS * before else 0
        number *= 2
        ended = _why_not(launcher, number, sizes, samples, flat, seen)
    known = [one for one in sizes if one.samples_per_s]
    if not known:
        raise CheckFailed(f"no batch size ran: {ended}")
    sizes = [*_below(launcher, found, known), *sizes]
    known = [one for one in sizes if one.samples_per_s]
    most = max(one.samples_per_s or 0.0 for one in known)
    knee = next(one.batch_size for one in known if (one.samples_per_s or 0.0) >= _KNEE * most)
    return Swept(sizes=tuple(sizes), found=found, knee=knee, ended=ended)


def _below(launcher: Launcher, found: int, known: Sequence[Size]) -> list[Size]:
    """Half the script's size and a quarter, where it is near the fastest: it may be past the knee itself."""
    most = max(one.samples_per_s or 0.0 for one in known)
    below: list[Size] = []
    fast = known[0].batch_size == found and (known[0].samples_per_s or 0.0) >= _KNEE * most
    for number in (found // 2, found // 4):
        if not fast or number < 1 or not launcher.room(launcher.launch_s, f"size/{number}"):
            break
        try:
            below.insert(0, _size(number, _launch(launcher, number, known[:1])))
        except Spent:
            break
        fast = (below[0].samples_per_s or 0.0) >= _KNEE * most
    return below


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


def _launch(launcher: Launcher, number: int, sizes: Sequence[Size]) -> Trial:
    step_s = 2 * (sizes[-1].s_per_step or 0.0) if sizes else 0.0
    steps = launcher.steps
    timeout_s = launcher.patience_s
    if step_s:
        steps = max(_LEAST_STEPS, round(_SHOWN_S / step_s))
        timeout_s += 2 * steps * step_s
    arm = arm_of(number) if sizes else ()
    return launcher.launch(f"size/{number}", arm, steps=steps, timeout_s=timeout_s)


def _size(number: int, trial: Trial) -> Size:
    return Size(
        batch_size=number,
        samples_per_s=trial.samples_per_s,
        s_per_step=trial.s_per_step,
        host_bytes=trial.host_bytes,
        device_bytes=trial.device_bytes,
        why=trial.why,
    )


def _why_not(
    launcher: Launcher, number: int, sizes: Sequence[Size], samples: float, flat: int, seen: Examined
) -> str:
    """Why this size is not tried, "" where it is."""
    if flat >= 2:
        return "two doublings in a row gave nothing"
    if samples and number * _LEAST_BATCHES > samples:
        return f"{number}: an epoch of {samples:,.0f} samples would have fewer than {_LEAST_BATCHES} batches"
    if not launcher.room(launcher.launch_s, f"size/{number}"):
        return "the budget is spent"
    host = _expected([one.host_bytes for one in sizes])
    free, total = free_memory()
    most = min(launcher.limits.most_bytes or total, free - LEAST_MEMORY_RATIO * total)
    if host > most:
        return f"{number}: expected to use {size(host)} of memory, there is {size(most)}"
    device = _expected([one.device_bytes for one in sizes])
    whole = _device_total(seen)
    if whole and device > whole:
        return f"{number}: expected to use {size(device)} of the device's {size(whole)}"
    return ""


def _expected(seen: Sequence[float]) -> float:
    """The next of values at doubling sizes: linear in the size."""
    return seen[-1] + 2 * (seen[-1] - seen[-2]) if len(seen) > 1 and seen[-1] > seen[-2] else seen[-1]


def _device_total(seen: Examined) -> float:
    gpus = seen.evidence.machine.get("gpus") if seen.evidence is not None else None
    return float(gpus[0].get("memory_bytes") or 0.0) if gpus else 0.0


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
        "sweep": {"rows": [asdict(one) for one in swept.sizes], "knee": swept.knee, "ended": swept.ended},
        "trials": [trial.to_json() for trial in launcher.journal.trials.values()],
        "findings": [finding.to_json() for finding in findings(swept)],
        "command": shlex.join(command_of(arm, command)),
        "patch": None,
    }


def findings(swept: Swept) -> tuple[Finding, ...]:
    """What the sizes say of the script's own."""
    if swept.knee >= swept.found:
        return ()
    at = {one.batch_size: one for one in swept.sizes}
    gain = swept.at(swept.found) / swept.at(swept.knee)
    saved = at[swept.found].host_bytes - at[swept.knee].host_bytes
    saved = at[swept.found].device_bytes - at[swept.knee].device_bytes or saved
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
    most = max(one.samples_per_s or 0.0 for one in swept.sizes)
    lines = [f"{'batch size':>10}{'samples/s':>12}{'host memory':>14}{'device memory':>15}"]
    for one in swept.sizes:
        if one.samples_per_s is None:
            lines.append(f"{one.batch_size:>10}  {one.why}"[:80])
            continue
        mark = " <- knee" if one.batch_size == swept.knee else ""
        mark += " (unmodified)" * (one.batch_size == swept.found)
        bar = "#" * round(16 * one.samples_per_s / most)
        device = size(one.device_bytes) if one.device_bytes else "-"
        told = f"{one.batch_size:>10}{rate(one.samples_per_s):>12}{size(one.host_bytes):>14}{device:>15}"
        lines.append(f"{told}  {bar}{mark}"[:80].rstrip())
    lines += ["", f"ended: {swept.ended}"]
    for finding in findings(swept):
        lines += textwrap.wrap(f"{finding.message} {finding.advice} ({'; '.join(finding.evidence)})", 80)
    if swept.best != swept.found:
        factor = swept.knee / swept.found
        gain = swept.at(swept.knee) / max(swept.at(swept.found), 1e-12)
        lines += textwrap.wrap(
            f"batch-size={swept.knee} gives {gain:.2f}x. It is another training, fewer updates per epoch: "
            f"multiply the learning rate by {factor:g}, warm it up, and watch the loss.",
            80,
        )
    return "\n".join(lines) + "\n"
