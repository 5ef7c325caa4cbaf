"""The distributed family: ranks side by side."""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Any

import numpy as np
import pytest
from synthetic import TRAIN, evidence, line, loader, steps

from hotloop.diagnose.diagnose import diagnose
from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Finding, Place
from hotloop.flow.brief import _effect
from hotloop.measure.steps import SiteCost, Steps

EVEN = {"data_wait": 0.001, "forward": 0.02, "backward": 0.04, "optimizer": 0.005}


def job(*ranks: Steps, world_size: int | None = None, **world: Any) -> Evidence:
    """Ranks of one job; the first is the one spoken about."""
    single = [evidence(run, **world) for run in ranks]
    notes = {"process": [{"world_size": len(ranks) if world_size is None else world_size}]}
    processes = tuple(
        replace(e.recording.ranks[0], notes={**e.recording.ranks[0].notes, **notes}) for e in single
    )
    return replace(single[0], ranks=ranks, recording=replace(single[0].recording, ranks=processes))


def rank(number: int, phases: dict[str, float] | None = None, **fields: Any) -> Steps:
    return steps({**EVEN, **(phases or {})}, rank=number, pid=100 + number, **fields)


def found(*ranks: Steps, **world: Any) -> dict[str, Finding]:
    return {item.id: item for item in diagnose(job(*ranks, **world))}


def sharded(**settings: Any) -> tuple[Any, ...]:
    return (loader(settings={"sampler": "DistributedSampler", **settings}),)


def test_even_ranks_hear_nothing() -> None:
    assert found(rank(0, loaders=sharded()), rank(1, loaders=sharded())) == {}


# straggler and input


def test_the_slow_rank_is_named_while_the_others_wait() -> None:
    slow = rank(1, {"forward": 0.07, "backward": 0.02})
    fast = rank(0, {"forward": 0.02, "backward": 0.07})
    item = found(fast, slow)["distributed/straggler"]
    assert item.rank == 1
    assert item.cost_s_per_step == pytest.approx(0.05)
    assert item.data["phase"] == "forward"


def postprocessing(seconds: float, number: int = 17) -> Any:
    """A sampled line of the loop beside the model; seconds over the run of 100 steps."""
    return line(
        number, seconds, file=TRAIN, function="postprocess", phase="other", source="best = worst(rows)"
    )


def test_the_line_that_only_the_slow_rank_runs_is_named() -> None:
    slow = rank(1, {"other": 0.05, "backward": 0.02}, lines=(postprocessing(4.8), postprocessing(0.2, 50)))
    fast = rank(0, {"backward": 0.07}, lines=(postprocessing(0.1, 50),))
    item = found(fast, slow)["distributed/straggler"]
    assert item.where == Place(file=TRAIN, line=17, function="postprocess")
    assert "«best = worst(rows)» at train.py:17" in item.message
    assert any("never seen on the others" in text for text in item.evidence)


def test_a_line_on_which_all_ranks_spend_time_is_not_to_blame() -> None:
    """The slow rank takes twice as long over everything: its device, its cores, or its data."""
    slow = rank(1, {"other": 0.1, "backward": 0.02}, lines=(postprocessing(10.0),))
    fast = rank(0, {"other": 0.05, "backward": 0.07}, lines=(postprocessing(5.0),))
    item = found(fast, slow)["distributed/straggler"]
    assert item.where is None
    assert "mostly in other" in item.message


SHARDED = {"modules": [{"class": "Net", "sharded": True}]}


def test_ranks_that_gather_their_parameters_wait_in_forward() -> None:
    """FSDP: the rank with the long forward is the one that waits."""
    fast = rank(0, {"forward": 0.08}, loaders=sharded(), facts=SHARDED)
    slow = rank(1, {"data_wait": 0.061}, loaders=sharded(), facts=SHARDED)
    items = found(fast, slow)
    assert "distributed/straggler" not in items
    item = items["distributed/unbalanced-input"]
    assert item.rank == 1
    assert item.cost_s_per_step == pytest.approx(0.06)


