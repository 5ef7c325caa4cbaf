"""The input family against runs whose truth is known."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from synthetic import DATASET, TRAIN, evidence, found, input_run, line, loader, on_accelerator, steps

from hotloop.diagnose.bottleneck import as_counted, bottleneck, verdict
from hotloop.diagnose.costs import feed_of, offers
from hotloop.diagnose.diagnose import diagnose
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.making import makes
from hotloop.findings import Place
from hotloop.fix.scene import Scene
from hotloop.flow.brief import _effect
from hotloop.measure.steps import DeviceUse, Padding, Steps


def first(run: Steps, **world: Any) -> str:
    findings = diagnose(evidence(run, **world))
    return findings[0].id if findings else ""


# -- passes over the data ------------------------------------------------------------------------------------


def passes(*waits: float, num_each: int = 25) -> Steps:
    """A run of passes over the data without workers, each with its own wait per step."""
    wait = np.repeat(waits, num_each)
    use = loader(make_s=wait, wait_s=wait, num_batches=len(wait), num_iterators=len(waits))
    use = replace(use, batches_per_epoch=float(num_each))
    phases = {"data_wait": wait, "forward": 0.001, "backward": 0.001, "optimizer": 0.001}
    return steps(phases, num_steps=len(wait), loaders=(use,))


def test_a_first_pass_that_fills_a_cache_asks_for_nothing() -> None:
    """More workers would each fill a cache of their own, and lose it with the epoch."""
    run = passes(0.05, 0.0001, 0.0001)
    findings = found(run)
    assert {item.severity for item in findings.values()} == {"info"}
    assert findings["input/cold-start"].message.startswith("The first pass over the data waits 50.0 ms")
    filling = evidence(run).first_pass
    assert bottleneck(run, filling) == "device"
    assert "the first pass over the data left out" in verdict(run, tuple(findings.values()), filling=filling)


@pytest.mark.parametrize("waits", [(0.05, 0.05, 0.05), (0.05, 0.0001, 0.05), (0.05, 0.02, 0.02)])
def test_passes_that_wait_again_are_what_they_are(waits: tuple[float, ...]) -> None:
    run = passes(*waits)
    assert found(run)["input/single-process"].severity == "high"
    assert bottleneck(run, evidence(run).first_pass) == "input"


# -- the model -----------------------------------------------------------------------------------------------


def model(run: Steps, **world: Any) -> Any:
    result = feed_of(evidence(run, **world))
    assert result is not None
    return result


def test_sleeping_work_is_hidden_by_workers_and_computing_work_is_not() -> None:
    """What only sleeps on a busy machine is not CPU saturation."""
    sleeping = model(input_run(make_s=0.064, busy_s=0.010, make_on_cpu_ratio=0.02), cores=2)
    computing = model(input_run(make_s=0.064, busy_s=0.010, make_on_cpu_ratio=1.0), cores=2)
    assert sleeping.at(8) == pytest.approx(0.0102, rel=0.05)
    assert computing.at(8) == pytest.approx((0.064 + 0.010) / 2, rel=0.05)


def test_fewest_workers_that_do_are_chosen() -> None:
    assert model(input_run(make_s=0.064, busy_s=0.040, make_on_cpu_ratio=0.0)).best_workers(32) == 2


def test_a_saving_is_never_more_than_the_wait() -> None:
    fed = model(input_run(make_s=0.05, busy_s=0.01))
    assert fed.saved_by_make(1.0) <= fed.wait_s
    assert fed.saved_by_workers(100) <= fed.wait_s


def test_torch_threads_leave_less_room_for_workers() -> None:
    run = {"facts": {"torch": {"threads": 2}}}
    one = model(input_run(make_s=0.02, busy_s=0.04)).saved_by_workers(2)
    two = model(input_run(make_s=0.02, busy_s=0.04, run=run)).saved_by_workers(2)
    assert two < one


# -- single-process, too-few-workers, slow-sample ------------------------------------------------------------


def test_waiting_in_the_training_process_asks_for_workers() -> None:
    run = input_run(
        make_s=0.064,
        busy_s=0.020,
        make_on_cpu_ratio=0.02,
        lines=[line(7, 6.0, on_cpu_ratio=0.01, nature="waiting", source="time.sleep(0.004)")],
    )
    findings = found(run)
    single = findings["input/single-process"]
    assert single.cost_s_per_step == pytest.approx(0.064, rel=0.1)
    assert single.data["num_workers"] >= 4
    assert single.where == Place(file=TRAIN, line=30, function="main")
    assert "input/slow-storage" not in findings, "a sleep is not storage"


def test_what_the_run_saw_held_open_is_told_before_workers_are_advised() -> None:
    run = input_run(make_s=0.064, busy_s=0.020, make_on_cpu_ratio=0.02)
    for held, told in (("all.h5", True), ("", False)):
        loader = replace(run.loaders[0], dataset={**run.loaders[0].dataset, "open_file": held})
        advice = found(replace(run, loaders=(loader,)))["input/single-process"].advice
        assert ("(all.h5) must not be shared by processes: open it" in advice) == told
        assert advice.startswith("Set num_workers") != told


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"option": "--num-workers"}, "--num-workers 0."),
        ({"option": "--num-workers", "given": False}, "--num-workers 0 (its default)."),
        ({"file": None}, "data.workers=0."),
        ({}, "data.workers=0 (run.yaml:4)."),
        ({"value": 3}, ""),
        ({"meaning": "epochs"}, ""),
    ],
)
def test_what_sets_the_number_that_is_to_change_is_named(more: dict[str, Any], told: str) -> None:
    note = {"meaning": "num_workers", "key": "data.workers", "value": 0, "file": "/a/run.yaml", "line": 4}
    run = input_run(make_s=0.064, busy_s=0.020, make_on_cpu_ratio=0.02)
    advice = found(run, notes={"config": [note | more]})["input/single-process"].advice
    assert advice.partition(" The number comes from ")[2] == told


def test_no_workers_are_offered_for_a_dataset_that_is_written_while_it_is_gone_through() -> None:
    run = input_run(make_s=0.064, busy_s=0.020, make_on_cpu_ratio=0.02)
    written = replace(run, loaders=(replace(run.loaders[0], dataset_written=("difficulty",)),))
    single = found(written)["input/single-process"]
    assert "num-workers" not in single.remedies
    assert single.advice.startswith("Leave num_workers=0 as long as samples are made of difficulty")


def test_a_stream_is_not_offered_other_workers() -> None:
    """Each worker reads all of a stream that does not share itself out."""
    stream = {"iterable": True}
    for run in (
        input_run(make_s=0.064, busy_s=0.020, make_on_cpu_ratio=0.02, settings=stream),
        input_run(make_s=0.064, busy_s=0.010, workers=2, make_on_cpu_ratio=0.02, settings=stream),
    ):
        findings = found(run)
        assert {"input/single-process", "input/too-few-workers"} & set(findings)
        assert all("num-workers" not in finding.remedies for finding in findings.values())


def test_computing_on_full_cores_names_the_line_first() -> None:
    run = input_run(make_s=0.08, busy_s=0.02, lines=[line(41, 7.5, source="y = slow(x)"), line(42, 0.5)])
    findings = found(run, cores=2)
    assert first(run) == "input/slow-sample"
    assert findings["input/slow-sample"].where.line == 41
    assert findings["input/slow-sample"].cost_s_per_step == pytest.approx(0.075, rel=0.05)
    # (0.08 + 0.02) / 2 cores: workers bring half of the step at most.
    assert findings["input/single-process"].cost_s_per_step <= 0.051


@pytest.mark.parametrize(
    ("drawn", "blur", "kept"),
    [
        ("torch.rand(1)", "view(image)", False),
        ("self.rng.normal()", "image.numpy()", False),
        ("0.5", "image.numpy()", True),
    ],
)
def test_what_draws_is_not_told_to_be_stored(drawn: str, blur: str, kept: bool) -> None:
    text = (
        "class Windows(Dataset):\n    def __init__(self):\n        self.x = torch.randn(9, 9)\n"
        f"    def __getitem__(self, i):\n        return self.view(self.x[i])\n"
        f"    def view(self, image):\n        image = blur(image) * {drawn}\n        return {blur}\n"
    )
    asked = Place(file=DATASET, line=5, function="Windows.__getitem__")
    work = line(7, 7.5, function="Windows.view", source="image = blur(image)", callers=(asked,))
    told = found(input_run(make_s=0.08, busy_s=0.02, lines=[work]), cores=2, sources={DATASET: text})
    assert ("store the result" in told["input/slow-sample"].advice) is kept
    assert ("before the first random draw" in told["input/slow-sample"].advice) is not kept
    assert ("bake" in told["input/slow-sample"].remedies) is kept


@pytest.mark.parametrize(
    ("source", "library", "decodes"),
    [
        ('image = Image.open(path).convert("RGB")', "", True),
        ("image = cv2.imread(path)", "", True),
        ("image = self.read(path)", "PIL.JpegImagePlugin", True),
        ("image = resize(image)", "PIL.Image", False),
    ],
)
def test_what_decodes_images_is_told_how_to_decode_less(source: str, library: str, decodes: bool) -> None:
    work = line(41, 7.5, source=source, library=library)
    slow = found(input_run(make_s=0.08, busy_s=0.02, lines=[work]), cores=2)["input/slow-sample"]
    assert slow.advice.startswith("Decode less at data.py:41") is decodes


def test_of_two_loaders_the_one_that_is_waited_for_is_told() -> None:
    """Semi-supervised: few labelled samples, read slowly, beside many unlabelled ones from workers."""
    run = input_run(make_s=0.0005, busy_s=0.01, workers=2, wait_s=0.0002, deliver_s=0.0002, num_steps=400)
    slow = line(7, 12.0, function="Labelled.__getitem__", source="rows.append(parse(line))")
    labelled = replace(
        loader(make_s=0.03, wait_s=0.03, num_batches=400, lines=[slow]),
        id=2, where=Place(file=TRAIN, line=31, function="main"),
    )  # fmt: skip
    phases = {"data_wait": 0.0302, "forward": 0.005, "backward": 0.005}
    both = steps(phases, num_steps=400, loaders=(*run.loaders, labelled))
    findings = found(both, cores=4)
    assert findings["input/single-process"].where == labelled.where
    assert findings["input/slow-sample"].where == slow.place
    assert not {"input/worker-transport", "input/too-few-workers"} & set(findings)
    assert model(both).wait_s == pytest.approx(0.03)
    # And written into its call.
    recording = evidence(both).recording
    fed = Scene.of(recording.ranks[0], recording, both, findings.values()).fed
    assert fed["num-workers"] == fed["prefetch-factor"] == 2  # which no finding asks for
    alone = steps(phases, num_steps=400, loaders=(labelled,))
    assert found(alone) and not Scene.of(recording.ranks[0], recording, alone, found(alone).values()).fed
    # As long as that one's batches come by themselves, nothing is said of it.
    assert not found(steps({**phases, "data_wait": 0.0002}, num_steps=400, loaders=run.loaders))


def drawing(*, workers: int = 0) -> Steps:
    """A line outside of making takes 35 ms of the 50 that each step waits; making a batch takes 10."""
    draws = line(24, 3.5, function="Hard.__iter__", source="yield random.choices(range(n), weights=w)")
    drawn = replace(draws, statement=Place(file=TRAIN, line=46, function="main"))
    making = [line(41, 0.8, source="y = slow(x)"), line(42, 0.2)]
    settings = {"batch_sampler": "train.Hard", "persistent_workers": workers > 0}
    return input_run(
        make_s=0.01, busy_s=0.01, wait_s=0.05 if workers == 0 else 0.036, workers=workers, lines=making,
        settings=settings, deliver_s=0.001 if workers else None, run={"lines": (drawn,)},
    )  # fmt: skip


@pytest.mark.parametrize("workers", [0, 2])
def test_a_sampler_that_works_for_every_batch_is_no_making_of_samples(workers: int) -> None:
    """Neither other workers nor cheaper samples take more away than the making of a batch."""
    found = diagnose(evidence(drawing(workers=workers), cores=4))
    costs = [item.cost_s_per_step for item in found if item.id.startswith("input/")]
    assert max(costs, default=0.0) <= 0.01


def test_two_lines_of_one_function_are_one_cause() -> None:
    smooth = [
        line(41, 3.9, function="Elastic.smooth.<locals>.<lambda>", source="f = blur(f)"),
        line(42, 1.6, function="Elastic.smooth.<locals>.<lambda>", source="return blur(g)"),
        line(42, 1.5, function="Elastic.smooth", source="return blur(g)"),
    ]
    slow = found(input_run(make_s=0.08, busy_s=0.02, lines=[*smooth, line(50, 1.0)]))["input/slow-sample"]
    assert slow.cost_s_per_step == pytest.approx(0.070, rel=0.05)
    parts = "of making a batch (49 % at line 41, 39 % at line 42), and"
    assert slow.message.startswith(f"Elastic.smooth() at data.py:41 takes 88 % {parts}")


def test_a_small_wait_is_not_worth_a_word() -> None:
    run = input_run(make_s=0.001, busy_s=0.100, lines=[line(41, 1.0)])
    assert all(item.severity == "info" for item in diagnose(evidence(run)))


def test_busy_workers_that_wait_ask_for_more() -> None:
    run = input_run(
        make_s=0.064, busy_s=0.010, workers=2, make_on_cpu_ratio=0.02, lines=[line(7, 5.0, on_cpu_ratio=0.01)]
    )
    beside = loader(id=2, role="evaluation")  # built by the same call
    few = found(replace(run, loaders=(*run.loaders, beside)))["input/too-few-workers"]
    assert re.search(r"predicted to take \S+ ms at best instead of 32.0 ms\. The same", few.advice)
    assert few.advice.endswith("builds 1 more (evaluation), which change with it.")
    assert few.data["num_workers"] >= 6
    assert few.cost_s_per_step == pytest.approx(0.022, rel=0.1)


def test_a_stream_is_offered_neither_workers_nor_a_cache() -> None:
    stream = loader(settings={"iterable": True})
    assert offers(stream, "num-workers", "cache-samples", "bake", "prefetch-factor") == ("prefetch-factor",)


def test_two_loaders_without_workers_are_one_cause() -> None:
    slow = [line(41, 2.0, on_cpu_ratio=0.01)]
    run = input_run(make_s=0.03, busy_s=0.02, make_on_cpu_ratio=0.02, phases={"data_wait": 0.06}, lines=slow)
    other = replace(run.loaders[0], id=2, where=Place(file=DATASET, line=83, function="other"))
    findings = found(replace(run, loaders=(*run.loaders, other)))
    for name in ("input/single-process", "input/slow-sample"):
        assert findings[name].cost_s_per_step == pytest.approx(0.06, rel=0.1)
    assert "Change data.py:83 too" in findings["input/single-process"].advice


def test_full_cores_are_not_told_to_add_workers() -> None:
    """Two workers that compute on two cores: the line is the cause, more workers are not the cure."""
    run = input_run(
        make_s=0.064, busy_s=0.010, workers=2, wait_s=0.027, lines=[line(7, 5.0, source="decode(x)")]
    )
    findings = found(run, cores=2)
    assert "input/too-few-workers" not in findings
    assert first(run, cores=2) == "input/slow-sample"


def test_a_busy_device_hides_the_wait() -> None:
    run = on_accelerator(
        input_run(make_s=0.064, busy_s=0.01, lines=[line(7, 5.0)]),
        device=DeviceUse(busy_ratio=0.99, idle_s_by_phase={"data_wait": 0.02}),
    )
    assert found(run, cores=8) == {}


# -- a loop that makes its own batches -----------------------------------------------------------------------


def get_batch(lines: list[Any], wait_s: float = 0.06, busy_s: float = 0.02) -> Steps:
    return steps({"data_wait": wait_s, "forward": busy_s}, lines=tuple(lines))


def test_get_batch_with_one_hot_line_names_it() -> None:
    run = get_batch(
        [
            line(18, 5.0, file=TRAIN, function="get_batch", role="input", source="x = torch.stack([...])"),
            line(20, 1.0, file=TRAIN, function="get_batch", role="input", source="return x, y"),
        ]
    )
    findings = found(run)
    assert set(findings) == {"input/slow-sample"}
    assert findings["input/slow-sample"].where == Place(file=TRAIN, line=18, function="get_batch")
    assert findings["input/slow-sample"].cost_s_per_step == pytest.approx(0.06 * 5 / 6, rel=0.01)


@pytest.mark.parametrize("library", ["queue", "threading", "multiprocessing.connection", "selectors"])
def test_a_loop_that_waits_for_a_thread_is_not_told_to_fetch_less(library: str) -> None:
    waiting = line(18, 6.0, file=TRAIN, role="input", source="x, y = batches.get()", library=library)
    told = found(get_batch([waiting]))["input/slow-sample"]
    assert told.where.line == 18
    assert "another thread or process" in told.message
    assert "fills the queue" in told.advice
    assert told.remedies == ()


@pytest.mark.parametrize(
    ("source", "wait_s", "expected"),
    [
        ("x, y = features[rows], targets[rows]", 0.00015, set()),
        ("u, r = ratings[rows].unbind(1)", 0.00015, set()),
        ("x = data[order]", 0.006, {"input/single-process"}),
        ("x = decode(data[order])", 0.00015, {"input/slow-sample"}),
    ],
)
def test_a_gather_in_memory_is_only_worth_running_beside_the_step(source, wait_s, expected) -> None:
    lines = (line(18, 6.0, file=TRAIN, role="input", source=source),)
    run = steps({"data_wait": wait_s, "forward": 10 * wait_s}, num_steps=2000, lines=lines)
    assert set(found(run)) == expected


def test_a_line_that_computes_the_step_as_well_makes_no_batch() -> None:
    made = line(18, 5.0, file=TRAIN, role="input", source="grads, loss = step(params, x[rows])")
    computes = line(18, 6.0, file=TRAIN, phase="forward", source=made.source)
    assert "input/slow-sample" in found(get_batch([made]))
    assert "input/slow-sample" not in found(get_batch([made, computes]))


def test_get_batch_without_a_hot_line_is_told_that_it_runs_alone() -> None:
    statement = Place(file=TRAIN, line=50, function="main")
    work = {"file": TRAIN, "role": "input", "statement": statement}
    lines = [line(10 + i, 1.0, function=f"part_{i}", source=f"work({i})", **work) for i in range(6)]
    findings = found(get_batch(lines))
    assert set(findings) == {"input/single-process"}
    assert findings["input/single-process"].where == statement


def test_a_batch_that_is_made_in_no_time_is_not_worth_handing_over() -> None:
    def parts(wait_s: float, samples: int = 4) -> Steps:
        one = {"role": "input", "samples": samples}
        return get_batch([line(i, 0.02, function=f"part{i}", **one) for i in range(3)], wait_s, 0.004)

    assert "input/single-process" not in found(parts(0.0004))
    assert "input/single-process" in found(parts(0.004))
    assert "input/single-process" not in found(parts(0.004, samples=3))  # it may be anything


ROLLOUT = """\
class Agent:
    def collect(self):
        obs, reward, done, info = self.track.step(self.act(obs))
        batch = self.replay.step(4)
        self.optimizer.step()
        loss, accuracy, logits = self.engine.step(batch)
