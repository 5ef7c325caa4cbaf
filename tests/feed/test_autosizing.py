"""Settings from measurements and a budget, and the guides' rules by name."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.feed import guide_rules
from hotloop.feed.autosizing import Budget, Measured, autosize

GB = 10**9
BUDGET = Budget(cores=8, memory_bytes=32 * GB)
WAITING = Measured(
    batch_size=16, sample_s=6e-3, sample_cpu_s=1e-4, step_s=10e-3, batch_bytes=1 << 20, num_samples=10_000
)
COMPUTING = replace(WAITING, sample_s=4e-3, sample_cpu_s=4e-3, step_s=5e-3)
TINY = replace(WAITING, sample_s=4e-6, sample_cpu_s=4e-6)
HEAVY = replace(WAITING, sample_s=4e-3, step_s=25e-3, batch_spread=1.0)


def test_a_dataset_that_waits_gets_more_workers_than_cores() -> None:
    sizes = autosize(WAITING, replace(BUDGET, cores=2))
    assert sizes.num_workers == 10  # 96 ms a batch, 10 ms a step
    assert sizes.worker_method == "process"
    assert sizes.iteration_s == pytest.approx(0.010, rel=0.02)


def test_a_dataset_that_computes_gets_as_many_as_the_cores_can_run() -> None:
    sizes = autosize(COMPUTING, BUDGET)
    assert sizes.num_workers == 8
    assert "cores are busy" in sizes.reasons["num_workers"]


def test_ranks_share_the_cores() -> None:
    assert autosize(COMPUTING, replace(BUDGET, ranks=4)).num_workers == 2


def test_tiny_batches_get_no_workers() -> None:
    sizes = autosize(TINY, BUDGET)
    assert sizes.num_workers == 0
    assert sizes.prefetch_factor is None
    assert not sizes.persistent_workers


def test_where_the_interpreter_is_free_a_thread_does() -> None:
    measured = replace(COMPUTING, sample_s=4e-4, sample_cpu_s=4e-4, step_s=25e-3, gil_free=True)
    sizes = autosize(measured, BUDGET)
    assert (sizes.worker_method, sizes.num_workers) == ("thread", 1)


def test_varying_batches_are_made_further_ahead() -> None:
    steady = autosize(replace(HEAVY, batch_spread=0.0), BUDGET)
    varying = autosize(HEAVY, BUDGET)
    assert steady.prefetch_factor == 2
    assert varying.num_workers * (varying.prefetch_factor or 0) > 6  # what two workers x 2 + some would have
    assert (varying.prefetch_factor or 0) > 2
    assert varying.iteration_s < steady.iteration_s * 1.1


def test_workers_and_batches_fit_the_memory() -> None:
    tight = Budget(cores=8, memory_bytes=1 * GB)
    sizes = autosize(replace(WAITING, batch_bytes=40 << 20), tight)
    assert sizes.num_workers < 10
    used = sizes.num_workers * (200 << 20) + (sizes.num_workers * (sizes.prefetch_factor or 0) + 1) * (
        40 << 20
    )
    assert used <= tight.memory_bytes
    by_rule = autosize(replace(WAITING, batch_bytes=40 << 20), tight, rule="cpu-rich")
    assert by_rule.num_workers < 32
    assert "would not fit" in by_rule.reasons["num_workers"]


def test_page_locked_memory_is_for_accelerators() -> None:
    assert not autosize(WAITING, BUDGET).pin_memory
    assert autosize(replace(WAITING, accelerator=True), BUDGET).pin_memory


def test_the_cache_is_as_large_as_keeping_pace_needs() -> None:
    assert autosize(WAITING, BUDGET).cache_bytes == 0  # ten workers keep pace
    sizes = autosize(COMPUTING, BUDGET)
    # 8 ms an iteration against a step of 5 ms: 3 of 8 batches must come from the cache.
    assert sizes.cache_bytes / COMPUTING.dataset_bytes == pytest.approx(3 / 8, abs=0.03)
    small = autosize(replace(COMPUTING, num_samples=10**9), BUDGET)
    assert 0 < small.cache_bytes <= BUDGET.memory_bytes
    assert "room" in small.reasons["cache_bytes"]


@pytest.mark.parametrize(
    ("rule", "eight", "thirty_two", "sixty_four"),
    [
        ("table", 4, 24, 48),  # S0-17
        ("cores-minus-4", 4, 24, 24),  # S0-18
        ("half", 4, 8, 8),  # S1-16
        ("80-percent-per-gpu", 6, 25, 51),  # S1-37
        ("cpu-rich", 32, 32, 32),  # S1-39
        ("memory-limited", 4, 16, 16),  # S1-40
        ("cores", 8, 32, 64),  # S3-24
        ("12-of-32", 3, 12, 24),  # S4-18
        ("16-of-32", 4, 16, 32),  # S4-19
    ],
)
def test_the_guides_rules_for_one_gpu(rule: str, eight: int, thirty_two: int, sixty_four: int) -> None:
    for cores, workers in ((8, eight), (32, thirty_two), (64, sixty_four)):
        sizes = autosize(WAITING, Budget(cores=cores, memory_bytes=512 * GB), rule=rule)
        assert sizes.num_workers == workers
        assert guide_rules.WORKERS[rule].source in sizes.reasons["num_workers"]


def test_the_guides_own_examples_for_several_gpus() -> None:
    # S1-38: 40 cores and 3 GPUs make 10 each, 64 and 4 make 12 each; S1-16: 4 each.
    for cores, ranks, workers in ((40, 3, 10), (64, 4, 12)):
        budget = Budget(cores=cores, memory_bytes=512 * GB, ranks=ranks)
        assert autosize(WAITING, budget, rule="80-percent-per-gpu").num_workers == workers
        assert autosize(WAITING, budget, rule="half").num_workers == 4


@pytest.mark.parametrize(("num_samples", "factor"), [(999, 2), (1000, 3), (5000, 3), (5001, 4)])
def test_prefetching_by_the_length_of_the_dataset(num_samples: int, factor: int) -> None:
    sizes = autosize(replace(WAITING, num_samples=num_samples), BUDGET, prefetch_rule="dataset-length")
    assert sizes.prefetch_factor == factor


def test_prefetching_by_the_number_of_workers() -> None:
    assert autosize(WAITING, BUDGET, rule="cores", prefetch_rule="workers").prefetch_factor == 8
    assert autosize(WAITING, BUDGET, prefetch_rule="default").prefetch_factor == 2


@pytest.mark.parametrize(("memory_gb", "cache_gb"), [(256, 50), (128, 20), (64, 10), (32, 5)])
def test_the_guides_table_for_the_cache(memory_gb: int, cache_gb: int) -> None:
    budget = Budget(cores=8, memory_bytes=memory_gb * GB)
    assert autosize(WAITING, budget, cache_rule="table").cache_bytes == cache_gb * GB
    assert autosize(WAITING, budget, cache_rule="half-of-memory").cache_bytes == memory_gb * GB // 2
    assert autosize(WAITING, budget, cache_rule="none").cache_bytes == 0


def test_unknown_rules_are_named_with_those_there_are() -> None:
    for argument in ("rule", "prefetch_rule", "cache_rule"):
        with pytest.raises(ValueError, match=r"no rule 'bset'.*measured"):
            autosize(WAITING, BUDGET, **{argument: "bset"})


def test_measurements_that_cannot_be_are_refused() -> None:
    with pytest.raises(ValueError, match="sample_s"):
        autosize(replace(WAITING, sample_s=float("nan")), BUDGET)
    with pytest.raises(ValueError, match="cores"):
        autosize(WAITING, replace(BUDGET, cores=0))


def test_what_is_printed_names_every_setting_and_why() -> None:
    text = str(autosize(COMPUTING, BUDGET))
    for name in ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "cache_bytes"):
        assert name in text
    assert "64.0 ms" in text


@pytest.mark.filterwarnings("ignore:This DataLoader will create")
def test_the_arguments_are_what_a_dataloader_takes() -> None:
    for measured in (TINY, COMPUTING):
        arguments = autosize(measured, BUDGET).arguments()
        torch.utils.data.DataLoader([0, 1], **arguments)  # type: ignore[arg-type]


def test_this_machine_has_a_budget() -> None:
    here = Budget.here()
    assert here.cores > 0
    assert here.memory_bytes >= 0
    assert here.ranks >= 1


seconds = st.floats(0, 10, allow_subnormal=False)


@settings(deadline=None)
@given(
    sample_s=seconds,
    share=st.floats(0, 1),
    step_s=seconds,
    spread=st.floats(0, 5),
    cores=st.floats(0.1, 256),
    memory_bytes=st.integers(0, 1 << 40),
    batch_bytes=st.integers(0, 1 << 32),
    gil_free=st.booleans(),
)
def test_any_measurement_gives_settings_that_fit(
    sample_s: float,
    share: float,
    step_s: float,
    spread: float,
    cores: float,
    memory_bytes: int,
    batch_bytes: int,
    gil_free: bool,
) -> None:
    measured = Measured(
        batch_size=8,
        sample_s=sample_s,
        sample_cpu_s=sample_s * share,
        step_s=step_s,
        batch_spread=spread,
        batch_bytes=batch_bytes,
        num_samples=1000,
        gil_free=gil_free,
    )
    sizes = autosize(measured, Budget(cores=cores, memory_bytes=memory_bytes))
    workers, factor = sizes.num_workers, sizes.prefetch_factor
    assert (factor is None) == (workers == 0)
    processes = workers if sizes.worker_method == "process" else 0
    if workers:
        assert processes * measured.worker_bytes + (workers * (factor or 0) + 1) * batch_bytes <= memory_bytes
    assert sizes.iteration_s <= (measured.cost.fetch_s + step_s) * 1.02 + 1e-3
    assert 0 <= sizes.cache_bytes <= max(memory_bytes, 0)