@pytest.mark.parametrize(("size", "told"), [(2500, True), (1000, False), (20000, False)])
def test_batches_as_much_larger_as_the_rank_is_slower_are_the_cause(size: int, told: bool) -> None:
    slow = rank(1, {"forward": 0.05, "backward": 0.02}, loaders=(replace(sharded()[0], batch_bytes=size),))
    fast = rank(0, {"backward": 0.05}, loaders=(replace(sharded()[0], batch_bytes=1000),))
    item = found(fast, slow)["distributed/straggler"]
    assert ("with batches 2.5 times as large" in item.message) is told
    assert ("bucket by length" in item.advice) is told
    assert ("batches of 2.44 KiB on rank 1, of 1000 B on the others" in item.evidence) is told
    assert _effect(asdict(item), (), False) == ("semantic" if told else "numeric")


def test_more_work_that_nobody_waits_for_costs_nothing() -> None:
    assert "distributed/straggler" not in found(rank(0), rank(1, {"logging": 0.02}))


def test_an_evaluation_on_one_rank_is_told_once() -> None:
    slow = rank(0, {"evaluation": 0.05, "backward": 0.02})
    items = found(slow, rank(1, {"backward": 0.07}))
    assert "cadence/evaluation" in items
    assert "distributed/straggler" not in items


def test_small_differences_are_noise() -> None:
    assert (
        found(rank(0, {"forward": 0.022, "backward": 0.041}), rank(1, {"forward": 0.024, "backward": 0.039}))
        == {}
    )


def test_a_rank_that_waits_for_its_data_is_an_input_matter() -> None:
    slow = rank(1, {"data_wait": 0.05, "backward": 0.02}, loaders=sharded())
    fast = rank(0, {"backward": 0.07}, loaders=sharded())
    items = found(fast, slow)
    assert "distributed/straggler" not in items
    assert items["distributed/unbalanced-input"].rank == 1
    assert items["distributed/unbalanced-input"].cost_s_per_step == pytest.approx(0.049)


@pytest.mark.parametrize(("other", "told"), [(100.0, False), (101.0, False), (80.0, True)])
def test_epochs_of_different_length(other: float, told: bool) -> None:
    def use(batches: float) -> tuple[Any, ...]:
        return (replace(sharded()[0], num_iterators=3, batches_per_epoch=batches),)

    items = found(rank(0, loaders=use(100.0)), rank(1, loaders=use(other)))
    assert ("distributed/unbalanced-input" in items) is told


# duplicated samples


def test_every_rank_reading_everything_is_told() -> None:
    torch = "torch.utils.data.sampler."
    use = (loader(settings={"sampler": torch + "RandomSampler", "batch_sampler": torch + "BatchSampler"}),)
    item = found(rank(0, loaders=use), rank(1, loaders=use))["distributed/duplicated-samples"]
    assert item.severity == "medium"
    assert item.share == pytest.approx(0.5)  # half of each epoch's work is the other rank's
    assert "2 ranks" in item.message and "3200" in item.message
    assert item.where == Place(file=TRAIN, line=30, function="main")


@pytest.mark.parametrize(
    "settings",
    [
        {"sampler": "DistributedSampler"},
        {"sampler": "MySampler"},
        {"sampler": None, "iterable": True},
        {"sampler": "RandomSampler", "batch_sampler": "ShardedBatches"},
    ],
)
def test_samplers_that_may_shard_are_not_judged(settings: dict[str, Any]) -> None:
    use = (loader(settings=settings),)
    assert "distributed/duplicated-samples" not in found(rank(0, loaders=use), rank(1, loaders=use))


def test_shards_of_a_dataset_have_different_lengths_or_are_subsets() -> None:
    plain = {"sampler": "RandomSampler"}
    first, second = loader(settings=plain), loader(settings=plain, dataset={"class": "Windows", "len": 3100})
    assert "distributed/duplicated-samples" not in found(
        rank(0, loaders=(first,)), rank(1, loaders=(second,))
    )
    subset = loader(settings=plain, dataset={"class": "Subset", "len": 3200})
    assert "distributed/duplicated-samples" not in found(
        rank(0, loaders=(subset,)), rank(1, loaders=(subset,))
    )


