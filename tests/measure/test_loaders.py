"""What is said about each DataLoader."""

from __future__ import annotations

from textwrap import dedent

import numpy as np
import pytest
from tests.scenarios.builder import FILE, MS, Script
from tests.scenarios.loops import PLAIN, epochs_with_evaluation

from hotloop.measure.measure import measure
from hotloop.measure.steps import LoaderUse, Padding
from hotloop.record import rows as row
from hotloop.record.recording import ROW_DTYPE, Process


def run_with_workers(*, num_workers=2, batches=20, make_ms=30, wait_ms=5.0, ready=4, slowest_at_ms=1):
    """Two worker processes make batches; the loop waits, finds every second one ready."""
    run = Script(PLAIN)
    run.note(
        "loader", id=1, where=0, batch_size=8, num_workers=num_workers, dataset={"class": "Set", "len": 160}
    )
    run.at("fetch").iterate(1, ms=20)
    run.notes["iterator"][-1]["workers"] = [201, 202]
    for i in range(batches):
        with run.at("fetch"):
            run.fetch(1, wait_ms if i % 2 else 0.5, samples=8, workers=True, ready=0 if i % 2 else ready)
        run.step(5, 5, 1)
    begin = run.start_ns + 20 * MS
    for index, pid in enumerate((201, 202)):
        rows = []
        for batch in range(batches // 2):
            start = begin + batch * 13 * MS
            rows.append((start, make_ms * MS // 3, 4096, 0, index + 1, 8, 0, row.MAKE))
            rows.append((start + make_ms * MS // 3 - MS, MS, 0, 0, 0, 0, 0, row.COLLATE))
            rows.append((start + slowest_at_ms * MS, 5 * MS, 7, 0, 0, 0, 0, row.SLOWEST))
            rows.append((start + 6 * MS, 10 * MS, 1, 0, 900, 20, 0, row.SAMPLE))
        notes = {
            "stack": [
                {"id": 1, "frames": [["/data.py", 12, "__getitem__", 10]], "library": ["PIL.Image:rotate"]}
            ],
            "worker_stat": [{"worker": index, "loader": 1, "read_bytes": 100, "rchar": 200, "cpu_s": 1.5}],
            "source": [{"file": "/data.py", "text": "\n" * 11 + "    return image.rotate(3)\n"}],
        }
        run.workers.append(
            Process(
                pid=pid, ppid=run.pid, role="worker", rank=0, start_ns=run.start_ns, end_ns=run.now,
                rows=np.array(sorted(rows), ROW_DTYPE), notes=notes,
            )
        )  # fmt: skip
    return measure(run.process()).train_loader()


def test_batches_made_in_workers():
    loader = run_with_workers()
    assert loader.num_batches == 20
    assert loader.num_worker_processes == 2
    assert loader.make_s == pytest.approx(np.full(20, 0.010))
    assert loader.collate_s == pytest.approx(0.001)
    assert loader.sample_s == pytest.approx(0.009 / 8)
    assert loader.slowest_sample_s == pytest.approx(np.full(20, 0.005))
    assert loader.batch_bytes == 4096
    assert loader.make_on_cpu_ratio == pytest.approx(0.9)


def test_lines_of_workers_are_added_up_with_their_text():
    (line,) = run_with_workers().lines
    assert (line.place.file, line.place.line, line.place.function) == ("/data.py", 12, "__getitem__")
    assert line.seconds == pytest.approx(0.2)
    assert line.num_samples == 20
    assert line.library == "PIL.Image"
    assert line.source == "return image.rotate(3)"


def test_lines_of_the_slowest_samples():
    assert run_with_workers().slowest_lines == ()  # all samples of the timer came after them
    (line,) = run_with_workers(slowest_at_ms=2).slowest_lines
    assert (line.place.line, line.num_samples) == (12, 20)


def test_only_a_full_queue_tells_what_delivery_costs():
    loader = run_with_workers()
    assert loader.deliver_s == pytest.approx(0.0005)
    assert np.nanmean(loader.ready) == 2.0
    assert run_with_workers(ready=2).deliver_s is None  # while workers compute, a batch may wait in them


def test_workers_are_busy_for_a_share_of_the_span():
    loader = run_with_workers()
    span = 0.020 + 10 * 0.0055 + 20 * 0.011
    assert loader.busy_ratio == pytest.approx(0.2 / (2 * span), rel=0.01)


def test_statistics_of_workers_are_summed():
    stats = run_with_workers().worker_stats
    assert stats == {"read_bytes": 200.0, "rchar_bytes": 400.0, "cpu_s": 3.0}


def test_roles_epochs_and_first_batches():
    steps = measure(epochs_with_evaluation(epochs=3, steps=20).process)
    train, val = sorted(steps.loaders, key=lambda loader: loader.id)
    assert (train.role, val.role) == ("train", "evaluation")
    assert (train.num_iterators, train.batches_per_epoch, train.num_batches) == (3, 20, 60)
    assert train.iter_s == pytest.approx(np.full(3, 0.002))
    assert train.first_batch_s == pytest.approx(np.full(3, 0.001))
    assert val.num_batches == 30
    assert steps.num_epochs == 3


def test_an_epoch_that_the_end_of_the_run_cut_short_is_no_epoch():
    run = Script(PLAIN)
    for epoch, steps in enumerate((20, 20, 5)):
        run.at("fetch").iterate(epoch + 1, loader=1)
        for _ in range(steps):
            run.at("fetch").fetch(epoch + 1, 1)
            run.step(3, 3, 1)
    loader = measure(run.process()).train_loader()
    assert (loader.num_iterators, loader.batches_per_epoch) == (3, 20)


def test_batches_made_in_the_main_process_belong_to_the_loader_that_asked():
    run = Script(PLAIN)
    for loader in (1, 2):
        run.note("loader", id=loader, where=0, num_workers=0)
    for _ in range(10):
        for iterator, loader, call in ((1, 1, "fetch"), (2, 2, "val")):
            with run.at(call):
                run.iterate(iterator, loader)
                with run.span(row.FETCH, obj=iterator, value=4), run.span(row.MAKE, extra=4):
                    run.work(10 * loader)
            if iterator == 1:
                run.step(3, 3, 1)
            else:
                run.evaluate(3)
    steps = measure(run.process())
    train, val = sorted(steps.loaders, key=lambda loader: loader.id)
    assert train.make_s == pytest.approx(np.full(10, 0.010))
    assert val.make_s.mean() == pytest.approx(0.020)
    assert val.role == "evaluation"


def test_a_loader_that_nobody_iterates_is_unused():
    run = Script(PLAIN)
    run.note("loader", id=5, where=0, num_workers=3)
    (loader,) = measure(run.process()).loaders
    assert (loader.role, loader.settings["num_workers"]) == ("unused", 3)


def built_by_a_package(source: str, *notes: dict[str, object]) -> LoaderUse:
    """The loader that drives training, of one that a package built at the line that trains."""
    run = Script(dedent(source))
    with run.at("train"):
        site = run.site()
    made = {"where": site, "num_workers": 0, "dataset": {"class": "Windows", "len": 80}}
    for number, note in enumerate(notes, 1):
        with run.at(note.pop("at", "train")):
            run.note("loader", id=number, **{**made, "where": run.site(), **note})
    run.note("iterator", id=1, loader=len(notes))
    with run.at("train"):
        run.iterate(1, len(notes))
        for _ in range(10):
            run.fetch(1, 1)
            run.train(1, 1, 1)
    driving = measure(run.process()).train_loader()
    assert driving is not None
    return driving


def test_a_loader_that_a_package_made_from_one_of_the_users_is_placed_there():
    source = """
        loader = DataLoader(data)  # built
        other = DataLoader(more)  # other
        trainer.fit(model, loader)  # train
    """
    by = {"by": "lightning.pytorch.trainer.trainer:Trainer.fit"}
    others = {"at": "other", "dataset": {"class": "Windows", "len": 8}}
    use = built_by_a_package(source, {"at": "built"}, others, dict(by))
    assert (use.where.line, use.by) == (2, by["by"])
    use = built_by_a_package(source, {"at": "built"}, {"at": "other"}, dict(by))
    assert use.where.line == 4  # which of the two cannot be told
    use = built_by_a_package(source, {"at": "built"}, others, {"where": 0})
    assert use.where.line == 2  # in a process that the package started, below no line of the user's


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        ("one = Seq2SeqTrainingArguments('out')", 2),
        ("one, two = TrainingArguments(), TrainingArguments()", 3),
    ],
)
def test_a_loader_that_a_framework_builds_is_placed_where_its_arguments_are(arguments, line):
    source = f"""
        {arguments}
        Trainer(model, one).train()  # train
    """
    by = {"by": "transformers.trainer:Trainer.train"}
    assert built_by_a_package(source, dict(by), dict(by)).where.line == line


def mask_of(path: str, shape: list[int], longest: object, real: object) -> dict[str, object]:
    return {"path": f"{path}.attention_mask", "shape": shape, "longest": longest, "real": real}


@pytest.mark.parametrize(
    ("batches", "shown"),
    [
        ([[mask_of("a", [8, 128], 30, 160)], [mask_of("a", [4, 128], 50, 120)]], (128, 40.0, 25.0, 2)),
        ([[mask_of("a", [8, 64], 30, 160), mask_of("b", [8, 64], 20, 80)]], (64, 20.0, 10.0, 1)),
        ([[mask_of("a", [8, 128], 30, 160)], [mask_of("a", [8, 64], 30, 160)]], None),
        ([[mask_of("a", [8, 0], 0, 0), mask_of("b", [8], 1, 1), mask_of("c", [8, 9], None, 1)]], None),
    ],
)
def test_what_masks_of_one_length_leave_out(batches, shown):
    run = Script(PLAIN)
    run.note("loader", id=1, where=0, batch_size=8)
    run.at("fetch").iterate(1, ms=20)
    for fields in batches:
        run.note("batch", iterator=1, fields=fields)
        run.fetch(1, 1.0, samples=8)
        run.step(5, 5, 1)
    padding = measure(run.process()).train_loader().padding
    names = ("length", "longest", "real", "num_batches")
    assert padding == (shown and Padding(**dict(zip(names, shown, strict=True))))


def unread_in(loop: str, **notes) -> tuple[str, ...]:
    source = dedent(loop)
    run = Script(source)
    run.at("fetch").iterate(1)
    for _ in range(5):
        run.at("fetch").fetch(1, 1)
        run.train(1, 1, 1)
    for kind, fields in notes.items():
        run.note(kind, **fields)
    assert run.notes["site"][0]["file"] == FILE
    return measure(run.process()).train_loader().unused_fields


@pytest.mark.parametrize(
    ("loop", "unread"),
    [
        ("for x, y, extra in loader:  # fetch\n    model(x, y)", ("2",)),
        ("for i, (x, mask) in enumerate(loader):  # fetch\n    model(x)", ("1",)),
        ("for batch in loader:  # fetch\n    x, y, z = batch\n    model(x, z)", ("1",)),
        ("for x, y in loader:  # fetch\n    model(x)\nprint(y)", ()),
        ("for x, *rest in loader:  # fetch\n    model(x)", ()),
        ("for x, y in loader:  # fetch\n    model(**locals())", ()),
        ("for batch in loader:  # fetch\n    x, y = batch\n    model(x, batch)", ()),
    ],
)
def test_loop_variables_that_the_function_never_reads(loop, unread):
    assert unread_in(loop) == unread


def test_keys_that_the_probe_saw_unread():
    loop = "for batch in loader:  # fetch\n    model(batch)\n"
    assert unread_in(loop, unread={"loader": 1, "read": ["x"], "unread": ["mask", "x"]}) == ("mask",)


def rebuilt_each_epoch(lengths, *, together=False):
    """A loader built for every epoch, over datasets of these lengths; ``together``: all of them at first."""
    run = Script(PLAIN)

    def build(number, length):
        dataset = {"class": "Subset", "len": length}
        run.note("loader", id=number, where=3, batch_size=8, num_workers=0, dataset=dataset)

    for number, length in enumerate(lengths, 1):
        if together and number == 1:
            for other, one in enumerate(lengths, 1):
                build(other, one)
        if not together:
            build(number, length)
        run.at("fetch").iterate(number, ms=2)
        run.notes["iterator"][-1]["loader"] = number
        for _ in range(length // 8):
            run.at("fetch").fetch(number, 1, samples=8)
            run.step(5, 5, 1)
    return measure(run.process())


def test_a_loader_over_a_dataset_that_grows_is_one_loader():
    steps = rebuilt_each_epoch([64, 80, 80, 96])
    (use,) = steps.loaders
    assert (use.num_iterators, use.num_batches) == (4, 40)
    assert use.settings["rebuilt"]
    assert use.anew
    assert steps.num_epochs == 4


@pytest.mark.parametrize(
    ("lengths", "together"),
    [([64, 80], False), ([64, 16, 64, 16, 64, 16], False), ([64, 80, 96], True)],
    ids=["two parts", "parts in turn", "parts built at first"],
)
def test_loaders_over_parts_stay_apart(lengths, together):
    steps = rebuilt_each_epoch(lengths, together=together)
    assert len(steps.loaders) == len(set(lengths))
