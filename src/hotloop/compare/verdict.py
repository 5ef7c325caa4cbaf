"""``verify``: whether the candidate computes what the base computed, how much faster, and the checklist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from hotloop.compare import batches, losses, state
from hotloop.compare.checklist import checklist, finite_loss
from hotloop.compare.checkpoint import checkpoint
from hotloop.compare.expectation import Expectation
from hotloop.compare.items import Check, Item, Parity, passed, unmeasured
from hotloop.compare.run import HOW_TO_GET_EVIDENCE, Run, ended_on_purpose, how_it_failed
from hotloop.compare.speed import Speed, crowded, speed
from hotloop.compare.trace import Trace
from hotloop.errors import UsageError

Effect = Literal["exact", "numeric", "semantic"]
#: What is enough for each class.
_ENOUGH: Final[dict[Effect, tuple[Parity, ...]]] = {
    "exact": ("exact",),
    "numeric": ("exact", "within-noise"),
    "semantic": ("exact", "within-noise", "differs", "not-measured"),
}


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """``items`` are the checks in the order they are shown; ``words`` what is to be known besides."""

    effect: Effect
    parity: Parity
    speed: Speed
    enough: tuple[Parity, ...]  # parities that ``effect`` allows
    items: tuple[Item, ...]
    words: tuple[str, ...] = ()
    base: str = ""
    candidate: str = ""

    @property
    def ratio(self) -> float | None:
        """Above 1: the candidate is faster."""
        return self.speed.ratio

    @property
    def ci95(self) -> tuple[float, float] | None:
        """The interval of ``ratio``."""
        return self.speed.ci95

    @property
    def passed(self) -> bool:
        """The parity is what the effect class asks for, and no item failed."""
        return self.parity in self.enough and all(item.status != "failed" for item in self.items)

    def to_json(self) -> dict[str, Any]:
        """verify.json, schema 1."""
        return {
            "schema": 1,
            "base": self.base,
            "candidate": self.candidate,
            "effect": self.effect,
            "passed": self.passed,
            "ratio": self.ratio,
            "ci95": list(self.ci95) if self.ci95 else None,
            "base_per_s": self.speed.base_per_s,
            "candidate_per_s": self.speed.candidate_per_s,
            "of": self.speed.of,
            "launches": self.speed.launches,
            "parity": self.parity,
            "items": [vars(item) for item in self.items],
            "words": list(self.words),
        }


def judge(
    base: Run,
    candidate: Run,
    *,
    effect: Effect | None = None,
    asked: Expectation | None = None,
    baselines: Sequence[Run] = (),
    repeats: Sequence[tuple[Run, Run]] = (),
    log: Path | None = None,
) -> Verdict:
    """Hold two runs beside each other. Raises UsageError where nothing could be compared.

    ``effect`` is what the change may alter; None takes it from the checklist, ``numeric`` where that says
    nothing. ``asked`` is a checklist, ``log`` a text that its metrics may stand in, ``baselines`` are further
    runs of the base with other seeds, ``repeats`` further (base, candidate) launches, for the speed alone.
    """
    asked = asked or Expectation()
    wanted = effect or asked.effect or "numeric"
    for run in (base, candidate, *baselines):
        if not run.trace.recorded and wanted != "semantic":
            words = f"{run.label} has no evidence of what it computed, or that of another hotloop"
            raise UsageError(words, hint=HOW_TO_GET_EVIDENCE)
    enough = _ENOUGH[wanted]
    if wanted == "exact" and not all(_repeats(base.trace, run.trace) for run in baselines):
        enough = _ENOUGH["numeric"]  # bits cannot be asked of a change to a run that does not repeat its own
    pace = speed([base, *(a for a, _ in repeats)], [candidate, *(b for _, b in repeats)])
    parity, checks = compare_results(base, candidate, baselines, enough)
    saved = checkpoint(base, candidate, exact=parity == "exact")
    items = [
        _completed(base, candidate, enough),
        *_applied(candidate),
        *_patched(candidate),
        *checks,
        finite_loss(candidate),
        saved,
    ]
    named = {item.name for item in items}
    items += [
        item
        for item in checklist(asked, candidate, pace, saved, log)
        if item.name not in named and item.name != "checkpoint_loads"
    ]
    return Verdict(
        effect=wanted,
        parity=parity,
        speed=pace,
        enough=enough,
        items=tuple(items),
        words=(
            *_words(base, candidate, pace, parity),
            *([] if baselines else _redrawn(base, candidate, checks)),
        ),
        base=base.label,
        candidate=candidate.label,
    )


def compare_results(
    base: Run, candidate: Run, baselines: Sequence[Run], enough: Sequence[Parity]
) -> tuple[Parity, list[Item]]:
    """Order, content, losses and parameters of every rank; the worst rank counts."""
    pairs = [sorted(run.traces, key=lambda trace: trace.rank) for run in (base, candidate)]
    mine, other = ([trace.rank for trace in traces] for traces in pairs)
    if mine != other:
        told = [f"{len(ranks)} ({', '.join(map(str, ranks))})" for ranks in (mine, other)]
        words = f"ranks that train: {told[0]} in the base, {told[1]} in the candidate"
        return "differs", [passed("ranks", False, words, len(other), len(mine))]
    part = ended_on_purpose(base, candidate) or any(map(how_it_failed, (base, candidate)))
    verdicts: list[tuple[int, Parity, list[Item]]] = []
    for trace, beside in zip(*pairs, strict=True):
        more = [one for run in baselines for one in run.traces if one.rank == trace.rank]
        verdicts.append((trace.rank, *_rank(trace, beside, more, enough, part=part)))
    worst = max((parity for _, parity, _ in verdicts), key=lambda parity: _BADNESS[parity])
    by_name = zip(*(items for _, _, items in verdicts), strict=True)
    ranks = [rank for rank, _, _ in verdicts]
    return worst, [_of_ranks(ranks, items) for items in by_name]


def _of_ranks(ranks: Sequence[int], items: Sequence[Item]) -> Item:
    """The worst of one check over all ranks, with the rank it is of."""
    at = max(range(len(items)), key=lambda i: ("passed", "not-measured", "failed").index(items[i].status))
    item = items[at]
    return item if len(ranks) == 1 else replace(item, words=f"rank {ranks[at]}: {item.words}")


_BADNESS: Final[dict[Parity, int]] = {"exact": 0, "within-noise": 1, "not-measured": 2, "differs": 3}


def _rank(
    base: Trace, candidate: Trace, baselines: Sequence[Trace], enough: Sequence[Parity], *, part: bool
) -> tuple[Parity, list[Item]]:
    fed, held = batches.order(base, candidate), batches.content(base, candidate)
    parameters = state.parameters(base, candidate, part=part)
    banded = bool(baselines) and "differs" in (fed.outcome, held.outcome)
    if banded:
        loss = losses.unseeded([base, *baselines], candidate)
    else:
        loss = losses.seeded(base, candidate, baselines)
        if fed.outcome == "differs" and loss.outcome != "bit-equal":
            loss = _other_batches(base, candidate)
    strange = banded and batches.other_samples(base, candidate, baselines)
    parity = "differs" if strange else _parity(fed.outcome, held.outcome, loss, parameters, banded=banded)
    need_bits = "within-noise" not in enough
    # Where everything that was computed is the same, it does not matter what else was in the batches.
    same = loss.outcome == "bit-equal" and parameters.outcome == "equal"
    alike = "differs" not in enough
    required = alike and not same and not banded
    checks = [
        _item("order", fed, required=required or (alike and strange)),
        _item("content", held, required=required),
        _loss_item(loss, enough, need_bits),
        _item("parameters", parameters, required=need_bits or (alike and parameters.missed)),
    ]
    return parity, checks


def _repeats(base: Trace, again: Trace) -> bool:
    """Whether a second run over the same batches has the same losses; True where it saw other batches."""
    checks = (batches.order(base, again), batches.content(base, again))
    if any(check.outcome == "differs" for check in checks):
        return True
    return losses.seeded(base, again).outcome in ("bit-equal", "indistinct")


def _parity(order: str, content: str, loss: Check, parameters: Check, *, banded: bool) -> Parity:
    if loss.outcome == "differs" or parameters.missed:
        return "differs"
    if banded:
        return "within-noise" if loss.outcome == "close" else "not-measured"
    alike = loss.outcome in ("bit-equal", "indistinct") and loss.distance == 0.0
    if alike and parameters.outcome == "equal":
        return "exact"
    if parameters.outcome == "equal" and order != "differs" and loss.outcome in ("close", "indistinct"):
        return "within-noise"  # what was trained is the same: it does not matter what else was in the batches
    if "differs" in (order, content):
        return "differs"
    if loss.outcome == "bit-equal":  # parameters have the last word
        return "differs" if parameters.outcome == "differs" else "within-noise"
    return "within-noise" if loss.outcome == "close" else "not-measured"


def _other_batches(base: Trace, candidate: Trace) -> Check:
    hint = (
        "give the base's other runs with --baseline" if base.seed != candidate.seed else "see order, content"
    )
    return Check(
        outcome="not-measured", words=f"the two runs saw other batches, so losses cannot be compared: {hint}"
    )


def _item(name: str, check: Check, *, required: bool) -> Item:
    if check.outcome == "not-measured" or (check.outcome == "differs" and not required):
        return unmeasured(name, check.words)
    return passed(name, check.outcome == "equal", check.words, check.at)


def _loss_item(check: Check, enough: Sequence[Parity], need_bits: bool) -> Item:
    if check.outcome in ("not-measured", "indistinct"):
        return unmeasured("loss", check.words, check.limit)
    ok = check.outcome == "bit-equal" or (check.outcome == "close" and not need_bits) or "differs" in enough
    return passed("loss", ok, check.words, check.distance, 0.0 if need_bits else check.limit)


def _completed(base: Run, candidate: Run, enough: Sequence[Parity]) -> Item:
    for whose, run in (("base", base), ("candidate", candidate)):
        words = how_it_failed(run)
        if words:
            return passed("completed", False, f"the {whose} is not whole: {words}")
    a, b = base.lead.num_steps, candidate.lead.num_steps
    if a == b:
        return passed("completed", True, f"{a:,} steps each")
    words = f"{a:,} and {b:,} steps: the first {min(a, b):,} are compared"
    if ended_on_purpose(base, candidate):
        return passed("completed", True, f"{words}, --steps ended the {'candidate' if b < a else 'base'}")
    return passed("completed", "differs" in enough, words, b, a)


def _patched(candidate: Run) -> list[Item]:
    """A patch whose files were not loaded is not proven by a run without them."""
    patch = candidate.recording.patch
    if patch is None:
        return []
    met, missed = ([Path(file).name for file in files] for files in (patch.met, patch.missed))
    return _in_force("patch", met, "in force", [f"{file}: not imported" for file in missed])


def _applied(candidate: Run) -> list[Item]:
    """A remedy that did nothing is not proven by what it did not do."""
    told = [(note["id"], str(note.get("status"))) for note in candidate.applied]
    works = [remedy for remedy, status in told if status.startswith("in effect")]
    idle = [f"{remedy}: {status}" for remedy, status in told if remedy not in works]
    return _in_force("applied", works, "in effect", idle)


def _in_force(name: str, works: Sequence[str], words: str, idle: Sequence[str]) -> list[Item]:
    """What the candidate was to run with, where there is any: all of it, part of it or nothing is there."""
    said = "; ".join([*idle, *([f"{', '.join(works)}: {words}"] if works else [])])
    if works and idle:
        return [unmeasured(name, said)]
    return [passed(name, bool(works), said)] if said else []


def _words(base: Run, candidate: Run, pace: Speed, parity: Parity) -> list[str]:
    words = [pace.words] if pace.words and pace.ratio is not None else []
    drawn = state.generators(base.trace, candidate.trace)
    if drawn and parity == "exact":
        words.append(f"{drawn}: what is drawn next differs")
    words += crowded(base, candidate)
    if base.command != candidate.command:
        words.append(f"the commands differ: {base.command} and {candidate.command}")
    if base.recording.machine.get("hostname") != candidate.recording.machine.get("hostname"):
        words.append("the two runs are of different machines: the ratio says nothing of the change")
    return words


def _redrawn(base: Run, candidate: Run, checks: Sequence[Item]) -> list[str]:
    """What other values, or another order, may come from, where nothing else is known to differ."""
    status = {item.name: item.status for item in checks}
    seeds = [run.trace.seed for run in (base, candidate)]
    failed = any(status.get(name) == "failed" for name in ("order", "content", "loss", "parameters"))
    if failed and None not in seeds and seeds[0] != seeds[1]:
        return [
            "the two runs began under other seeds of torch, as a script that sets none does each time: what "
            "differs may come of that; set one, or give --baseline runs of the base"
        ]
    workers = [_workers(run) for run in (base, candidate)]
    if workers[0] == workers[1] or status.get("order") != "passed" or status.get("content") == "passed":
        return []
    return [
        f"the same samples, made by {workers[0]} and {workers[1]} workers: where they draw random numbers "
        "(augmentation), other workers draw others; then give --baseline runs of the base under other seeds"
    ]


def _workers(run: Run) -> object:
    return next((one.in_effect for one in run.lead.settings if one.name == "num_workers"), None)
