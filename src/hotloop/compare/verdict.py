"""``verify``: whether the candidate computes what the base computed, how much faster, and the checklist."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, Literal

from hotloop.compare import computed, losses
from hotloop.compare.checklist import checklist, finite_loss
from hotloop.compare.checkpoint import checkpoint
from hotloop.compare.expectation import Expectation
from hotloop.compare.items import Check, Item, Parity, passed, unmeasured
from hotloop.compare.run import Run, Trace, ended_on_purpose, how_it_failed
from hotloop.compare.speed import Speed, crowded, speed
from hotloop.errors import UsageError

Effect = Literal["exact", "numeric", "semantic"]
#: What is enough for each class.
_ENOUGH: Final[dict[Effect, tuple[Parity, ...]]] = {
    "exact": ("exact",),
    "numeric": ("exact", "within-noise"),
    "semantic": ("exact", "within-noise", "differs", "not-measured"),
}
_PERTURB: Final = (
    "training may multiply rounding: hotloop run --perturb --out RUN -- COMMAND records the base with the "
    "last bit of its weights moved, and --baseline RUN allows a change to differ as that does"
)
_HELD: Final = "the base does not compute the same bits twice, so the candidate is held to numeric"


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
    def passed(self) -> bool:
        """The parity is what the effect class asks for, and no item failed."""
        return self.parity in self.enough and not self.failed

    @property
    def failed(self) -> tuple[str, ...]:
        """The checks that failed."""
        return tuple(item.name for item in self.items if item.status == "failed")

    def to_json(self) -> dict[str, Any]:
        """verify.json, schema 1."""
        return {
            "schema": 1,
            "base": self.base,
            "candidate": self.candidate,
            "effect": self.effect,
            "passed": self.passed,
            "ratio": self.speed.ratio,
            "ci95": self.speed.ci95,
            "base_per_s": self.speed.base_per_s,
            "candidate_per_s": self.speed.candidate_per_s,
            "of": self.speed.of,
            "launches": self.speed.launches,
            "parity": self.parity,
            "items": [vars(item) for item in self.items],
            "words": self.words,
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
    python: str = "",
    launched: bool = False,
) -> Verdict:
    """Hold two runs beside each other. Raises UsageError where nothing could be compared.

    ``effect`` is what the change may alter; None takes it from the checklist, ``numeric`` where that says
    nothing. ``asked`` is a checklist, ``log`` a text that its metrics may stand in, ``baselines`` are further
    runs of the base with other seeds, ``repeats`` further (base, candidate) launches: both sides' for the
    speed, the base's to see whether it repeats itself.
    ``python`` and ``launched``: see ``checkpoint``.
    """
    asked = asked or Expectation()
    wanted = effect or asked.effect or "numeric"
    for run in (base, candidate, *baselines):
        if not run.trace.recorded and wanted != "semantic":
            raise UsageError(
                f"{run.label} has no evidence of what it computed",
                hint="record it with: hotloop run --evidence -- COMMAND",
            )
        if run.trace.perturbed and run in (base, candidate):
            raise UsageError(f"{run.label} was recorded with --perturb", hint="give it as --baseline")
    enough = _ENOUGH[wanted]
    baselines = [*baselines, *(run for run, _ in repeats)]
    if wanted == "exact" and not all(_repeats(base.trace, run.trace) for run in baselines):
        enough = _ENOUGH["numeric"]  # bits cannot be asked of a change to a run that does not repeat its own
    pace = speed([base, *(a for a, _ in repeats)], [candidate, *(b for _, b in repeats)])
    parity, checks = compare_results(base, candidate, baselines, enough)
    return Verdict(
        effect=wanted,
        parity=parity,
        speed=pace,
        enough=enough,
        items=(
            _completed(base, candidate, enough),
            *_applied(candidate),
            *_patched(candidate),
            *checks,
            finite_loss(candidate),
            checkpoint(
                base,
                candidate,
                exact=parity == "exact",
                as_many="differs" not in enough and base.lead.num_steps == candidate.lead.num_steps,
                python=python,
                launched=launched,
            ),
            *checklist(asked, candidate, pace, log),
        ),
        words=(
            *_words(base, candidate, pace),
            *([_HELD] if enough is not _ENOUGH[wanted] else []),
            *_redrawn(base, candidate, baselines, checks),
            *_perturbed(base, candidate, baselines, checks, enough),
        ),
        base=base.label,
        candidate=candidate.label,
    )


def compare_results(
    base: Run, candidate: Run, baselines: Sequence[Run], enough: Sequence[Parity]
) -> tuple[Parity, list[Item]]:
    """Order, content, losses and parameters of every rank; the worst rank counts."""
    mine, other = ({trace.rank: trace for trace in run.traces} for run in (base, candidate))
    if mine.keys() != other.keys():
        told = [f"{len(ranks)} ({', '.join(map(str, sorted(ranks)))})" for ranks in (mine, other)]
        words = f"ranks that train: {told[0]} in the base, {told[1]} in the candidate"
        return "differs", [passed("ranks", False, words, len(other), len(mine))]
    part = ended_on_purpose(base, candidate) or any(how_it_failed(r.recording) for r in (base, candidate))
    ranks = sorted(mine)
    found = []
    for rank in ranks:
        more = [one for run in baselines for one in run.traces if one.rank == rank]
        found.append(_rank(mine[rank], other[rank], more, enough, part=part))
    parity = max((parity for parity, _ in found), key=_BADNESS.index)
    return parity, [_of_ranks(ranks, items) for items in zip(*(items for _, items in found), strict=True)]


def _of_ranks(ranks: Sequence[int], items: Sequence[Item]) -> Item:
    """The worst of one check over all ranks, with the rank it is of."""
    at = max(range(len(items)), key=lambda i: ("passed", "not-measured", "failed").index(items[i].status))
    item = items[at]
    return item if len(ranks) == 1 else replace(item, words=f"rank {ranks[at]}: {item.words}")


_BADNESS: Final[tuple[Parity, ...]] = ("exact", "within-noise", "not-measured", "differs")


def _rank(
    base: Trace, candidate: Trace, baselines: Sequence[Trace], enough: Sequence[Parity], *, part: bool
) -> tuple[Parity, list[Item]]:
    fed, held = computed.order(base, candidate), computed.content(base, candidate)
    parameters = computed.parameters(base, candidate, part=part)
    # Runs of the base over the same batches show its noise, the others which batches it draws anew.
    loss = losses.seeded(base, candidate, [one for one in baselines if _same_batches(base, one)])
    baselines = [one for one in baselines if not one.perturbed]  # which are of the base's own seed
    apart = _other_seeds(base, candidate) and loss.outcome != "bit-equal"
    free_order = any(computed.order(base, one).outcome == "differs" for one in baselines)
    free = free_order or any(computed.content(base, one).outcome == "differs" for one in baselines)
    orders, contents = (one.outcome == "differs" for one in (fed, held))
    banded = apart or ((orders or contents) and (free_order or not orders) and free)
    if banded and baselines:
        loss = losses.unseeded([base, *baselines], candidate)
    elif apart or (orders and loss.outcome != "bit-equal"):
        why = "began under other seeds" if apart else "saw other batches: see order, content"
        words = f"losses cannot be compared: the two runs {why}"
        loss = Check(outcome="not-measured", words=words)
    need_bits = "within-noise" not in enough and not banded
    fed_by_loader = any(one.loader for one in base.loaders)
    if loss.outcome == "close" and held.outcome == "differs" and not (fed_by_loader or need_bits):
        held = replace(held, outcome="not-measured", words=f"{held.words}: what is computed before it rounds")
    strange = banded and computed.other_samples(base, candidate, baselines)
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
    if strange:
        return "differs", checks
    return _parity(fed.outcome, held.outcome, loss, parameters, banded=banded), checks


def _other_seeds(base: Trace, other: Trace) -> bool:
    return None not in (base.seed, other.seed) and base.seed != other.seed


def _same_batches(base: Trace, again: Trace) -> bool:
    outcomes = (computed.order(base, again).outcome, computed.content(base, again).outcome)
    return not _other_seeds(base, again) and "differs" not in outcomes


def _repeats(base: Trace, again: Trace) -> bool:
    """Whether a second run has the same batches and losses; True where it began under another seed, or was
    perturbed.
    """
    if again.perturbed:
        return True
    if not _same_batches(base, again):
        return base.seed is None or _other_seeds(base, again)
    return losses.seeded(base, again).outcome in ("bit-equal", "indistinct")


def _parity(order: str, content: str, loss: Check, parameters: Check, *, banded: bool) -> Parity:
    if loss.outcome == "differs" or parameters.missed:
        return "differs"
    if banded:
        return "within-noise" if loss.outcome == "close" else "not-measured"
    alike = loss.outcome in ("bit-equal", "indistinct") and loss.distance == 0.0
    if alike and parameters.outcome == "equal":
        return "exact"
    if "differs" in (order, content):
        return "differs"
    if loss.outcome == "bit-equal":  # parameters have the last word
        return "differs" if parameters.outcome == "differs" else "within-noise"
    return "within-noise" if loss.outcome == "close" else "not-measured"


def _item(name: str, check: Check, *, required: bool) -> Item:
    if check.outcome == "not-measured" or (check.outcome == "differs" and not required):
        return unmeasured(name, check.words)
    return passed(name, check.outcome == "equal", check.words, check.at)


def _loss_item(check: Check, enough: Sequence[Parity], need_bits: bool) -> Item:
    free = check.outcome == "differs" and "differs" in enough  # it differs, and may
    if free or check.outcome in ("not-measured", "indistinct"):
        return unmeasured("loss", check.words, check.limit, check.distance)
    ok = check.outcome == "bit-equal" or (check.outcome == "close" and not need_bits)
    return passed("loss", ok, check.words, check.distance, 0.0 if need_bits else check.limit)


def _completed(base: Run, candidate: Run, enough: Sequence[Parity]) -> Item:
    for whose, run in (("base", base), ("candidate", candidate)):
        if words := how_it_failed(run.recording):
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


def _words(base: Run, candidate: Run, pace: Speed) -> list[str]:
    words = [pace.words] if pace.words and pace.ratio is not None else []
    if others := crowded(base, candidate):
        words.append(others)
    if base.command != candidate.command:
        words.append(f"the commands differ: {base.command} and {candidate.command}")
    if base.recording.machine.get("hostname") != candidate.recording.machine.get("hostname"):
        words.append("the two runs are of different machines: the ratio says nothing of the change")
    return words


def _redrawn(base: Run, candidate: Run, baselines: Sequence[Run], checks: Sequence[Item]) -> list[str]:
    """What other values, or another order, may come from, where no run of the base shows it."""
    status = {item.name: item.status for item in checks}
    workers = [_workers(run) for run in (base, candidate)]
    if not all(_same_batches(base.trace, run.trace) for run in baselines):
        return []
    if status.get("loss") != "passed" and _other_seeds(base.trace, candidate.trace):
        return [
            "the two runs began under other seeds of torch: what differs may come of that; give --baseline "
            "runs of the base"
        ]
    drawn = "failed" in (status.get("order"), status.get("content"))
    if workers[0] == workers[1] and drawn and not baselines:
        return [
            "where something draws anew whatever the seed (the clock, numpy's default_rng()), no two runs "
            "see the same: another run of the base (--baseline RUN) tells, and so does --repeats 2"
        ]
    if workers[0] == workers[1] or status.get("order") != "passed" or status.get("content") == "passed":
        return []
    return [
        f"the same samples, made by {workers[0]} and {workers[1]} workers: where they draw random numbers "
        "(augmentation), other workers draw others; then give --baseline runs of the base under other seeds"
    ]


def _perturbed(
    base: Run, candidate: Run, baselines: Sequence[Run], checks: Sequence[Item], enough: Sequence[Parity]
) -> list[str]:
    """How to learn what this training makes of rounding, where losses part; which such runs say nothing."""
    parted = any(item.name == "loss" and item.status != "passed" and item.value for item in checks)
    if enough != _ENOUGH["numeric"] or not parted:
        return []
    count = min(len(run.trace.losses) for run in (base, candidate))
    moved = [run for run in baselines if run.trace.perturbed]
    idle = [
        f"{run.label} says nothing of rounding: it saw other batches, or has fewer than {count:,} losses"
        for run in moved
        if len(run.trace.losses) < count or not _same_batches(base.trace, run.trace)
    ]
    return idle if moved else [_PERTURB] if all(_same_batches(base.trace, r.trace) for r in baselines) else []


def _workers(run: Run) -> object:
    return next((one.in_effect for one in run.lead.settings if one.name == "num_workers"), None)