@pytest.mark.parametrize(
    ("made", "told"),
    [
        ("data = Windows(root)", True),
        ("rank = dist.get_rank()\nprint(rank)\ntorch.cuda.set_device(rank)\ndata = Windows(root)", True),
        ("data = Windows(root)\nif rank == 0:\n    save(model)", True),
        ("data = Windows(files[rank::2])", False),
        ("data = Shard(root, dist.get_rank())", False),
        ("data = [file for i, file in enumerate(files) if i % 2 == rank]", False),
    ],
)
def test_a_dataset_made_from_the_rank_is_the_ranks_own(made: str, told: bool) -> None:
    text = f"{made}\ntrain_loader = DataLoader(data, shuffle=True)\n"
    where = Place(file=TRAIN, line=text.count("\n"), function="train")
    use = (loader(settings={"sampler": "RandomSampler"}, where=where),)
    evidence = job(rank(0, loaders=use), rank(1, loaders=use), sources={TRAIN: text})
    assert ("distributed/duplicated-samples" in {item.id for item in diagnose(evidence)}) is told


def test_two_trainings_side_by_side_are_no_job() -> None:
    use = (loader(settings={"sampler": "RandomSampler"}),)
    assert "distributed/duplicated-samples" not in found(
        rank(0, loaders=use), rank(1, loaders=use), world_size=1
    )


# collectives


def reducing(number: int, seconds: float, **fields: Any) -> Steps:
    site = SiteCost(
        place=Place(file=TRAIN, line=44, function="main"), operation="all_reduce", count=300,
        seconds=seconds * 100, num_bytes=1200, **fields,
    )  # fmt: skip
    return rank(number, {"collective": seconds}, sites={"collective": (site,)})


def test_collectives_in_the_step_are_named_with_their_line() -> None:
    item = found(reducing(0, 0.03), reducing(1, 0.03))["distributed/slow-collective"]
    assert item.where is not None and item.where.line == 44
    assert item.cost_s_per_step == pytest.approx(0.03)
    assert any("3 per step" in text for text in item.evidence)
    assert "distributed/slow-collective" not in found(reducing(0, 0.001), reducing(1, 0.001))


def test_a_frameworks_own_collectives_are_not_the_scripts() -> None:
    ranks = [reducing(number, 0.03) for number in (0, 1)]
    place = ranks[0].sites["collective"][0].place
    assert found(*(replace(one, framework_call=place) for one in ranks)) == {}
    unknown = {"collective": (replace(ranks[0].sites["collective"][0], place=None),)}
    assert found(*(replace(one, sites=unknown) for one in ranks)) == {}


def test_waiting_for_a_straggler_is_not_a_slow_collective() -> None:
    slow = rank(1, {"forward": 0.06, "collective": 0.0})
    items = found(reducing(0, 0.04), slow)
    assert "distributed/slow-collective" not in items
    assert items["distributed/straggler"].rank == 1


def test_collectives_of_an_evaluation_are_not_the_steps() -> None:
    assert "distributed/slow-collective" not in found(
        reducing(0, 0.03, in_step=False), reducing(1, 0.03, in_step=False)
    )


@pytest.mark.parametrize("accelerator", [False, True])
def test_communication_that_backward_does_not_hide(accelerator: bool) -> None:
    facts = {"accelerator": accelerator}
    ranks = [rank(number, collective_in_backward_s=0.02, facts=facts) for number in (0, 1)]
    item = found(*ranks)["distributed/unoverlapped-collective"]
    assert (item.cost_s_per_step, item.severity) == (pytest.approx(0.02), "high")
    assert _effect(asdict(item), (), False) == "semantic"
    crowded = replace(job(*ranks), got=0.1, others_cores=2.0)
    (item,) = (one for one in diagnose(crowded) if one.id == item.id)
    assert item.severity == "info"  # ranks without a core wait for each other as well
    assert found(rank(0, collective_in_backward_s=0.001), rank(1)) == {}


def test_ranks_of_a_host_that_wait_for_each_other_in_turn_do_not_communicate() -> None:
    facts = {"accelerator": False, "ddp": ({"avg_backward_compute_s": 0.04},)}
    ranks = [rank(number, collective_in_backward_s=0.02, facts=facts) for number in (0, 1)]
    for number, one in enumerate(ranks):
        one.phase("backward")[:] = np.where(np.arange(one.num_steps) % 2 == number, 0.04, 0.0133)
    assert found(*ranks) == {}