"""


def rolling(step_at: int, **fields: Any) -> list[Any]:
    """What a rollout was sampled in: three functions below the line that steps, and the policy beside it."""
    above = Place(file=TRAIN, line=step_at, function="Agent.collect")
    hot = {"file": "/app/sim.py", "role": "input", "nature": "python", **fields}
    inside = [line(10 * i, 1.5, function=f"f{i}", callers=(above,), **hot) for i in range(1, 4)]
    return [*inside, line(7, 1.5, function="Agent.act", callers=(above,), **{**hot, "file": TRAIN})]


def test_data_made_ready_once_in_a_loop_without_a_loader_is_no_making_of_batches() -> None:
    made = line(12, 3.0, file=TRAIN, function="main", role="input", source="rows = parse(text)")
    wait = np.full(100, 0.0001)
    wait[60] = 3.0
    run = steps({"data_wait": wait, "forward": 0.03}, lines=(made,))
    assert not any(name.startswith("input/") for name in found(run))
    again = steps({"data_wait": 0.03, "forward": 0.03}, lines=(made,))
    assert "input/slow-sample" in found(again)


def test_what_steps_an_environment_is_never_made_ahead() -> None:
    lines = rolling(3)
    lines.append(replace(lines[0], place=replace(lines[0].place, line=11), seconds=1.2))
    findings = found(get_batch(lines), sources={TRAIN: ROLLOUT})
    assert "input/slow-sample" not in findings
    item = findings["host/python-in-step"]
    assert item.where is not None and item.where.file == "/app/sim.py"
    assert "more environments at once" in item.advice
    assert re.search(r"; \d+ % at line 10\D", item.message), item.message  # not all of it is that line's
    assert item.remedies == ()
    assert "input/single-process" not in findings


@pytest.mark.parametrize("number", [4, 5, 6])
def test_other_things_that_step_are_no_environment(number: int) -> None:
    source = ROLLOUT.splitlines()[number - 1]
    findings = found(get_batch(rolling(1)), sources={TRAIN: source})
    assert not any("no loader can make" in item.advice for item in findings.values())


PLAIN = "class Windows:\n    def __getitem__(self, i):\n        return decode(self.files[i])\n"


# -- conversions, storage, collate ---------------------------------------------------------------------------

SCALER = {"source": "x = self.scaler.transform(raw[None])", "library": "sklearn.preprocessing._data"}


def test_a_scaler_per_sample_is_named_once() -> None:
    run = input_run(
        make_s=0.08,
        busy_s=0.02,
        lines=[line(55, 6.0, **SCALER), line(56, 1.5, source="torch.FloatTensor(x)")],
    )
    findings = found(run)
    conversion = findings["input/per-sample-conversion"]
    assert first(run) == "input/per-sample-conversion"
    assert conversion.where.line == 55
    assert "scaler.transform" in conversion.message
    assert "80 % of making a batch, 100 % with the other conversions" in conversion.message
    assert "input/slow-sample" not in findings, "the same line is said once"
    assert conversion.remedies == ("convert-once", "bake")


@pytest.mark.parametrize(
    "source",
    [
        "x = torch.FloatTensor(self.rows[i].tolist())",
        "x = torch.tensor([float(v) for v in row])",
        "a = np.array(img).astype('f4')",
        "x = torch.stack([torch.tensor(row) for row in rows]).unsqueeze(0)",
    ],
)
@pytest.mark.parametrize("library", ["", "PIL.Image"])
def test_conversions_are_known_by_their_text(source: str, library: str) -> None:
    run = input_run(make_s=0.08, busy_s=0.02, lines=[line(55, 6.0, source=source, library=library)])
    assert "input/per-sample-conversion" in found(run)
    large = replace(run, loaders=(replace(run.loaders[0], sample_s=0.02),))  # the work, not the call
    assert "input/per-sample-conversion" not in found(large)


@pytest.mark.parametrize(
    ("source", "library"),
    [
        ("x = self.augment(x)", ""),
        ("x = decode(b)", "PIL.Image"),
        ("return np.asarray(im.convert('RGB').resize((64, 64)))", "PIL.Image"),
        ("x = torch.from_numpy(np.abs(np.sort(a))[:64].astype(np.float32))", ""),
        ("x.append(np.array([w[j : j + k].mean() for j in range(64)]))", "numpy._core._methods"),
        ("img = np.array(Image.open(path).convert('RGB'), dtype=np.uint8)", ""),
    ],
)
def test_other_work_is_no_conversion(source: str, library: str) -> None:
    run = input_run(make_s=0.08, busy_s=0.02, lines=[line(55, 6.0, source=source, library=library)])
    findings = found(run)
    assert "input/per-sample-conversion" not in findings
    assert findings["input/slow-sample"].where.line == 55


READ = {
    "source": "raw = self.file['x'][i]",
    "library": "h5py._hl.dataset",
    "on_cpu_ratio": 0.1,
    "nature": "waiting",
}


def test_waiting_reads_are_storage() -> None:
    run = input_run(
        make_s=0.08, busy_s=0.02, workers=2, wait_s=0.02, make_on_cpu_ratio=0.15,
        lines=[line(60, 8.0, **READ)],
        worker_stats={"read_bytes": 4e9, "rchar_bytes": 4e9, "io_wait_s": 6.0},
    )  # fmt: skip
    findings = found(run)
    assert first(run) == "input/slow-storage"
    assert "input/slow-sample" not in findings
    assert "input/too-few-workers" not in findings, "a disk does not get faster by asking it twice"


@pytest.mark.parametrize(
    "change",
    [
        {"on_cpu_ratio": 0.95, "nature": "native"},  # decoding from the page cache
        {"source": "raw = requests.get(url).content", "library": "urllib3.connectionpool"},
        {"source": "time.sleep(0.01)", "library": ""},
        {"bytes": 0},
    ],
)
def test_other_waiting_is_not_storage(change: dict[str, Any]) -> None:
    line_of = {name: value for name, value in change.items() if name != "bytes"}
    read = change.get("bytes", 4e9)
    run = input_run(
        make_s=0.08, busy_s=0.02, make_on_cpu_ratio=0.15, lines=[line(60, 8.0, **{**READ, **line_of})],
        worker_stats={"read_bytes": read, "rchar_bytes": read},
    )  # fmt: skip
    assert "input/slow-storage" not in found(run)


def test_collate_is_told_from_samples() -> None:
    run = input_run(
        make_s=0.08,
        busy_s=0.02,
        collate_s=0.06,
        settings={"collate_fn": "data.pad_all"},
        lines=[
            line(80, 6.0, function="pad_all", source="out[i, :n] = x"),
            line(20, 1.5, source="x = self.rows[i]"),
        ],
    )
    findings = found(run)
    assert first(run) == "input/slow-collate"
    assert findings["input/slow-collate"].where.line == 80
    assert findings["input/slow-collate"].cost_s_per_step == pytest.approx(0.06, rel=0.05)
    assert "input/slow-sample" not in findings


@pytest.mark.parametrize(
    ("name", "remedy"), [("data.pad_all", "batched-collate"), ("default_collate", "batched-get")]
)
def test_of_torchs_own_collate_nothing_can_be_stacked_otherwise(name: str, remedy: str) -> None:
    inside = line(40, 6.0, function=name.split(".")[-1])
    run = input_run(make_s=0.08, busy_s=0.02, collate_s=0.06, settings={"collate_fn": name}, lines=[inside])
    assert found(run)["input/slow-collate"].remedies == (remedy,)


def test_a_collate_of_a_library_is_nothing_that_the_user_can_write() -> None:
    settings = {"collate_fn": "torch_geometric.loader.dataloader.Collater"}
    run = input_run(make_s=0.08, busy_s=0.02, collate_s=0.06, settings=settings)
    assert "input/slow-collate" not in found(run)


@pytest.mark.parametrize("name", ["text.Collator", "functools.partial"])
def test_what_a_collate_object_calls_is_collate(name: str) -> None:
    run = input_run(
        make_s=0.08, busy_s=0.02, collate_s=0.078, num_iterators=4, batches_per_epoch=25.0,
        settings={"collate_fn": name},
        lines=[line(80, 6.0, function="pieces", source="ids = torch.tensor(cut(text))")],
    )  # fmt: skip
    findings = {item.id: item for item in diagnose(evidence(run, sources={DATASET: PLAIN}))}
    assert findings["input/slow-collate"].where.line == 80
    told = {"input/slow-sample", "input/repeated-work", "input/per-sample-conversion"}
    assert not told & set(findings)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("text.Collator", "Windows.__getitem__"),
        ("text.Processor", "Processor.encode"),  # that the dataset calls as well
        ("data.<lambda>", "transforms.<locals>.<lambda>"),
    ],
)
def test_a_slow_sample_is_not_taken_for_a_quick_collate(name: str, function: str) -> None:
    run = input_run(
        make_s=0.08, busy_s=0.02, collate_s=0.01, settings={"collate_fn": name},
        lines=[line(80, 8.0, function=function, source="ids = cut(self.texts[i])")],
    )  # fmt: skip
    findings = found(run)
    assert findings["input/slow-sample"].where.line == 80
    assert "input/slow-collate" not in findings


# -- epochs and workers --------------------------------------------------------------------------------------


def short_epochs(*, persistent: bool, make_s: float = 0.02, busy_s: float = 0.02) -> Steps:
    """20 epochs of 10 batches whose workers take 50 ms to start and 40 ms to stop, the first batch 60 ms
    longer.
    """
    epochs, num = 20, 200
    waits = np.full(num, 0.0005)
    waits[::10] = 0.060 + make_s
    gap = np.zeros(num)
    gap[::10] = 0.09
    use = loader(
        workers=2, make_s=make_s, wait_s=waits, num_batches=num, num_iterators=epochs,
        batches_per_epoch=10.0, settings={"persistent_workers": persistent}, iter_s=np.full(epochs, 0.05),
        shutdown_s=np.full(epochs, 0.04), first_batch_s=np.full(epochs, 0.060 + make_s), deliver_s=0.0004,
    )  # fmt: skip
    return steps(
        {"data_wait": waits, "epoch_gap": gap, "forward": busy_s},
        num_steps=num,
        loaders=(use,),
        num_epochs=epochs,
    )


def test_respawned_workers_are_told_to_stay_and_never_to_grow() -> None:
    run = short_epochs(persistent=False)
    findings = found(run)
    respawned = findings["input/respawned-workers"]
    assert first(run) == "input/respawned-workers"
    assert respawned.cost_s_per_step == pytest.approx((0.09 + 0.06) / 10, rel=0.1)
    assert "persistent_workers=True" in respawned.advice
    assert not {"input/too-few-workers", "input/cold-start"} & set(findings)
    again = replace(run.loaders[0], id=2, where=Place(file=DATASET, line=83, function="other"))
    both = found(replace(run, loaders=(run.loaders[0], again)))["input/respawned-workers"]
    assert "Change data.py:83 too" in both.advice
    assert any(text.startswith("1 more that train start theirs") for text in both.evidence)


def test_what_is_no_dataloader_is_told_nothing_that_only_a_dataloader_has() -> None:
    """fastai's makes an iterator, and its workers, anew for every epoch whatever it is told to keep."""
    run = short_epochs(persistent=False)
    assert "input/respawned-workers" not in found(replace(run, loaders=(replace(run.loaders[0], own=True),)))
    run = passes(0.05, 0.05)
    single = found(replace(run, loaders=(replace(run.loaders[0], own=True),)))["input/single-process"]
    assert single.advice.startswith("Set num_workers=2 on the loader; with them")
    assert single.remedies == ()


