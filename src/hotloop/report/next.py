"""What to do next, as commands that can be typed, and which findings share what they would save."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from hotloop.diagnose.limits import Limits
from hotloop.findings import Finding
from hotloop.measure.steps import Steps
from hotloop.phases import CLASSES
from hotloop.remedy import catalogue
from hotloop.remedy.remedy import EFFECTS
from hotloop.report import words

#: Facts of a finding whose cost only a launch shows.
_MAY_COST = ("assumed", "unpriced")
#: Families whose findings cost seconds of their own class alone, or of the one that they name.
_SHARED = ("input", "device")


def of_findings(findings: Sequence[Finding], folder: Path | None) -> list[str]:
    """The command that writes a finding's change, or says what to write: so for what is only noted."""
    if folder is None:
        return [""] * len(findings)
    run = shlex.quote(words.from_here(str(folder)))
    return [
        f"hotloop fix {run}"
        if _is_written(finding) and _is_worth(finding)
        else f"hotloop brief {run} {number if finding.severity != 'info' else finding.id}"
        for number, finding in enumerate(findings, start=1)
    ]


def of_run(command: Sequence[str], found: Sequence[str], findings: Sequence[Finding]) -> list[dict[str, str]]:
    """The commands to type first after reading the report; none where nothing was found that costs, or may.
    ``tune`` where it has something to try, with the ``--allow`` that this needs.
    """
    pairs = list(zip(findings, found, strict=True))
    above = [pair for pair in pairs if pair[0].severity != "info"]
    asks = above or [
        pair for pair in pairs if pair[0].cost_s_per_step or any(map(pair[0].data.get, _MAY_COST))
    ]
    first = next((then for one, then in asks if then and (_is_worth(one) or not one.cost_s_per_step)), "")
    named = [catalogue.get(name) for one, _ in asks for name in one.remedies]
    if not above:  # what was not found worth fixing is no reason to alter what is trained
        named = [remedy for remedy in named if remedy.effect != "semantic"]
    least = min((EFFECTS.index(one.effect) for one in named), default=None)
    what = "the change as a patch" if first.startswith("hotloop fix") else "what to write, and what judges it"
    then = [{"command": first, "words": what}] if first else []
    if command and least is not None:
        allow = f"--allow {EFFECTS[least]} " if least else ""
        tune = f"hotloop tune {allow}-- {words.command(command)}"
        then.append({"command": tune, "words": "try what helps, and measure it"})
    return then


def _is_worth(finding: Finding) -> bool:
    """Whether it was found worth fixing; what is noted is, where only the writing has to be done."""
    noted = _is_written(finding) and finding.share >= Limits().worth_fixing_ratio
    return finding.severity != "info" or noted


def _is_written(finding: Finding) -> bool:
    """Whether ``fix`` writes one of its remedies without being asked for it by name."""
    found = map(catalogue.get, finding.remedies)
    return any(one.source and not one.depends and one.written_effect == "exact" for one in found)


def same_seconds(findings: Sequence[Finding], main: Steps | None) -> list[str | None]:
    """For each, the first finding about input, or the device, if those up to it cost more than there is."""
    named: list[str | None] = []
    seen: dict[tuple[str, int | None], list[Finding]] = {}
    for finding in findings:
        kind = str(finding.data.get("class") or finding.id.partition("/")[0])
        before = seen.setdefault((kind, finding.rank), [])
        before += [finding] if finding.cost_s_per_step > 0 else []
        takes = sum(main.per_step(phase) for phase in CLASSES[kind]) if main and kind in _SHARED else 0.0
        costs = sum(one.cost_s_per_step for one in before)
        shares = finding in before and finding.id != before[0].id and costs > takes > 0
        named.append(before[0].id if shares else None)
    return named
