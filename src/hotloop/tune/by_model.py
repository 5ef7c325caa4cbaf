"""What the pipeline model says: the loader settings worth a trial, and what an arm would give."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final

from hotloop.diagnose import Evidence
from hotloop.errors import UsageError
from hotloop.feed.throughput import Setting
from hotloop.model import Pipeline, Setup, gain, predict
from hotloop.model.pipeline import AHEAD, Memory
from hotloop.model.predict import fast
from hotloop.remedy import catalogue
from hotloop.tune.calibrate import calibrate
from hotloop.tune.candidate import Candidate, Limits, onto
from hotloop.tune.trial import Arm
from hotloop.units import size

#: How much worse a smaller setting may be predicted.
_SLACK: Final = 1.02
_ALIKE: Final = 1.005
#: Numbers of workers that are thought of, where the cores, memory and descriptors have room for them.
_WORKERS_TRIED: Final = (*range(9), *range(10, 17, 2), 20, 24, 32, 40, 48, 56, 64)
#: Batches ahead in all, at most, and what they may take of the memory beyond so many workers as they are.
_USUAL: Final = 16
_MOST_AHEAD: Final = 256
_MOST_AHEAD_BYTES: Final = 2 << 30
#: What says so where it is no finding.
MODEL: Final = "pipeline"
#: Batches of an epoch that make the workers' start and end worth a look.
SHORT_EPOCH: Final = 200


def in_one_pass(pipeline: Pipeline) -> Pipeline:
    """The model of a run of a single epoch: no worker stays for another or is waited for at its end."""
    recorded = replace(pipeline.recorded, persistent_workers=False)
    return replace(pipeline, recorded=recorded, epoch=replace(pipeline.epoch, stop_s=0.0))


def pipeline_of(evidence: Evidence, alone_s: float | None = None) -> Pipeline | None:
    """The model of a run; None where there is no pipeline to speak of: no loader, too few steps."""
    try:
        return replace(calibrate(evidence), alone_s=alone_s)
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
    best: dict[bool, list[tuple[Setup, float]]] = {}
    for kept in dict.fromkeys((bool(recorded.persistent_workers), short)):
        setups = [replace(setup, persistent_workers=kept) for setup in _settings(pipeline)]
        best[kept] = [(setup, fast(pipeline, setup)) for setup in setups]
    # Workers that stay are another remedy: they have to be worth it.
    known = min(
        best.items(), key=lambda one: min(seconds for _, seconds in one[1]) * (_SLACK if one[0] else 1.0)
    )[1]
    tries = [_least(known, _SLACK)]
    if predict(pipeline, tries[0]).confirm:
        tries.append(_least(known, _ALIKE))
    for setup in dict.fromkeys(tries):
        yield from _loader(have, recorded, setup)


def _least(known: Sequence[tuple[Setup, float]], slack: float) -> Setup:
    """The first that is near the fastest."""
    most_s = slack * min(seconds for _, seconds in known)
    return next(setup for setup, seconds in known if seconds <= most_s)


def _settings(pipeline: Pipeline) -> list[Setup]:
    """The numbers of workers and batches ahead that there is room for, what takes least memory first."""
    recorded, memory = pipeline.recorded, pipeline.memory
    now = recorded.prefetch_factor or 2
    if pipeline.alone:
        return [Setup(num_workers=0, prefetch_factor=now)]
    # Workers that compute gain nothing beyond the cores.
    most = (recorded.cores or 1.0) / max(pipeline.make_cores, 1e-3) + 2
    most_ahead = min(_MOST_AHEAD, pipeline.batches_per_epoch)
    found = [Setting("process", 0, now)]
    for workers in (count for count in _WORKERS_TRIED if 0 < count <= most):
        depths = {*(now * depth for depth in (2, 4, 8, 16)), -(-AHEAD // workers)}
        deeper = [depth for depth in depths if now < depth <= most_ahead / workers]
        found += [Setting("process", workers, depth) for depth in (now, *deeper)]
    taken_bytes = _taken(memory, Setting("process", recorded.num_workers or 0, now))
    room_bytes = taken_bytes + memory.room_bytes / (recorded.ranks or 1)
    usual = [one for one in found if one.prefetch_factor == now and one.num_workers <= _USUAL]
    fitting = [
        one
        for one in found
        if not one.num_workers
        or (
            _taken(memory, one) <= room_bytes
            and (one in usual or one.num_ahead * memory.batch_bytes <= _MOST_AHEAD_BYTES)
            and memory.carries(one.num_workers, one.prefetch_factor)
        )
    ]
    fitting.sort(key=lambda one: (_taken(memory, one), one.num_workers, one.prefetch_factor))
    return [Setup(num_workers=one.num_workers, prefetch_factor=one.prefetch_factor) for one in fitting]


def _taken(memory: Memory, setting: Setting) -> int:
    return setting.memory_bytes(int(memory.worker_bytes), int(memory.batch_bytes))


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


def without_workers(pipeline: Pipeline, have: Arm, found: Iterable[Candidate]) -> Iterator[Candidate]:
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


def over(pipeline: Pipeline | None, one: Candidate, have: Arm, limits: Limits) -> str:
    """Why a candidate is predicted to need more memory than it may have, "" where it is not."""
    setup = setup_for(one.arm, have, pipeline)
    if pipeline is None or setup is None or limits.most_bytes is None:
        return ""
    wanted = predict(pipeline, setup).host_bytes
    if wanted <= limits.most_bytes:
        return ""
    return f"predicted to use {size(wanted)} of memory, the limit is {size(limits.most_bytes)}"