def test_what_changes_between_epochs_is_not_told_to_be_left_to_workers_that_stay() -> None:
    run = short_epochs(persistent=False)
    changing = replace(run, loaders=(replace(run.loaders[0], dataset_changes=("crop",)),))
    respawned = found(changing)["input/respawned-workers"]
    assert "persistent-workers" not in respawned.remedies
    assert "crop of the dataset in shared memory" in respawned.advice
    run = passes(0.05, 0.05)
    alone = replace(run, loaders=(replace(run.loaders[0], dataset_changes=("epoch",)),))
    assert "leave persistent_workers away (epoch of" in found(alone)["input/single-process"].advice


@pytest.mark.parametrize("make_s", [0.02, 0.0002])
def test_a_loader_that_is_built_anew_is_told_to_be_built_once(make_s: float) -> None:
    run = short_epochs(persistent=False, make_s=make_s, busy_s=0.002)
    (use,) = run.loaders
    anew = replace(run, loaders=(replace(use, settings={**use.settings, "rebuilt": True}),))
    assert "uild the DataLoader once" in found(anew)["input/respawned-workers"].advice
    assert "uild the DataLoader once" not in found(run)["input/respawned-workers"].advice


def test_workers_that_share_a_lock_are_not_too_few() -> None:
    lock = {"source": "with LOCK:", "library": "multiprocessing.synchronize", "nature": "waiting"}
    run = input_run(make_s=0.08, busy_s=0.02, workers=2, wait_s=0.02, lines=[line(60, 8.0, **lock)])
    findings = found(run)
    assert "input/too-few-workers" not in findings
    assert "more of them would not help" in findings["input/slow-sample"].advice


