"""``what-if``: what each change would give, measured in interleaved blocks of one run of the command."""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from hotloop.diagnose.diagnose import doubt
from hotloop.errors import CheckFailed, UsageError
from hotloop.flow.examine import Examination, examine, publish, read
from hotloop.flow.observe import new_run_folder, observe, say_why_ended
from hotloop.language import said
from hotloop.launch.command import Outcome
from hotloop.record.publish import write_text_atomic
from hotloop.remedy import catalogue
from hotloop.remedy.catalogue import Applied
from hotloop.remedy.remedy import Remedy
from hotloop.report import json as report_json
from hotloop.report.values import plain
from hotloop.whatif.estimate import TOLD, WhatIf, estimate, interventions
from hotloop.whatif.live.blocks import Board
from hotloop.whatif.words import progress

FREE_DATA: Final = "free-data"
_TOGETHER: Final = "together"


@dataclass(frozen=True, kw_only=True)
class Measured:
    """What was measured, and its file; ``outcome`` is the command's."""

    result: WhatIf
    file: Path
    outcome: Outcome

    @property
    def json(self) -> str:
        """what_if.json."""
        return report_json.render(plain(self.result.to_json()))


def what_if(
    command: Sequence[str],
    asked: Sequence[str],
    *,
    budget_s: float,
    width: float,
    go_on: bool,
    throw_away: bool,
    out: Path | None,
) -> Measured:
    """Run the command with the interventions switched on and off, and estimate what each gives."""
    # What is accounted for is told from every recording, asked for or not.
    wanted = [_intervention(name) for name in asked if name not in TOLD] or [_intervention(FREE_DATA)]
    remedies = [remedy for _, remedy in wanted if remedy is not None]
    folder = new_run_folder(out, command)
    board = folder / "what-if.blocks"
    plan = {
        "interventions": [*(entry for entry, _ in wanted), *_together(remedies)],
        "board": str(board),
        "budget_s": budget_s,
        "width": width,
        "begun_s": time.monotonic(),
        "go_on": go_on,
    }
    if not throw_away:
        _announce(remedies)
    outcome = observe(
        command,
        folder,
        env={"HOTLOOP_WHAT_IF": json.dumps(plan)},
        stdout=sys.stderr,
        watch_tick=progress(Board(str(board)), budget_s),
        throw_away=throw_away,
    )
    if throw_away:
        say_why_ended(outcome)
    for leftover in (board, Path(f"{board}.lead")):
        leftover.unlink(missing_ok=True)
    examination = examine(read(folder))
    publish(examination, folder)
    result = estimate(examination.recording, examination.lead, examination.findings)
    if result is None:
        raise _nothing(examination, outcome, folder)
    if examination.evidence is not None:
        result = replace(result, doubt=doubt(examination.evidence))
    measured = Measured(result=result, file=folder / "what_if.json", outcome=outcome)
    write_text_atomic(measured.file, measured.json)
    return measured


def _nothing(examination: Examination, outcome: Outcome, folder: Path) -> CheckFailed:
    """Why nothing was measured, and what to do."""
    told = [f"{n['name']}: {n['status']}" for n in interventions(examination.recording) if n["status"]]
    exit_code, why, hints = outcome.exit_code, "; ".join(told), [f"the recording is in {folder}"]
    if outcome.interrupted:
        why = "interrupted before two blocks of the baseline were done"
    elif not why and exit_code:
        why, hints[:0] = "the command failed", ["its words are above"]
    elif not why and not any(steps.num_steps for steps in examination.ranks):
        why = "no training step was seen"
    elif not why and not any(rank.notes.get("optimizer") for rank in examination.recording.ranks):
        # Updates by hand, or by an optimizer that is none of torch's, show only in the recording.
        why = "no optimizer of torch makes the updates: while the command runs no step is seen"
        hints[:0] = ["compare two runs (hotloop run, and run --apply)"]
    elif not why:
        why = "the command or the budget ended before two blocks of the baseline were done"
        hints[:0] = ["let it run longer, or give a larger --budget"]
    well = "" if told else " (the command itself ended well)"
    ended = f" (exit code {exit_code})" if exit_code else well
    error = CheckFailed(f"nothing was measured: {why}{ended}", hint="; ".join(hints))
    if outcome.interrupted:
        error.exit_code = 130
    return error


def _intervention(name: str) -> tuple[dict[str, Any], Applied | None]:
    """The plan's entry. Raises UsageError for what cannot be switched within a run."""
    if name == FREE_DATA:
        return {"name": name}, None
    known = {remedy.id: remedy for remedy in catalogue.remedies()}
    wanted = name.partition("=")[0].strip().replace("_", "-").lower()
    if wanted not in known:
        switched = [one for one, remedy in known.items() if _is_switchable(remedy)]
        raise catalogue.unknown("intervention", wanted, [FREE_DATA, *sorted(TOLD), *switched])
    one = catalogue.parse(name)
    catalogue.require_live(one)
    if not _is_switchable(one.remedy):
        raise UsageError(
            f"{one} cannot be switched on and off within a run",
            hint=f"compare two runs: hotloop run --apply {one} -- COMMAND, and one without",
        )
    return {"name": str(one), "remedy": [one.remedy.id, one.value, one.remedy.live]}, one


def _is_switchable(remedy: Remedy) -> bool:
    """Whether a remedy can be switched on and off within a run."""
    module, _, form = remedy.live.partition(":")
    return bool(module) and bool(getattr(importlib.import_module(module), form).switchable)


def _together(candidates: Sequence[Applied]) -> list[dict[str, Any]]:
    """All that change no meaning at once, the first of each kind, where there are at least two."""
    kinds: dict[str, str] = {}
    for one in candidates:
        if one.remedy.effect != "semantic":
            kinds.setdefault(one.remedy.id.replace("no-workers", "num-workers"), str(one))
    return [{"name": _TOGETHER, "together": list(kinds.values())}] if len(kinds) > 1 else []


def _announce(remedies: Sequence[Applied]) -> None:
    """What the interventions do to the run's own results, in the catalogue's words."""
    changing = [f"  {one}: {said(one.remedy.alters)}" for one in remedies if one.remedy.effect != "exact"]
    if changing:
        words = (
            "what this run writes (checkpoints, logs) is of a run that was measured; --throw-away drops "
            "that. In the blocks of"
        )
        print(f"hotloop: {said(words)}", *changing, sep="\n", file=sys.stderr)
