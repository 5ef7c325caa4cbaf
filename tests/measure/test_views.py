"""The views beside the table: sites, settings, facts, start-up, losses, pauses, compiles, modules."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from tests.scenarios.builder import MS, Script
from tests.scenarios.loops import PLAIN, epochs_with_evaluation

from hotloop.measure.measure import measure
from hotloop.measure.steps import core_time_got
from hotloop.record import rows as row


def trained(*args, **wanted):
    """What is measured of ``trained_script``."""
    return measure(trained_script(*args, **wanted).process())


def trained_script(prepare=None, each=None, steps=20, source=PLAIN):
    """Twenty plain steps; ``prepare(run)`` before the first, ``each(run, step)`` before every backward."""
    run = Script(source)
    if prepare:
        prepare(run)
    run.at("fetch").iterate(1)
    for step in range(steps):
        run.at("fetch").fetch(1, 2)
        run.at("forward").forward(3)
        if each:
            each(run, step)
        run.at("backward").backward(4)
        run.at("update").update(1)
    run.at("fetch").fetch(1, 0.1, end=True)
    return run


def test_sites_name_operation_place_and_exact_time():
    def each(run, step):
        run.at("print").call(row.SYNC, 0.5, obj=row.SYNC_OPS.index("item"))
        with run.at("fetch"):
            run.call(row.TRANSFER, 0.25, obj=1, value=1000, flags=row.TRANSFER_PINNED if step % 2 else 0)

    steps = trained(each=each)
    (sync,), (transfer,) = steps.sites["sync"], steps.sites["transfer"]
    assert (sync.operation, sync.count, sync.place.line) == ("item", 20, 13)
    assert sync.seconds == pytest.approx(0.010)
    assert sync.in_step
    assert (transfer.operation, transfer.num_bytes) == ("host-to-device", 20_000)
    assert transfer.flags["pinned"] == pytest.approx(0.5)
    assert steps.span_totals["sync"] == pytest.approx(0.010)
    assert steps.facts["accelerator"] is True


def test_sites_sort_by_time_and_know_what_lies_outside_the_step():
    steps = measure(epochs_with_evaluation().process)
    (save,) = steps.sites["checkpoint"]
    assert (save.operation, save.count, save.in_step) == ("write", 3, False)
    assert [c.after_step for c in steps.checkpoints] == [20, 40, 60]
    assert [e.after_step for e in steps.evaluations] == [20, 40, 60]
    assert all(c.seconds == pytest.approx(0.030) for c in steps.checkpoints)


def test_a_sync_inside_logging_is_a_sync():
    def each(run, step):
        with run.at("print"), run.span(row.LOG, obj=0):
            run.work(1)
            run.call(row.SYNC, 2)

    steps = trained(each=each)
    assert steps.span_totals["logging"] == pytest.approx(0.020)
    assert steps.span_totals["sync"] == pytest.approx(0.040)


def test_settings_in_effect_beside_what_was_configured():
    def prepare(run):
        run.note("loader", id=1, where=0, num_workers=2, batch_size=32, pin_memory=False)
        run.note("torch", when="first_step", cudnn_benchmark=False, deterministic_algorithms=False, threads=2)
        run.note("optimizer", id=1, lr=0.1, **{"class": "SGD"})
        config = {"source": "yaml", "file": "/c.yaml", "line": 12, "key": "data.num_workers"}
        run.note("config", meaning="num_workers", value=24, given=None, **config)
        args = {"source": "argparse", "file": None, "line": None}
        run.note("config", meaning="num_workers", key="num_workers", value=4, given=False, **args)
        run.note("config", meaning="lr", key="lr", value=0.3, given=True, **args)
        run.note("config", meaning="batch_size", key="val_batch_size", value=99, given=True, **args)

    settings = {s.name: s for s in trained(prepare).settings}
    workers = settings["num_workers"]
    assert (workers.in_effect, workers.configured, workers.where) == (2, 24, "/c.yaml:12")
    assert (settings["lr"].configured, settings["lr"].where) == (0.3, "--lr")
    assert settings["batch_size"].configured is None
    assert settings["threads"].in_effect == 2


def test_facts_merge_notes_and_tell_the_accelerator():
    def prepare(run):
        run.note("torch", when="first_step", threads=8, cudnn_benchmark=False)
        run.note("torch", when="exit", threads=4)
        run.note("module", id=1, devices=["cuda:0"])
        run.note("warning", text="cannot look inside")

    facts = trained(prepare).facts
    assert (facts["torch"]["threads"], facts["torch"]["cudnn_benchmark"]) == (4, False)
    assert facts["accelerator"] is True
    assert facts["warnings"] == ["cannot look inside"]
    assert trained().facts["accelerator"] is False


def test_startup_parts_add_up_to_the_time_before_the_first_batch():
    def prepare(run):
        run.work(30)
        run.note("import", module="torch", start_ns=run.now, end_ns=run.now + 500 * MS)
        run.now += 500 * MS
        run.at(2).work(200)
        run.work(270)

    steps = trained(prepare)
    parts = steps.startup
    assert parts["interpreter"] == pytest.approx(0.030)
    assert parts["import torch"] == pytest.approx(0.500)
    assert parts["other imports"] == pytest.approx(0.200, abs=0.02)
    before = ("interpreter", "import torch", "other imports", "setup")
    assert sum(parts[p] for p in before) == pytest.approx(steps.totals["startup"]) == pytest.approx(1.0)
    assert parts["first batch"] == pytest.approx(0.0021)


def test_an_evaluation_before_training_is_no_part_of_startup():
    def prepare(run):
        run.work(200)
        for _ in range(30):
            run.evaluate(20)

    steps = trained(prepare)
    assert steps.totals["evaluation"] > 0.5
    assert sum(steps.startup.values()) - steps.startup["first batch"] == pytest.approx(
        steps.totals["startup"]
    )


def test_compile_in_the_first_steps_is_startup_later_it_is_told():
    def each(run, step):
        if step in (0, 12):
            with run.span(row.FORWARD, obj=1, flags=15), run.span(row.COMPILE):
                run.work(100)

    steps = trained(each=each)
    assert steps.phase("startup")[0] == pytest.approx(0.100)
    assert steps.phase("forward")[12] == pytest.approx(0.103)
    assert steps.compile_s == pytest.approx(0.200)
    assert steps.compiles_at == (0, 12)
    assert not steps.steady[12]
    assert steps.steady[13:].all()


def test_losses_are_decoded_with_their_steps():
    def each(run, step):
        bits = struct.unpack("<I", struct.pack("<f", math.nan if step == 7 else step / 2))[0]
        run._emit(row.LOSS, run.now, 0, value=bits)

    steps = trained(each=each)
    assert steps.losses[6] == 3.0
    assert math.isnan(steps.losses[7])
    assert steps.loss_steps.tolist() == list(range(20))


def test_garbage_collections_are_counted_where_they_are():
    def each(run, step):
        run._emit(row.GC, run.now - MS, MS, value=2)

    steps = trained(each=each)
    assert (steps.gc_count, steps.gc_s) == (19, pytest.approx(0.019))
    assert steps.span_totals["forward"] == pytest.approx(0.060)


def test_a_collection_between_phases_is_of_what_runs_there():
    def each(run, step):
        with run.at("print"):
            start = run.now
            run.work(40)
            run._emit(row.GC, start + 5 * MS, 15 * MS, value=2)

    steps = trained(each=each)
    assert steps.span_totals["logging"] == pytest.approx(0.8, rel=0.1)
    assert steps.gc_s_by_phase["logging"] == pytest.approx(19 * 0.015)


def test_module_shares_of_the_window():
    def prepare(run):
        for number, (name, depth) in enumerate((("net", 0), ("net.a", 1), ("net.b", 1)), 1):
            run.note("name", id=number, name=name, depth=depth, num_params=5, **{"class": "Linear"})
        for number, ms in ((2, 6), (3, 2), (1, 8)):
            run._emit(row.MODULE, run.now, ms * MS, obj=number)
        for number, ms in ((2, 3), (3, 1)):
            run._emit(row.MODULE, run.now, ms * MS, obj=number, flags=row.MODULE_BACKWARD)

    shares = {m.name: (m.forward_share, m.backward_share) for m in trained(prepare).modules}
    assert shares == {"net": (1.0, 1.0), "net.a": (0.75, 0.75), "net.b": (0.25, 0.25)}


@pytest.mark.parametrize(
    ("told", "exchange_ms"),
    [
        ({}, 2.5),
        ({"avg_backward_compute_s": 3.5e-3}, 0.5),
        ({"avg_backward_compute_s": 5e-3}, 0),
        ({"iterations": 9}, 0),
    ],
)
def test_what_backward_waits_for_other_ranks_is_a_collective_on_a_cpu(told, exchange_ms):
    means = {"avg_backward_comm_s": 3e-3, "overlap_s": 5e-4, "avg_backward_compute_s": 1e-3, "iterations": 20}
    steps = trained(lambda run: run.note("ddp", **{**means, **told}))
    assert steps.collective_in_backward_s * 1e3 == pytest.approx(exchange_ms)
    assert steps.per_step("collective") * 1e3 == pytest.approx(exchange_ms)
    assert steps.per_step("backward") * 1e3 == pytest.approx(4 - exchange_ms)
    assert steps.phases.sum() == pytest.approx((steps.end_s - steps.start_s).sum())
    device = {"id": 1, "devices": ["cuda:0"]}
    steps = trained(lambda run: (run.note("ddp", **means), run.note("module", **device)))
    assert (steps.per_step("collective"), steps.collective_in_backward_s) == (0.0, pytest.approx(2.5e-3))


def test_slow_first_steps_are_warm_up():
    run = Script(PLAIN)
    run.at("fetch").iterate(1)
    for step in range(100):
        run.fetch(1, 2)
        run.step(300 / (step + 1) if step < 4 else 3)
    steady = measure(run.process()).steady
    assert steady.tolist() == [False] * 4 + [True] * 96


def test_the_loop_in_source_is_named():
    loop = trained().source_loop
    assert (loop.line, loop.function) == (4, "<module>")


def test_an_average_kept_by_state_dict_is_no_checkpoint():
    def each(run, step):
        with run.at("val"):
            run.call(row.SAVE, 0.5, obj=2)
            run.work(6)

    steps = trained(each=each)
    assert steps.checkpoints == ()
    assert steps.span_totals["checkpoint"] == 0
    assert steps.span_totals["other"] == pytest.approx(0.130, rel=0.01)


def test_what_a_save_gathers_belongs_to_it():
    def each(run, step):
        if step == 9:
            with run.at("save"):
                run.call(row.SAVE, 1, obj=2)
                run.work(2)
                run.call(row.SAVE, 30, obj=1)

    steps = trained(each=each)
    assert [c.after_step for c in steps.checkpoints] == [9]
    assert steps.span_totals["checkpoint"] == pytest.approx(0.033)


@pytest.mark.parametrize(("share", "punctual_us"), [(1.0, 20), (0.2, 20), (0.2, 130)])
def test_the_interpreter_is_told_from_long_calls_also_on_a_crowded_machine(share, punctual_us):
    """Whatever a line does, a sample is late where the thread had no core when it was due, and somewhat later
    where others filled the caches.
    """

    def each(run, step):
        turns = step % 5 < 5 * share  # in these the thread has a core
        run.at("print").work(10, late_us=punctual_us if turns else 8000)
        run.at("save").work(10, late_us=20 if turns and step % 20 == 0 else 3000)

    run = trained_script(each=each, steps=200)
    seconds = np.linspace(0, 8, 9)
    columns = {"t_s": seconds, "main_cpu_s": seconds * share, "core_wait_s": seconds * (1 - share)}
    got = {run.pid: core_time_got([columns])}
    assert got == {run.pid: pytest.approx(share)}
    told = {line.place.line: line.nature for line in measure(run.process(), got=got).lines}
    assert told[run.line("print")] == "python"
    assert told[run.line("save")] == "native"


def test_a_line_knows_how_it_is_reached():
    def each(run, step):
        run.at("print", "save", "evaluate").work(5)

    lines = trained(each=each).lines
    inner = next(line for line in lines if line.callers)
    assert [place.line for place in inner.callers] == [14, 13]