def test_workers_that_cost_more_than_they_bring() -> None:
    run = input_run(make_s=0.0004, busy_s=0.001, workers=2, wait_s=0.004, deliver_s=0.0035, batch_bytes=9.6e6)
    findings = found(run)
    transport = findings["input/worker-transport"]
    assert first(run) == "input/worker-transport"
    assert "num_workers=0" in transport.advice
    assert "no-workers" in transport.remedies
    assert transport.cost_s_per_step == pytest.approx(0.0036, rel=0.1)
    assert "input/too-few-workers" not in findings


def test_shipping_large_batches_costs_even_where_workers_pay() -> None:
    run = input_run(
        make_s=0.2, busy_s=0.06, workers=4, wait_s=0.03, deliver_s=0.03, make_on_cpu_ratio=0.3,
        batch_bytes=80e6,
    )  # fmt: skip
    transport = found(run, cores=8)["input/worker-transport"]
    assert transport.cost_s_per_step == pytest.approx(0.03, rel=0.05)
    assert "uint8" in transport.advice
    assert transport.remedies == ("ring-loader",), "without workers it would be slower"
    # Giving the last batch back belongs to it: no Python in the step, no work on the batch.
    asks = line(30, 1.0, file=TRAIN, function="main")
    asks = replace(asks, statement=asks.place)
    for at, source, role, within in (
        (30, "for x, y in loader:", "other", ""),
        (12, "def step(x, y):", "targets", ""),
        (31, "optimizer.zero_grad()", "targets", "importlib._bootstrap:zero_grad"),
    ):
        back = line(
            at, 0.008 * run.num_steps, file=TRAIN, function="main", phase="other", role=role, source=source,
            within=within,
        )  # fmt: skip
        findings = found(replace(run, lines=(asks, back)), cores=8)
        assert findings["input/worker-transport"].cost_s_per_step == pytest.approx(0.038, rel=0.05)
        assert not {"host/python-in-step", "host/recomputed-targets"} & set(findings)


