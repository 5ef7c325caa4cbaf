"""What the pipeline model says: the loader settings worth a trial, and what an arm would give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Final

from hotloop.diagnose.evidence import Evidence
from hotloop.errors import UsageError
from hotloop.feed.throughput import Setting
from hotloop.model import Pipeline, Setup, gain, predict
from hotloop.remedy import catalogue
from hotloop.tune.calibrate import calibrate
from hotloop.tune.candidate import Candidate, onto
from hotloop.tune.plans.settings import Field, Timed
from hotloop.tune.trial import Arm

#: How much worse a smaller setting may be predicted.
_SLACK: Final = 0.02
_ALIKE: Final = 0.005
#: What says so where it is no finding.
MODEL: Final = "pipeline"
#: Batches of an epoch that make the workers' start and end worth a look.
SHORT_EPOCH: Final = 200


def in_one_pass(pipeline: Pipeline) -> Pipeline:
    """The model of a run of a single epoch: no worker stays for another or is waited for at its end."""
    recorded = replace(pipeline.recorded, persistent_workers=False)
    return replace(pipeline, recorded=recorded, epoch=replace(pipeline.epoch, stop_s=0.0))


def pipeline_of(evidence: Evidence) -> Pipeline | None:
    """The model of a run; None where there is no pipeline to speak of: no loader, too few steps."""
    try:
        return calibrate(evidence)
    except UsageError:
        return None


def setup_of(arm: Arm) -> Setup | None:
    """What the model calls an arm; None where something in it is not the loader's."""
    setup = Setup()
    for one in arm:
        match one.remedy.id:
            case "num-workers":
                setup = replace(setup, num_workers=one.value)
            case "no-workers":
                setup = replace(setup, num_workers=0)
            case "prefetch-factor":
                setup = replace(setup, prefetch_factor=one.value)
            case "persistent-workers":
                setup = replace(setup, persistent_workers=True)
            case "cache-samples":
                setup = replace(setup, hit_rate=1.0)
            case _:
                return None
    return setup


def settings(pipeline: Pipeline, have: Arm, *, once: bool) -> Iterator[Candidate]:
    """The best few settings of the loader by prediction: of what is near the best, and of what is as good,
    what takes least memory.
    """
    recorded = pipeline.recorded
    short = pipeline.batches_per_epoch < SHORT_EPOCH and not once and not pipeline.anew
    now = recorded.prefetch_factor or 2
    best: dict[bool, tuple[Field, list[Timed]]] = {}
    for kept in dict.fromkeys((bool(recorded.persistent_workers), short)):
        found = Field(pipeline=pipeline, on=Setup(persistent_workers=kept), room_bytes=_room_bytes(pipeline))
        timed = found.all(lambda share, words: None)
        # Fewer ahead save little memory.
        best[kept] = found, [one for one in timed if one.setting.prefetch_factor >= now] or timed[:1]
    # Workers that stay are another remedy: they have to be worth it.
    field, timed = min(
        best.items(),
        key=lambda one: min(each.s_per_step for each in one[1][1]) * (1 + _SLACK if one[0] else 1.0),
    )[1]
    tries = [field.least(timed, _SLACK)]
    if predict(pipeline, tries[0]).confirm:
        tries.append(field.least(timed, _ALIKE))
    for setup in dict.fromkeys(tries):
        yield from _loader(have, recorded, setup)


def _room_bytes(pipeline: Pipeline) -> float:
    """What the workers and batches of a rank take, and what there is beside them."""
    recorded, memory = pipeline.recorded, pipeline.memory
    now = Setting("process", recorded.num_workers or 0, recorded.prefetch_factor or 2)
    taken_bytes = now.memory_bytes(int(memory.worker_bytes), int(memory.batch_bytes))
    return taken_bytes + memory.room_bytes / (recorded.ranks or 1)


def cached(pipeline: Pipeline, evidence: Evidence, arm: Arm, found: Iterable[Candidate]) -> list[Candidate]:
    """The cache that a finding asks for; where none does, one that epochs seen to repeat would use."""
    asked = [one for one in found if one.arm == arm]
    loader = evidence.steps.train_loader()
    repeats = (
        loader is not None
        and loader.num_iterators > 1
        and not (pipeline.iterable or pipeline.alone or pipeline.anew)
    )
    return asked or ([Candidate(arm=arm, why=MODEL)] if repeats else [])


def without_workers(pipeline: Pipeline, found: Iterable[Candidate]) -> Iterator[Candidate]:
    """What a cache hands out at once needs no workers, whose batches have to be shipped."""
    if pipeline.recorded.num_workers:
        for one in found:
            yield Candidate(arm=onto(one.arm, [catalogue.parse("no-workers")]), why=MODEL)


def _loader(have: Arm, recorded: Setup, wanted: Setup) -> Iterator[Candidate]:
    """The arm that makes a loader of ``recorded`` one of ``wanted``, if anything is to be changed."""
    words = []
    if wanted.num_workers != recorded.num_workers:
        words.append(f"num-workers={wanted.num_workers}" if wanted.num_workers else "no-workers")
    if wanted.num_workers and wanted.persistent_workers and not recorded.persistent_workers:
        words.append("persistent-workers")
    if wanted.num_workers and wanted.prefetch_factor not in (None, recorded.prefetch_factor):
        words.append(f"prefetch-factor={wanted.prefetch_factor}")
    if words:
        yield Candidate(arm=onto(have, map(catalogue.parse, words)), why=MODEL)


def predicted(pipeline: Pipeline | None, one: Candidate, have: Arm) -> Candidate:
    """With what the model predicts, where it can speak: relative to the run under ``have``."""
    setup = setup_for(one.arm, have, pipeline)
    if pipeline is None or setup is None:
        return one
    ratio, low, high = gain(pipeline, setup)
    return replace(one, predicted=ratio, bounds=(low, high))


def setup_for(arm: Arm, have: Arm, pipeline: Pipeline | None) -> Setup | None:
    """What is new in an arm, as a setup; ``have`` is in force in the run the model was made from.

    A cache holds as many samples as memory has room for.
    """
    known = set(map(str, have))
    new = tuple(one for one in arm if str(one) not in known)
    setup = setup_of(new) if new else None
    if setup is None or not setup.hit_rate or pipeline is None:
        return setup
    sample = pipeline.memory.batch_bytes / max(1.0, pipeline.batch_samples)
    whole = sample * pipeline.num_samples
    room = min(whole, pipeline.memory.room_bytes)
    return replace(setup, hit_rate=room / whole if whole > 0 else 1.0, cache_bytes=room)
