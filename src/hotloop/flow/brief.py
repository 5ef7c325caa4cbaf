"""``brief``: what a person or a coding agent needs to write the change of a finding, and to prove it."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from hotloop.diagnose.diagnose import doubt
from hotloop.diagnose.repeating import drawn
from hotloop.diagnose.rollouts import acts
from hotloop.errors import CheckFailed, UsageError
from hotloop.findings import ENTRIES, Place
from hotloop.findings.pages import what_to_do, when_it_is_wrong
from hotloop.fix import patch as patches
from hotloop.fix.patch import Patch
from hotloop.fix.scene import Scene
from hotloop.flow.examine import Examination, build_report, examine, read
from hotloop.remedy import catalogue
from hotloop.remedy.catalogue import Applied
from hotloop.remedy.remedy import EFFECTS, Effect, Remedy
from hotloop.report.excerpts import Sources
from hotloop.report.words import as_long
from hotloop.source import text as source_text

_ACTING: Final = (
    "the actions that the policy draws, in their order; more environments at once draw others: judge those "
    "with --effect semantic"
)
#: Lines of code before and after the place.
_AROUND: Final = 12
#: Of those, the ones that say which examples of the page fit.
_NEAR: Final = 4
#: What is changed by an argument of the command, and not by an edit.
_RUN: Final = re.compile(r"run it with ([^\s=]+)([ =])(\S+)$")
#: Families of findings that say that results are not what they should be.
_OF_RESULTS: Final = ("config/", "numerics/")
#: What a change of each class must leave alone.
_SAME: Final[dict[Effect, tuple[str, ...]]] = {
    "exact": (
        "the samples of every batch, and their order",
        "the values in every batch",
        "every loss, bit for bit",
        "trained parameters and checkpoints, bit for bit",
        "what the command prints, writes and accepts",
    ),
    "numeric": (
        "the samples of every batch, and their order",
        "every loss, but for rounding",
        "names, shapes and kinds of numbers in checkpoints",
        "what the command prints, writes and accepts",
    ),
    "semantic": (
        "that the loss converges",
        "names, shapes and kinds of numbers in checkpoints",
        "what the change is not about",
    ),
}


def brief(run: Path, wanted: str = "1") -> dict[str, Any]:
    """The brief of one finding of a run, by its id or its number in the report; schema 1.

    Raises UsageError where the run has no such finding, CheckFailed where it has none at all.
    """
    run = run.resolve()
    examination = examine(read(run))
    report = build_report(examination)
    number, finding = _pick(report["findings"], wanted, run)
    random = finding["data"].get("draws")  # a cache would give random samples again, and refuses to
    names = [name for name in finding["remedies"] if not (random and name == "cache-samples")]
    remedies = [catalogue.get(name) for name in names]
    redrawn = examination.evidence is not None and drawn(examination.evidence)
    effect = _effect(finding, remedies, redrawn)
    written = _written(examination, remedies)
    where = _where(examination, finding["where"], written)
    told = [_remedy(remedy, finding, written.get(remedy.id), redrawn) for remedy in remedies]
    return {
        "schema": 1,
        "id": finding["id"],
        "number": number,
        "severity": finding["severity"],
        "title": ENTRIES[finding["id"]].title if finding["id"] in ENTRIES else "",
        "command": report["command"],
        "cwd": report["cwd"],
        "run": str(run),
        "cause": finding["message"],
        "where": where,
        "code": _code(examination, where, _AROUND),
        "evidence": finding["evidence"],
        "numbers": _numbers(report, finding)
        | {"doubt": doubt(examination.evidence) if examination.evidence is not None else ""},
        "advice": finding["advice"],
        "recipe": _recipe(finding, _code(examination, where, _NEAR), told),
        "remedies": told,
        "wrong": when_it_is_wrong(finding["id"]),
        "effect": effect,
        "same": _same(examination, effect),
        "judge": _judge(run, examination, report, effect, told),
    }


def _pick(findings: Sequence[Mapping[str, Any]], wanted: str, run: Path) -> tuple[int, Mapping[str, Any]]:
    """A finding and its number."""
    if not findings:
        raise CheckFailed(f"nothing was found in {run}: there is no change to write")
    for number, one in enumerate(findings, start=1):
        if wanted in (str(number), one["id"]):
            return number, one
    listed = ", ".join(f"{number} {one['id']}" for number, one in enumerate(findings, start=1))
    raise UsageError(f"{run} has no finding {wanted}", hint=f"there are: {listed}")


def _written(examination: Examination, remedies: Sequence[Remedy]) -> dict[str, Patch]:
    """What ``fix`` would write of each remedy that has a rewriter."""
    process, lead = examination.process, examination.lead
    if process is None or lead is None:
        return {}
    scene = Scene.of(process, examination.recording, lead, examination.findings)
    asked = patches.with_values([Applied(remedy=one, value=None) for one in remedies], examination.findings)
    return {one.remedy.id: patches.make(scene, [one]) for one in asked if one.remedy.source}


def _where(
    examination: Examination, where: Mapping[str, Any] | None, written: Mapping[str, Patch]
) -> Mapping[str, Any] | None:
    """The place of a finding; where that is only the loop, the first line that a remedy would change."""
    loop = examination.lead.source_loop if examination.lead is not None else None
    if not where or loop is None or loop.at_line != (where["file"], where["line"]):
        return where
    for change in (patch.changes[0] for patch in written.values() if patch.changes):
        if change.file.endswith(".py"):
            return {**where, "file": change.file, "line": change.line, "function": ""}
    return where


def _recipe(
    finding: Mapping[str, Any], near: Mapping[str, Any] | None, told: Sequence[Mapping[str, Any]]
) -> str:
    """What the page of the finding says to write for such code, with the numbers of this run for its own."""
    text = what_to_do(finding["id"], "\n".join(near["lines"]) if near else "")
    for name, value in finding["data"].items():
        if isinstance(value, int):
            text = re.sub(rf"\b{re.escape(name)}=\d+\b", f"{name}={value}", text)
    for one in told:
        text = re.sub(rf"\b{one['id']}=[\w.:]+", one["spelled"].replace("\\", r"\\"), text)
    return text


def _effect(finding: Mapping[str, Any], remedies: Sequence[Remedy], redrawn: bool) -> Effect:
    """What the change may alter: as little as the remedy that alters least; what is done less often, or draws
    other random numbers, as much as the one that alters most.

    Without a remedy what the finding says, else rounding may differ, and where it is that results are wrong,
    all of them.
    """
    classes = [remedy.effect_where(redrawn) for remedy in remedies]
    wrong = finding["id"].startswith(_OF_RESULTS)
    most = finding["id"].startswith("cadence/") or (redrawn and any(remedy.redraws for remedy in remedies))
    default: Effect = finding["data"].get("effect") or ("semantic" if wrong else "numeric")
    return (max if most else min)(classes, key=EFFECTS.index, default=default)


def _same(examination: Examination, effect: Effect) -> list[str]:
    """What must stay; a loop that makes its data by acting has no batches that could."""
    if examination.evidence is None or not acts(examination.evidence) or effect == "semantic":
        return list(_SAME[effect])
    return [_ACTING, *(line for line in _SAME[effect] if "batch" not in line)]


def _code(examination: Examination, where: Mapping[str, Any] | None, around: int) -> dict[str, Any] | None:
    """The lines around the place as they ran; as they lie on disk where the recording has not got them."""
    if not where:
        return None
    place = Place(file=where["file"], line=where["line"])
    found = Sources.of(examination.recording).excerpt(place, around)
    if found is None:
        try:
            text = source_text.read(Path(place.file)).text if place.file.endswith(".py") else ""
        except (OSError, ValueError):
            return None
        found = Sources(lines={place.file: text.splitlines()}).excerpt(place, around)
    return found


def _numbers(report: Mapping[str, Any], finding: Mapping[str, Any]) -> dict[str, Any]:
    """The step, what the finding costs of it, and the most that removing it gives."""
    step_s, more_s = (report["step_s"] or {}).get("mean"), finding["data"].get("besides_s", 0.0)
    cost_s, edges = finding["cost_s_per_step"], finding["cost_ci95"]

    def ratio(cost: float) -> float | None:
        cost += more_s
        speed = not (finding["id"].startswith(_OF_RESULTS) or finding["data"].get("at_least"))
        return step_s / (step_s - cost) if speed and step_s and 0 < cost < step_s else None

    return {
        "step_s": step_s,
        "steps": report["num_steps"],
        "steps_per_s": report["throughput"]["steps_per_s"],
        "steps_per_s_ci95": report["throughput"]["ci95"],
        "cost_s_per_step": cost_s,
        "cost_ci95": edges,
        "share": finding["share"],
        "most_gain": ratio(cost_s),
        "most_gain_ci95": [ratio(edge) for edge in edges] if edges else None,
        "measured_gain": finding["gain"],
    }


def _remedy(remedy: Remedy, finding: Mapping[str, Any], patch: Patch | None, redrawn: bool) -> dict[str, Any]:
    parameter = remedy.parameter
    asked = finding["data"].get(parameter.finding_key) if parameter and parameter.finding_key else None
    value = asked if asked is not None else parameter.default if parameter else None
    left = next(iter(patch.left), None) if patch is not None else None
    return {
        "id": remedy.id,
        "spelled": remedy.spell(value),
        "write": left.write if left is not None and _RUN.match(left.write) else remedy.said(value),
        "effect": remedy.effect_where(redrawn),
        "alters": remedy.alters,
        "fix": patch is not None and bool(patch.changes),
        "why_not": left.why if left is not None else "",
        "apply": remedy.has_live(value),
    }


def _judge(
    run: Path,
    examination: Examination,
    report: Mapping[str, Any],
    effect: Effect,
    told: Sequence[Mapping[str, Any]],
) -> list[dict[str, str]]:
    """The commands that show whether the change is right and faster, in order, as they are typed."""
    command = again = as_long(examination.process, report["command"])
    if asked := next((one for each in told if (one := _RUN.match(each["write"]))), None):
        given = re.compile(rf"(?<!\S)({re.escape(asked[1])}[ =])[\w.:+-]+")
        again, found = given.subn(lambda one: one[1] + asked[3], again)
        again += "" if found else f" {asked[1]}{asked[2]}{asked[3]}"  # the last one counts
    has_evidence = any(one.notes.get("evidence") for one in examination.recording.ranks)
    folder = examination.recording.folder or run
    base = folder if has_evidence else folder.with_name(f"{folder.name}-base")
    changed = folder.with_name(f"{folder.name}-changed")
    a, b = shlex.quote(str(base)), shlex.quote(str(changed))
    ran = examination.process.first("process").get("executable") if examination.process is not None else None
    python = f" --python {shlex.quote(str(ran))}" if ran and ran != sys.executable else ""
    steps = []
    if not has_evidence:
        what = "before the change, record what the command computes (this run was without --evidence):"
        steps.append({"what": what, "command": f"hotloop run --evidence --out {a} {command}"})
    return [
        *steps,
        {
            "what": "after the change, record it again:",
            "command": f"hotloop run --evidence --out {b} {again}",
        },
        {"what": "does it compute the same?", "command": f"hotloop verify --effect {effect}{python} {a} {b}"},
        {"what": "is it faster?", "command": f"hotloop compare {a} {b}"},
        {
            "what": "or judge an edit that is not written yet, both sides launched in turns:",
            "command": f"hotloop verify --effect {effect} --repeats 3 --patch change.patch {command}",
        },
    ]