def test_too_many_workers_that_start_every_epoch() -> None:
    epochs, num = 5, 100
    gap = np.zeros(num)
    gap[::20] = 1.0
    use = loader(
        workers=16, make_s=0.02, wait_s=0.0, num_batches=num, num_iterators=epochs, batches_per_epoch=20.0,
        settings={"persistent_workers": True}, iter_s=np.full(epochs, 1.0),
        first_batch_s=np.full(epochs, 0.02), deliver_s=0.0004,
    )  # fmt: skip
    run = steps({"epoch_gap": gap, "forward": 0.05}, num_steps=num, loaders=(use,))
    many = found(run)["input/too-many-workers"]
    assert many.data["num_workers"] <= 2
    assert many.cost_s_per_step == pytest.approx(0.05 * 15 / 16, rel=0.1)
    late = replace(use, iter_s=np.zeros(epochs), first_batch_s=np.full(epochs, 1.02))
    run = steps({"data_wait": gap, "forward": 0.05}, num_steps=num, loaders=(late,))
    many = found(run, cores=2)["input/too-many-workers"]  # each imports, side by side on two cores
    assert many.cost_s_per_step == pytest.approx(0.05 * 14 / 16, rel=0.1)


def test_the_training_thread_makes_a_batch_sooner_than_one_of_many_workers() -> None:
    feed = feed_of(evidence(input_run(make_s=0.8, busy_s=0.5, workers=16, wait_s=0.0)))
    assert feed is not None
    assert feed.at(0) == pytest.approx(1.3)
    crowded = replace(feed, got=0.05, main_got=0.8, make_cpu_s=0.8 * 0.05)
    assert crowded.at(0) == pytest.approx(0.5 + 0.05)
    assert "alone the training thread would make one in 50.0 ms" in makes(crowded)


def test_what_the_model_waits_for_cores_of_its_workers_is_waiting_for_data() -> None:
    """Ten workers compute on two cores: a step that would take 0.1 s takes 0.55 s, and lacks no batch."""
    hot = line(41, 40.0, function="farthest", nature="native")
    starved = evidence(input_run(make_s=5.0, busy_s=0.55, workers=10, wait_s=0.01, lines=[hot]))
    starved = replace(starved, got=2 / 11, workers_got=2 / 11)
    item = {one.id: one for one in diagnose(starved)}["input/slow-sample"]
    assert item.where == hot.place
    assert 0.3 < item.cost_s_per_step < 0.46
    assert any("for cores that its workers keep busy" in number for number in item.evidence)
    assert bottleneck(as_counted(starved)) == "input"
    others = replace(starved, got=0.9)  # its cores are free
    assert bottleneck(as_counted(others)) == "device"
    assert "input/slow-sample" not in {one.id for one in diagnose(others)}


# -- uneven batches ------------------------------------------------------------------------------------------


def uneven_run(make: np.ndarray[Any, Any], *, busy_s: float, workers: int = 2, **fields: Any) -> Steps:
    from hotloop.model.simulate import waits as replay

    waits = replay(make, np.full(len(make), busy_s), workers=workers, prefetch=fields.pop("prefetch", 2))
    waits = np.concatenate([np.zeros(len(make) - len(waits)), waits])
    use = loader(
        workers=workers, make_s=make, wait_s=waits, num_batches=len(make), deliver_s=0.0001, **fields
    )
    return steps({"data_wait": waits, "forward": busy_s}, num_steps=len(make), loaders=(use,))


def test_stragglers_are_named() -> None:
    make = np.full(400, 0.02)
    slowest = np.full(400, 0.002)
    make[::20] += 0.6
    slowest[::20] = 0.6
    lines = [line(12, 9.0), line(14, 12.0, function="Windows.fetch")]
    run = uneven_run(
        make, busy_s=0.012, slowest_sample_s=slowest, sample_s=0.001, lines=lines, slowest_lines=lines[1:]
    )
    straggling = found(run)["input/straggling-samples"]
    assert straggling.where is not None and straggling.where.line == 14
    assert first(run) == "input/straggling-samples"
    assert straggling.data["slow_batches_ratio"] == pytest.approx(0.05)
    assert straggling.share > 0.5


