"""``verify``: whether a change computes the same, how much faster it is. Launch both sides, judge them."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from hotloop.compare.run import Run, run_of
from hotloop.compare.verdict import Effect, Verdict, judge
from hotloop.errors import CheckFailed, UsageError
from hotloop.fix import in_force
from hotloop.flow.observe import new_run_folder, observe
from hotloop.language import said
from hotloop.record.publish import write_text_atomic
from hotloop.remedy import catalogue
from hotloop.remedy.remedy import EFFECTS
from hotloop.report import json

_PERTURBED = "the next base is perturbed: what it writes is not what the command alone would write"


def verify(
    pairs: Sequence[tuple[Path, Path]],
    *,
    effect: Effect | None = None,
    expect: Path | None = None,
    baselines: Sequence[Path] = (),
    log: Path | None = None,
    python: str = "",
    launched: bool = False,
) -> Verdict:
    """Hold recorded sides beside each other, the first pair for its results, all of them for the
    speed; the other bases show whether the base repeats itself.

    ``verify.json`` goes into the candidate's folder. ``effect`` is by default what the applied remedies may
    alter. ``python`` and ``launched`` say what may load checkpoints.
    """
    from hotloop.compare import expectation

    asked = expectation.read(expect) if expect else None
    (base, candidate), *repeats = [(run_of(a), run_of(b)) for a, b in pairs]
    verdict = judge(
        base,
        candidate,
        effect=effect or (asked.effect if asked else None) or _applied_effect(candidate),
        asked=asked,
        baselines=[run_of(path) for path in baselines],
        repeats=repeats,
        log=log,
        python=python,
        launched=launched,
    )
    if folder := candidate.recording.folder:
        try:
            write_text_atomic(folder / "verify.json", json.render(verdict.to_json()))
        except OSError as error:
            print(f"hotloop: {folder / 'verify.json'} not written: {error.strerror}", file=sys.stderr)
    return verdict


def launch(
    command: list[str],
    *,
    apply: Sequence[str] = (),
    patch: Path | None = None,
    repeats: int = 1,
    perturb: bool = False,
    out: Path | None = None,
    **how: Any,
) -> list[tuple[Path, Path]]:
    """Run the command unmodified and with the change, taking turns: base, candidate, candidate, base, ...

    ``perturb``: the last of several bases shows what training makes of rounding. ``how`` are arguments of
    ``observe`` for both sides.
    """
    change: dict[str, Any] = {
        "patch": in_force.read(patch, command) if patch else None,
        "env": catalogue.environment(map(catalogue.parse, apply)),
    }
    whole = new_run_folder(out, command, "verify-")
    pairs = []
    try:
        for number in range(repeats):
            folders: dict[str, Path] = {}
            sides = ("base", "candidate")
            for side in sides if number % 2 == 0 else reversed(sides):
                folder = whole / (side if repeats == 1 else f"{side}-{number + 1}")
                last = perturb and side == "base" and 0 < number == repeats - 1
                env = {"HOTLOOP_PERTURB": "1"} if last else {}
                if last:
                    print(f"hotloop: {said(_PERTURBED)}", file=sys.stderr, flush=True)
                changed = change if side == "candidate" else {"env": env}
                folders[side], code = _launch(command, folder, how, changed)
                if code and side == "base":
                    raise UsageError(
                        f"the unmodified command ended with exit code {code}: nothing to compare with",
                        hint="its words are above; get it to run first",
                    )
            pairs.append((folders["base"], folders["candidate"]))
    finally:
        for folder in (whole / "raw", whole):  # where nothing was started nothing is left
            with suppress(OSError):
                folder.rmdir()
    return pairs


def _launch(
    command: list[str], folder: Path, how: dict[str, Any], change: dict[str, Any]
) -> tuple[Path, int]:
    """The folder that was made, and the command's exit code."""
    print(f"hotloop: {said(f'running {folder.name}')}", file=sys.stderr, flush=True)
    made = new_run_folder(folder, command)
    env = {**change.get("env", {}), "HOTLOOP_EVIDENCE": "1"}
    done = observe(command, made, stdout=sys.stderr, **{**how, **change, "env": env})
    if done.ended_for:
        raise CheckFailed(f"the command was ended: it {done.ended_for}")
    return made, done.exit_code


def _applied_effect(candidate: Run) -> Effect | None:
    """The widest class among the candidate's remedies, None without any.

    Nobody knows that of a patch: it is not held to bits.
    """
    known: dict[str, Any] = {remedy.id: remedy for remedy in catalogue.remedies()}
    found = [EFFECTS.index(known[n["id"]].effect) for n in candidate.applied if n["id"] in known]
    if candidate.recording.patch is not None:
        found.append(EFFECTS.index("numeric"))
    return EFFECTS[max(found)] if found else None
