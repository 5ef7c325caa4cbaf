"""What a tuning found: tune.json, tune.patch, and the words for the terminal."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from math import ceil
from pathlib import Path
from statistics import fmean, harmonic_mean
from typing import Any, Final

from hotloop import language
from hotloop.diagnose.limits import Limits
from hotloop.remedy.remedy import EFFECTS, Effect
from hotloop.tune.patching import Written
from hotloop.tune.search import Tuned
from hotloop.tune.trial import Arm, Trial, asked, command_of, edited, effect_of, fills, spell
from hotloop.units import duration, rate

#: The patch that is in force under the command that tune ends with, as it was raced.
IN_FORCE: Final = "best.diff"


def to_json(
    tuned: Tuned, command: Sequence[str], written: Written | None, patch: Path | None = None
) -> dict[str, Any]:
    """tune.json, schema 1; ``patch`` is in force under its command."""
    samples_per_s, s_per_step = _baseline(tuned)
    gain = tuned.gain if tuned.best else None
    return {
        "schema": 1,
        "baseline": {"samples_per_s": samples_per_s, "s_per_step": s_per_step},
        "best": {
            "remedies": [str(one) for one in tuned.best],
            "settings": {one.remedy.parameter.name: one.value for one in tuned.best if one.remedy.parameter},
            "samples_per_s": samples_per_s and samples_per_s * (gain.ratio if gain else 1.0),
            "gain": gain and {"ratio": gain.ratio, "ci95": [gain.low, gain.high], "pairs": gain.pairs},
            "effect": effect(tuned.best, tuned.draws),
            "draws": list(tuned.draws),
            "confirmed": tuned.confirmed,
            "predicted": tuned.predicted if tuned.best else None,
            "predicted_ci95": list(tuned.bounds) if tuned.best and tuned.bounds else None,
            "why": list(tuned.why),
        },
        "launch": {"steps": tuned.steps, "fill_steps": tuned.fill_steps, "once": tuned.once},
        "trials": [trial.to_json() for trial in tuned.trials],
        "left_out": [
            {"remedy": one.remedy, "why": one.words, "by_hand": one.by_hand} for one in tuned.left_out
        ],
        "command": shlex.join(command_of(tuned.best, command, patch)),
        "in_force": patch.name if patch is not None else None,
        "patch": "tune.patch" if written and written.diff else None,
        "by_hand": list(written.left) if written else [],
        "ended": tuned.ended,
        "needs": vars(tuned.needs) if tuned.needs is not None and not _tried(tuned) else None,
    }


def effect(arm: Arm, draws: Sequence[str] = ()) -> Effect:
    """The furthest that any remedy of an arm may go, samples or their order drawn from these generators."""
    found = [effect_of(one, drawn=bool(draws)) for one in arm]
    return max(found, key=EFFECTS.index, default="exact")


def _baseline(tuned: Tuned) -> tuple[float | None, float | None]:
    """Samples per second, seconds per step of the run as found: the mean of its launches, rather the last."""
    found = [
        trial for trial in tuned.trials if not trial.remedies and trial.timed and trial.status == "measured"
    ]
    last = [trial for trial in found if trial.key.startswith("confirm/")]
    chosen = last or [trial for trial in found if trial.key != "first"] or [tuned.first]
    per_step = [trial.s_per_step for trial in chosen if trial.s_per_step]
    samples = [trial.samples_per_s for trial in chosen if trial.samples_per_s]
    # The rate at the mean time.
    return harmonic_mean(samples) if samples else None, fmean(per_step) if per_step else None


def render(
    tuned: Tuned, command: Sequence[str], written: Written | None, folder: Path, patch: Path | None = None
) -> str:
    """The result for the terminal; ``patch`` is in force under the command it tells."""
    lines = [*_table(tuned), ""]
    base = _baseline(tuned)
    if tuned.best and tuned.gain is not None:
        gain = tuned.gain
        basis = "pairs" if tuned.confirmed else "single launches"
        shown = f"{gain.pairs} pairs of launches" if tuned.confirmed else "not confirmed: no time was left"
        lines += [
            f"best: {spell(tuned.best)}",
            f"gain: {gain.ratio:.2f}x, 95 % interval {gain.low:.2f} - {gain.high:.2f} ({shown})",
            *_wrapped(
                f"throughput: {_rate(*base, 1.0)}"
                f" -> {_rate(*base, gain.ratio)}"
                f" (times the gain, which is of {basis}; the table has means of all launches)"
            ),
            *_effects(tuned),
            "",
            "use it:",
            f"    {shlex.join(command_of(tuned.best, command, patch))}",
            *_write(written, tuned.best, folder),
            *_verify(tuned, command, patch),
        ]
    else:
        lines += _wrapped(_nothing(tuned))
        if (raced := tuned.gain) is not None and raced.pairs:
            known = raced.low > 0.01 and raced.high < 100  # one pair tells nothing of the noise
            edges = f"{raced.low:.2f} - {raced.high:.2f}" if known else "too few launches to tell"
            pairs = f"launches of each: {raced.pairs}"
            lines += [f"(what won the race gave {raced.ratio:.2f}x in the end: {edges}; {pairs})"]
        if tuned.named:
            run = shlex.quote(str(folder / tuned.first.folder))
            lines += ["", "what was found is for a person or an agent to change:", f"    hotloop brief {run}"]
    if tuned.crowded and _tried(tuned):
        words = (
            "other programs used the cores: what the training thread waited for them is left out, launches "
            "differ more, and alone other settings may be best"
        )
        lines += ["", *_wrapped(words)]
    lines += _left(tuned)
    if tuned.ended:
        lines += [
            "",
            *_wrapped(f"{tuned.ended}; {_enough(tuned)} with --out {shlex.quote(str(folder))} goes on"),
        ]
    return "\n".join(lines).rstrip() + "\n"


def _nothing(tuned: Tuned) -> str:
    """Why nothing is recommended."""
    tried = _tried(tuned)
    again = [trial for trial in tuned.trials if not trial.remedies and trial.timed and trial.key != "first"]
    if not tried and tuned.ended and tuned.needs is not None:
        words = f"no launch of {tuned.needs.name} fits into what the unmodified run left of the budget"
        took = duration(tuned.first.seconds)
        return f"nothing was tried: {words}, of which it took {took}: give {_enough(tuned)}"
    if not tried and tuned.ended:
        return f"nothing was tried: {tuned.ended}"
    if not tried:
        words = "nothing was tried: the diagnosis asks for nothing that a trial could show"
        if tuned.left_out:
            words = (
                "nothing was tried: the diagnosis asks for nothing that is allowed and that a trial could "
                "show"
            )
        return words + _too_few(tuned)
    if not any(trial.status == "measured" for trial in tried):
        return "nothing that was tried ran to its end: keep it as it is"
    if again and not any(trial.status == "measured" for trial in again):
        return f"nothing can be said: launched again the unmodified run gave no measurement: {again[-1].why}"
    beside = f" but {', '.join(tuned.refused)}, not taken for what is said below" if tuned.refused else ""
    advice = "what would alone cannot be told" if tuned.crowded else "keep it as it is"
    return f"nothing that was tried beat the unmodified run beyond noise{beside}: {advice}"


def _too_few(tuned: Tuned) -> str:
    """Where the first launch was ended early: what would show more of the run."""
    first = tuned.first
    if not first.more.get("stopped"):
        return ""
    if first.num_steps < Limits().few_steps:
        many = "1 step" if first.num_steps == 1 else f"{first.num_steps} steps"
        return f" in the {many} that there was time for: a larger --budget shows more of them"
    if first.more.get("steps", 0) < tuned.epoch:
        return " in its first epoch: a larger --budget shows what the next ones cost"
    return ""


def _tried(tuned: Tuned) -> list[Trial]:
    return [trial for trial in tuned.trials if trial.remedies]


def _enough(tuned: Tuned) -> str:
    """The budget to go on with: a tenth above what is expected to be needed, in tens of seconds."""
    if tuned.needs is None or _tried(tuned):
        return "a larger --budget"
    return f"--budget {10 * ceil(1.1 * tuned.needs.budget_s / 10)}s or more"


def _rate(samples_per_s: float | None, s_per_step: float | None, ratio: float) -> str:
    if samples_per_s:
        return f"{rate(samples_per_s * ratio)} samples/s"
    return f"{rate(ratio / s_per_step)} steps/s" if s_per_step else "?"


def _table(tuned: Tuned) -> list[str]:
    groups: dict[str, list[Trial]] = {}
    for trial in tuned.trials:
        if trial.timed:
            groups.setdefault(" + ".join(trial.remedies) or "unmodified", []).append(trial)
    lines = [f"{'tried':<40}{'launches':>9}{'per step':>12}{'samples/s':>12}"]
    for name, trials in groups.items():
        done = [trial for trial in trials if trial.s_per_step]
        if not done:
            lines += _row(name, f"{len(trials):>9}{trials[-1].status:>12}")
            continue
        step_s = fmean(trial.s_per_step or 0.0 for trial in done)
        samples = [trial.samples_per_s for trial in done if trial.samples_per_s]
        told = rate(harmonic_mean(samples)) if samples else "-"
        lines += _row(name, f"{len(trials):>9}{duration(step_s):>12}{told:>12}")
    return lines


def _row(name: str, told: str) -> list[str]:
    """A line of the table; a long name has its own."""
    return [f"{name:<40}{told}"] if len(name) < 40 else [*_wrapped(name), f"{'':<40}{told}"]


def _effects(tuned: Tuned) -> list[str]:
    arm = tuned.best
    told: str = effect(arm, tuned.draws)
    if told != effect(arm):
        told = f"{told}: samples draw from {', '.join(tuned.draws)}, and will draw other numbers"
    unseen = " (none was seen here)" * (not tuned.draws)
    words = [
        f"{one.remedy.id}: {one.remedy.alters}{unseen * one.remedy.redraws}"
        for one in arm
        if one.remedy.alters
    ]
    words += [f"{one.remedy.id}: needs hotloop at run time" for one in arm if one.remedy.depends]
    words += tuned.proofs
    words += [
        f"{one}: the first epoch fills it, as slow as now; the gain is of those after it"
        for one in fills(arm)
    ]
    return [*_wrapped(f"effect: {told}"), *(line for one in words for line in _wrapped(f"  {one}"))]


def _write(written: Written | None, arm: Arm, folder: Path) -> list[str]:
    if written is None:
        return []
    lines = []
    if written.diff:
        lines += [
            "or write it into the source:",
            f"    git -C {shlex.quote(written.root)} apply {shlex.quote(str(folder / 'tune.patch'))}",
        ]
    words = [f"not in the patch: {one}" for one in written.left]
    words += [f"in source: {one}" for one in written.remarks]
    words += [
        f"in source {one.remedy.id} is {one.remedy.source_effect}: {one.remedy.words}"
        for one in arm
        if written.diff and one.remedy.source_effect and one not in edited(arm)
    ]
    return lines + [line for one in words for line in _wrapped(one)]


def _verify(tuned: Tuned, command: Sequence[str], patch: Path | None) -> list[str]:
    others, told = bool(tuned.draws) and any(one.remedy.redraws for one in tuned.best), effect(tuned.best)
    held = "numeric" if others and told == "exact" else told  # other samples, in the band of runs with others
    verify = ["hotloop", "verify", "--effect", held, "--throw-away", *asked(tuned.best, patch)]
    if not others:
        return ["verify it:", f"    {shlex.join([*verify, '--', *command])}"]
    again = ["HOTLOOP_SEED=1", "hotloop", "run", "--evidence", "--throw-away", "--out", "another-seed", "--"]
    return [
        *_wrapped("verify it beside a run under another seed (samples are others, so losses are):"),
        f"    {shlex.join([*again, *command])}",
        f"    {shlex.join([*verify, '--baseline', 'another-seed', '--', *command])}",
    ]


def _left(tuned: Tuned) -> list[str]:
    if not tuned.left_out:
        return []
    lines = ["", "left out:"]
    for one in tuned.left_out:
        lines += _wrapped(f"  {one.remedy}: {one.words}" + (f" ({one.by_hand})" if one.by_hand else ""))
    return lines


def _wrapped(text: str) -> list[str]:
    indent = " " * (len(text) - len(text.lstrip()))
    return language.lines(text, 80, indent, indent + "    ")