def test_a_deeper_queue_bridges_a_burst() -> None:
    """Every 12th batch takes 5 times as long: on average there is time enough."""
    run = uneven_run(
        BURSTS, busy_s=0.016, workers=1, prefetch=1, settings={"prefetch_factor": 1}, make_on_cpu_ratio=0.1
    )
    shallow = found(run, cores=4).get("input/shallow-prefetch")
    assert shallow is not None
    assert shallow.data["prefetch_factor"] >= 4


# -- opportunities -------------------------------------------------------------------------------------------

RANDOM = PLAIN + "    def flip(self, x):\n        return x if torch.rand(()) < 0.5 else x.flip(0)\n"


def twice(text: str) -> Evidence:
    run = input_run(
        make_s=0.08, busy_s=0.02, num_iterators=4, batches_per_epoch=25.0,
        lines=[line(3, 8.0, source="return decode(self.files[i])")],
    )  # fmt: skip
    return evidence(run, sources={DATASET: text})


def test_repeated_work_is_an_opportunity_behind_the_line() -> None:
    ids = [item.id for item in diagnose(twice(PLAIN))]
    assert "input/repeated-work" in ids
    assert ids.index("input/slow-sample") < ids.index("input/repeated-work")


@pytest.mark.parametrize("text", [RANDOM, ""])
def test_random_or_unknown_work_is_not_called_repeated(text: str) -> None:
    assert "input/repeated-work" not in [item.id for item in diagnose(twice(text))]


TENSORS = ("torchvision.transforms.transforms.ToTensor", "torchvision.transforms.transforms.Normalize")
CROP = "torchvision.transforms.transforms.RandomCrop"


@pytest.mark.parametrize(
    ("module", "transforms", "told"),
    [
        ("torchvision.datasets.mnist", TENSORS, True),
        ("torchvision.datasets.mnist", (CROP, *TENSORS), False),
        ("torchvision.datasets.mnist", ("train.mine", *TENSORS), False),
        ("torchvision.datasets.mnist", (), False),
        ("data", TENSORS, True),
        ("data", ("data.Mine",), True),  # its source was seen
        ("data", (CROP, *TENSORS), False),
        ("data", ("albumentations.core.composition.OneOf",), False),
    ],
)
def test_transforms_tell_whether_work_is_repeated(
    module: str, transforms: tuple[str, ...], told: bool
) -> None:
    run = twice(PLAIN)
    use = run.steps.loaders[0]
    facts = {**use.dataset, "inner_module": module, "inner_class": "MNIST", "transforms": list(transforms)}
    lines = () if module.startswith("torchvision") else use.lines
    steps_ = replace(run.steps, loaders=(replace(use, dataset=facts, lines=lines),))
    items = {item.id: item for item in diagnose(replace(run, steps=steps_, ranks=(steps_,)))}
    assert ("input/repeated-work" in items) is told
    if told and module.startswith("torchvision"):
        assert "(ToTensor, Normalize)" in items["input/repeated-work"].message
        assert items["input/repeated-work"].cost_s_per_step == pytest.approx(0.08, rel=0.05)


FIELDS = (
    {"path": "image", "dtype": "uint8", "bytes": 1000},
    {"path": "depth", "dtype": "float32", "bytes": 3000},
)


DEPTH = """class Windows:
    def __getitem__(self, i):
        raw = self.depth[i]
        image = load(raw)
        depth = self.load_far(i)
        return {{
            "image": {image},
            "depth": depth,
        }}

    def load_far(self, i):
        return decode(self.files[i])
"""


@pytest.mark.parametrize(
    ("image", "cost_s"),
    [("image", 0.05), ("image + depth", 0.0)],
    ids=["for the field", "read by another field"],
)
def test_unread_fields_cost_what_the_lines_for_them_alone_cost(image: str, cost_s: float) -> None:
    run = input_run(
        make_s=0.08,
        busy_s=0.02,
        unused_fields=("depth",),
        batch_fields=FIELDS,
        batch_bytes=4000.0,
        dataset={"class": "Windows", "module": "data", "len": 800, "file": DATASET, "line": 2},
        lines=[
            line(3, 2.0, source="raw = self.depth[i]"),
            line(4, 1.0, source="image = load(raw)"),
            line(5, 3.0, source="depth = self.load_far(i)"),
            line(
                12,
                2.0,
                function="Windows.load_far",
                source="return decode(self.files[i])",
                callers=(Place(file=DATASET, line=5),),
            ),
        ],
    )
    unused = found(run, sources={DATASET: DEPTH.format(image=image)})["input/unused-fields"]
    assert unused.data["byte_share"] == pytest.approx(0.75)
    assert unused.cost_s_per_step == pytest.approx(cost_s, rel=0.05)
    assert "depth" in unused.message


def test_unread_fields_of_unknown_cost_are_information() -> None:
    unknown = (*FIELDS, {"path": "1", "dtype": "float32", "bytes": None})
    run = input_run(
        make_s=0.0001, busy_s=0.1, workers=2, wait_s=0.0, unused_fields=("1",), batch_fields=unknown
    )
    assert found(run)["input/unused-fields"].severity == "info"
    run = replace(run, loaders=(replace(run.loaders[0], unused_fields=("path",)),))  # a text
    assert "input/unused-fields" not in found(run)


def padded(
    longest: float, *, real: float = 20.0, length: int = 128, forward_s: float = 0.02, **more: Any
) -> Steps:
    """Forward and backward take 3 times ``forward_s`` of 5, over sequences of ``length``."""
    fields = [{"path": name, "shape": [8, length]} for name in ("input_ids", "attention_mask", "labels")]
    padding = Padding(length=length, longest=longest, real=real, num_batches=3)
    use = loader(padding=padding, batch_fields=(*fields, *more.pop("others", ())))
    phases = {"forward": forward_s, "backward": 2 * forward_s, "optimizer": forward_s, "other": forward_s}
    return steps(phases, loaders=(use,), **more)


def test_padding_beyond_the_longest_costs_its_part_of_forward_and_backward() -> None:
    item = found(padded(39.5))["input/padding"]
    assert item.cost_s_per_step == pytest.approx(0.06 * (1 - 40 / 128))
    assert (item.severity, item.where, item.remedies) == ("high", loader().where, ())
    assert _effect(item.to_json(), (), False) == "semantic"
    assert item.message == (
        "84 % of the tokens are padding: every sequence is padded to 128, the longest of a batch has 40 on "
        "average."
    )
    assert "49 % of what is left is padding" in item.advice
    assert "what is left" not in found(padded(39.5, real=30.0))["input/padding"].advice
    asks = "def encode(x):\n    return tokenizer(x, truncation=True, padding='max_length')\n"
    for text, where in ((asks, Place(file=TRAIN, line=2)), (asks * 2, loader().where)):
        assert found(padded(39.5), sources={TRAIN: text})["input/padding"].where == where
    images = {"path": "pixel_values", "shape": [8, 1, 64, 6]}
    beside = found(padded(40.0, others=[images]))["input/padding"]
    assert beside.cost_s_per_step == pytest.approx(0.06 * (128 - 40) / (128 + 384))


@pytest.mark.parametrize(
    "run",
    [
        padded(128.0),
        padded(126.0),
        padded(9.0, length=16),  # the next multiple of 8
        padded(40.0, others=[{"path": "pixel_values", "shape": [8, 3, 224, 224]}]),
        padded(40.0, facts={"graph": {"nodes_per_backward": 1500.0}}),  # calls take it, however long
        on_accelerator(padded(40.0)),  # nobody saw the device work
        replace(padded(40.0), loaders=(loader(),)),
    ],
)
def test_padding_that_costs_nothing_is_not_mentioned(run: Steps) -> None:
    assert "input/padding" not in found(run)


def test_padding_on_a_device_that_the_run_waits_for_costs_of_its_time() -> None:
    busy = DeviceUse(busy_ratio=0.9, idle_s_by_phase={})
    cost = found(on_accelerator(padded(40.0), device=busy))["input/padding"].cost_s_per_step
    assert cost == pytest.approx((0.9 * 0.1 - 0.02) * (1 - 40 / 128))


CACHED = """from functools import lru_cache

class Windows:
    @lru_cache(maxsize={size})
    def load(self, i):
        return decode(i)
"""


@pytest.mark.parametrize(
    ("size", "function", "speaks"),
    [
        ("320", "Windows.load", True),
        ("None", "Windows.load", False),
        ("100000", "Windows.load", False),
        ("8", "Windows.__getitem__", False),  # it keeps shards, and always hits
    ],
)
def test_a_cache_smaller_than_the_epoch_is_named(size: str, function: str, speaks: bool) -> None:
    run = input_run(
        make_s=0.08, busy_s=0.02, num_iterators=4, batches_per_epoch=25.0,
        lines=[line(6, 8.0, function=function, source="return decode(i)")],
    )  # fmt: skip
    ids = [item.id for item in diagnose(evidence(run, sources={DATASET: CACHED.format(size=size)}))]
    assert ("input/cache-thrash" in ids) is speaks


def test_a_cold_first_batch_of_every_epoch() -> None:
    waits = np.full(100, 0.001)
    waits[::25] = 2.0
    use = loader(
        make_s=0.001, wait_s=waits, num_iterators=4, batches_per_epoch=25.0, first_batch_s=np.full(4, 2.0)
    )
    run = steps({"data_wait": waits, "forward": 0.05}, loaders=(use,))
    cold = found(run)["input/cold-start"]
    assert cold.cost_s_per_step == pytest.approx(0.08, rel=0.05)
    assert not cold.data["once"]


@pytest.mark.parametrize("workers", [0, 2])
def test_no_workers_that_stay_are_advised_for_a_run_that_starts_cold_once(workers: int) -> None:
    waits = np.full(100, 0.001)
    waits[0] = 2.0
    use = loader(make_s=0.001, wait_s=waits, workers=workers, first_batch_s=np.array([2.0]))
    cold = found(steps({"data_wait": waits, "forward": 0.05}, loaders=(use,)))["input/cold-start"]
    assert cold.advice.startswith("Do the one-time work")
    assert cold.remedies == ()


def test_a_sampler_that_orders_before_every_epoch_is_named() -> None:
    waits = np.full(200, 0.001)
    waits[::20] = 0.09
    use = loader(make_s=0.001, wait_s=waits, num_batches=200, num_iterators=10, first_batch_s=waits[::20])
    sorting = line(19, 0.7, file=TRAIN, function="Buckets.__iter__", phase="data_wait", role="input")
    run = steps({"data_wait": waits, "forward": 0.004}, num_steps=200, loaders=(use,), lines=(sorting,))
    cold = found(run)["input/cold-start"]
    assert cold.where == sorting.place
    assert "Buckets.__iter__() at train.py:19" in cold.message
    assert "sampler" in cold.advice
    assert cold.cost_s_per_step == pytest.approx(0.088 * 10 / 200, rel=0.05)


def test_an_iterator_for_every_batch_is_told_to_be_made_once() -> None:
    num = 40
    use = loader(
        workers=2, make_s=0.002, wait_s=0.02, num_batches=num, num_iterators=num, batches_per_epoch=1.0,
        length=100, iter_s=np.full(num, 0.02), shutdown_s=np.full(num, 0.015),
        first_batch_s=np.full(num, 0.02),
    )  # fmt: skip
    run = steps({"data_wait": 0.02, "epoch_gap": 0.035, "forward": 0.002}, num_steps=num, loaders=(use,))
    assert "next(batches)" in found(run)["input/respawned-workers"].advice
    single = replace(run, loaders=(replace(use, length=1),))
    assert "next(batches)" not in found(single)["input/respawned-workers"].advice
    grown = found(replace(run, loaders=(replace(use, anew=True),)))["input/respawned-workers"]
    assert grown.advice.startswith("Set num_workers=0:")
    assert grown.remedies == ("no-workers",)


def test_an_order_of_all_samples_for_every_batch_is_named() -> None:
    """``next(iter(loader))`` without workers: randperm over the dataset for one batch, dropped again."""
    num = 40
    use = loader(
        make_s=0.0005, wait_s=0.008, num_batches=num, num_iterators=num, batches_per_epoch=1.0, length=6250,
        first_batch_s=np.full(num, 0.008),
    )  # fmt: skip
    asking = line(26, 0.3, file=TRAIN, function="main", role="input", source="x, y = next(iter(loader))")
    asking = replace(asking, within="torch.utils.data.dataloader:DataLoader.__iter__")
    dropping = replace(asking, phase="other", role="other", seconds=0.04)
    phases = {"data_wait": 0.008, "other": 0.001, "forward": 0.001, "backward": 0.001}
    run = steps(phases, num_steps=num, loaders=(use,), lines=(asking, dropping))
    findings = found(run)
    anew = findings["input/iterator-per-step"]
    assert anew.where == asking.place
    assert anew.cost_s_per_step == pytest.approx(0.0075, rel=0.01)
    assert "next(batches)" in anew.advice
    assert "host/python-in-step" not in findings
    slow = steps(
        {**phases, "data_wait": 0.03}, num_steps=num, loaders=(replace(use, make_s=np.full(num, 0.03)),)
    )
    assert "input/single-process" not in found(slow), "workers would make batches that nobody takes"
    for kept in ({"num_iterators": 1}, {"length": 1}, {"length": None}, {"anew": True}):
        assert "input/iterator-per-step" not in found(replace(run, loaders=(replace(use, **kept),)))


# -- a machine that others use too ---------------------------------------------------------------------------


def crowded(pid: int, share: float) -> dict[int, dict[str, Any]]:
    """A process that ran this share of the time it could, over 100 samples."""
    seconds = np.arange(0.0, 50.0, 0.5)
    return {pid: {"t_s": seconds, "main_cpu_s": seconds * share, "core_wait_s": seconds * (1 - share)}}


CROWDED_LINE = line(7, 6.0, on_cpu_ratio=1.0, source="rows.append(compute(frame))")


def test_work_that_others_hold_up_is_not_taken_for_waiting() -> None:
    run = input_run(make_s=0.08, busy_s=0.02, make_on_cpu_ratio=1.0, lines=[CROWDED_LINE])
    busy = model(run, cores=2, process_system=crowded(100, 0.2))
    assert busy.computing_ratio == pytest.approx(1.0)
    assert busy.make_cpu_s == pytest.approx(0.2 * 0.08), "of the time it computed it had a core for a fifth"
    findings = found(run, cores=2, process_system=crowded(100, 0.2))
    assert findings["input/single-process"].data["num_workers"] <= 2
    assert "waiting" not in findings["input/slow-sample"].advice


def test_a_batch_that_is_made_as_fast_as_handed_over_needs_no_workers() -> None:
    quiet = input_run(make_s=0.0007, busy_s=0.002)
    assert "input/single-process" not in found(quiet, cores=8)
    # Handing over waits for a core as well.
    held_up = input_run(make_s=0.0018, busy_s=0.005)
    assert "input/single-process" in found(held_up, cores=8)
    assert "input/single-process" not in found(held_up, cores=8, process_system=crowded(100, 0.35))


def beside_others(run: Steps, *, others: float, got: float) -> dict[str, Any]:
    """Samples of a machine of two cores: others keep so many busy, the run's main thread gets this share."""
    at = np.arange(0.0, run.wall_s, 0.25)
    own = {"t_s": at, "cpu_ratio": np.ones(len(at)), "main_cpu_s": at * got, "core_wait_s": at * (1 - got)}
    machine = {"t_s": at, "cpu_ratio": np.full(len(at), min(2.0, 1 + others) / 2)}
    return {"process_system": {run.pid: own}, "system": machine, "machine": {"cpu_count": 2}}


def test_starting_workers_that_wait_for_each_other_costs_what_it_takes() -> None:
    run = short_epochs(persistent=False)
    own = found(run, **beside_others(run, others=0.1, got=0.5))["input/respawned-workers"]
    alone = found(run)["input/respawned-workers"]
    assert own.cost_s_per_step == pytest.approx(alone.cost_s_per_step, rel=0.01)
    assert not any("other programs" in text for text in own.evidence)


# -- what is not the dataset's doing -------------------------------------------------------------------------


def test_writing_large_batches_to_fresh_shared_memory_is_transport() -> None:
    run = input_run(
        make_s=0.12, busy_s=0.01, workers=2, collate_s=0.118, batch_bytes=48e6,
        settings={"collate_fn": "torch.utils.data._utils.collate.default_collate"}, deliver_s=0.005,
    )  # fmt: skip
    findings = found(run, cores=8)
    assert "input/slow-collate" not in findings
    transport = findings["input/worker-transport"]
    assert transport.cost_s_per_step == pytest.approx(0.05, rel=0.15)
    assert "fresh shared memory" in transport.message


def test_a_crowd_is_not_blamed_on_the_transport() -> None:
    """Batches lie ready, but after each the process waits for a core."""
    run = input_run(make_s=0.015, busy_s=0.07, workers=1, wait_s=0.03, deliver_s=0.03, make_on_cpu_ratio=0.1)
    assert "input/worker-transport" in found(run)
    assert "input/worker-transport" not in found(run, process_system=crowded(100, 0.15))


def test_a_line_without_its_text_is_named_by_its_place() -> None:
    """A killed run may have left no source."""
    nameless = line(55, 6.0, library="sklearn.preprocessing._data")
    findings = found(input_run(make_s=0.08, busy_s=0.02, lines=[nameless]))
    assert "The line at data.py:55 converts" in findings["input/per-sample-conversion"].message
    assert "«»" not in " ".join(text for one in findings.values() for text in (one.message, *one.evidence))


def test_sleep_is_waiting_however_crowded_the_machine_is() -> None:
    sleeping = line(7, 6.0, on_cpu_ratio=0.2, nature="waiting", source="time.sleep(self.gap)")
    run = input_run(make_s=0.08, busy_s=0.02, make_on_cpu_ratio=0.2, lines=[sleeping])
    findings = found(run, cores=2, process_system=crowded(100, 0.2))
    assert "Take the waiting out" in findings["input/slow-sample"].advice


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("with zipfile.ZipFile(self.path) as archive:", True),
        ("con = sqlite3.connect(self.path)", True),
        ("image = archive.read(name)", False),
    ],
)
def test_what_is_opened_for_every_sample_is_to_be_kept_open(source: str, told: bool) -> None:
    opening = line(7, 6.0, source=source, nature="python")
    item = found(input_run(make_s=0.08, busy_s=0.02, lines=[opening]))["input/slow-sample"]
    assert ("Open once" in item.advice) == told


def test_ranks_of_a_machine_share_its_cores() -> None:
    run = evidence(input_run(make_s=0.02, busy_s=0.02), cores=2)
    assert "input/single-process" in {item.id for item in diagnose(run)}
    other = replace(run.process, pid=run.process.pid + 1, rank=1)
    recording = replace(run.recording, ranks=(run.process, other))
    ranks = (run.steps, replace(run.steps, pid=other.pid, rank=1))
    both = replace(run, recording=recording, ranks=ranks)
    assert both.rank_cores == 1 and "input/single-process" not in {item.id for item in diagnose(both)}
    assert replace(both, others_cores=1.0).rank_cores == 0.5
    assert replace(run, recording=replace(run.recording, num_beside=1.0)).rank_cores == 1


# -- loaders that a framework builds -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("by", "words"),
    [
        ("", "Set num_workers=2 and persistent_workers=True on the DataLoader;"),
        ("lightning.pytorch.trainer.trainer:Trainer.fit", "Set num_workers=2 and persistent_workers=True on"),
        (
            "timm.data.loader:create_loader",
            "Set num_workers=2 and persistent_workers=True on the DataLoader that create_loader() builds;",
        ),
        (
            "transformers.trainer:Trainer.train",
            "Set dataloader_num_workers=2 and dataloader_persistent_workers=True in TrainingArguments;",
        ),
        ("ultralytics.cfg:entrypoint", "Set workers=2 in train() or on the command line of yolo;"),
    ],
)
def test_advice_names_arguments_as_the_framework_that_builds_the_loader_takes_them(by, words) -> None:
    maker = "create_loader" if "timm" in by else ""
    use = loader(make_s=0.02, wait_s=0.02, by=by, maker=maker)
    phases = {"data_wait": 0.02, "forward": 0.001, "backward": 0.001, "optimizer": 0.001}
    advice = found(steps(phases, loaders=(use,)))["input/single-process"].advice
    assert advice.startswith(words)


# -- silence -------------------------------------------------------------------------------------------------

EVEN = 0.02 + 0.002 * np.random.default_rng(1).random(400)
BURSTS = np.where(np.arange(400) % 12 == 0, 0.060, 0.010)
FADES = np.where(np.arange(100) == 0, 0.4, 0.001)
ASKS = line(36, 8.0, file=TRAIN, function="main", source="for x, y in loader:", library="torch.utils.data")
ASKED = line(36, 8.0, file=TRAIN, function="main", role="input", statement=ASKS.place)
SILENT: dict[str, tuple[str, Steps, dict[str, Any]]] = {
    "shipping costs more than making": (
        "input/single-process", input_run(make_s=0.002, busy_s=0.004, batch_bytes=60e6), {"cores": 8},
    ),
    "idle workers": (
        "input/too-few-workers",
        input_run(make_s=0.010, busy_s=0.050, workers=4, wait_s=0.010, make_on_cpu_ratio=0.1), {},
    ),
    "idle workers that cost nothing": (
        "input/too-many-workers", input_run(make_s=0.01, busy_s=0.05, workers=16, wait_s=0.0), {},
    ),
    "persistent workers": ("input/respawned-workers", short_epochs(persistent=True), {}),
    "one epoch": (
        "input/respawned-workers",
        input_run(make_s=0.02, busy_s=0.02, workers=2, iter_s=np.array([0.5]), first_batch_s=np.array([0.1])),
        {},
    ),
    "even samples": (
        "input/straggling-samples",
        uneven_run(EVEN, busy_s=0.004, slowest_sample_s=EVEN / 8, sample_s=0.001), {},
    ),
    "a deep queue": (
        "input/shallow-prefetch",
        uneven_run(BURSTS, busy_s=0.016, workers=1, prefetch=8, settings={"prefetch_factor": 8}), {},
    ),
    "a first batch that fades in the run": (
        "input/cold-start",
        steps(
            {"data_wait": FADES, "forward": 0.05},
            loaders=(loader(make_s=0.001, wait_s=FADES, first_batch_s=np.array([0.4])),),
        ),
        {},
    ),
    "a slow sampler": ("input/worker-transport", drawing(workers=2), {"cores": 4}),
    "the line that asks for the batch": (
        "input/slow-sample",
        input_run(
            make_s=0.08, busy_s=0.02, lines=[ASKS, line(9, 1.0, source="x = load(i)")],
            run={"lines": (ASKED,)},
        ),
        {},
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", SILENT)
def test_a_finding_is_silent_where_its_advice_would_not_help(name: str) -> None:
    finding, run, world = SILENT[name]
    assert finding not in found(run, **world)
