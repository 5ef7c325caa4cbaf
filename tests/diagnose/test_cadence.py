"""The cadence family: evaluation, checkpoints and logging against runs whose truth is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from synthetic import TRAIN, evidence, found, line, loader, steps

from hotloop.diagnose.bottleneck import bottleneck
from hotloop.diagnose.diagnose import diagnose
from hotloop.findings import Place
from hotloop.measure.steps import Interval, SiteCost, Steps

MODEL = {"forward": 0.02, "backward": 0.03}


def place(number: int) -> Place:
    return Place(file=TRAIN, line=number, function="main")


def evaluated(each_s: float, times: int, *, num_steps: int = 100, **fields: Any) -> Steps:
    """A run with ``times`` evaluations of ``each_s`` seconds, evenly spread."""
    table = np.zeros(num_steps)
    at = np.linspace(num_steps // times - 1, num_steps - 1, times).astype(int)
    table[at] = each_s
    starts = 1.0 + at * 0.05
    intervals = tuple(
        Interval(start_s=float(s), end_s=float(s) + each_s, after_step=int(a), place=place(70))
        for s, a in zip(starts, at, strict=True)
    )
    return steps(
        {**MODEL, "evaluation": table.tolist()}, num_steps=num_steps, evaluations=intervals, **fields
    )


DICE = """
def dice(pred, target):
    inter = 0.0
    for p, t in zip(pred, target):
        inter += float(p > 0) * float(t)
    return inter
def forward(parts, x):
    for part in parts:
        x = part(x)
    return x
def epochs(held_out):
    for epoch in range(3):
        for x, y in held_out:
            score(x, y)
"""


@pytest.mark.parametrize(
    ("at", "seconds", "about", "told"),
    [
        (5, 8.0, {}, True),
        (5, 1.0, {}, False),
        (5, 8.0, {"nature": "native"}, False),
        (5, 8.0, {"library": "monai.inferers", "calls_module": True}, False),  # it calls the model
        (9, 8.0, {"function": "Net.forward"}, False),
        (6, 8.0, {}, False),
        (4, 8.0, {}, False),
        (13, 8.0, {"function": "epochs", "library": "importlib"}, False),
    ],
)
def test_the_python_loop_that_makes_evaluation_slow_is_named(
    at: int, seconds: float, about: dict[str, Any], told: bool
) -> None:
    fields = {"function": "dice", "nature": "python", **about}
    hot = line(at, seconds, file=TRAIN, phase="evaluation", **fields)
    item = found(evaluated(1.0, 10, lines=(hot,)), sources={TRAIN: DICE})["cadence/evaluation"]
    assert (f"Replace the Python loop at train.py:{at}" in item.advice) is told
    assert item.where == place(70)
    model = line(5, 1.0, file=TRAIN, phase="evaluation", calls_module=True)  # then the loop is over batches
    item = found(evaluated(1.0, 10, lines=(hot, model)), sources={TRAIN: DICE})["cadence/evaluation"]
    assert "Replace the Python loop" not in item.advice


def test_evaluations_of_uneven_length_cost_more_than_nothing() -> None:
    run = evaluated(1.0, 4)
    uneven = (11.2, 7.3, 10.4, 25.0)
    rows = [replace(one, end_s=one.start_s + s) for one, s in zip(run.evaluations, uneven, strict=True)]
    item = found(replace(run, evaluations=tuple(rows)))["cadence/evaluation"]
    low, high = item.cost_ci95
    assert 0.3 < low / item.cost_s_per_step < 0.6 and high / item.cost_s_per_step > 2


def test_evaluations_at_several_lines_of_one_loop_come_again() -> None:
    run = evaluated(1.0, 4)
    lines = [replace(one, place=place(2 + i)) for i, one in enumerate(run.evaluations)]
    run, loop = replace(run, evaluations=tuple(lines)), "for epoch in range(4):\n" + "    score()\n" * 4
    texts = {text: found(run, sources={TRAIN: text})["cadence/evaluation"] for text in (loop, "")}
    assert "it runs every 25 steps" in texts[loop].message and "once at each place" in texts[""].message
    advice = found(run, sources={TRAIN: loop + "args(load_best_model_at_end=True)"})[
        "cadence/evaluation"
    ].advice
    assert "at a multiple of" in advice and "at a multiple of" not in texts[loop].advice
    inline = "for x in held_out: score(x)\n" * 5  # a loop over its own batches
    assert "once at each place" in found(run, sources={TRAIN: inline})["cadence/evaluation"].message


def test_an_interval_that_the_run_never_reaches_is_told_as_that() -> None:
    advice = found(evaluated(1.0, 10, num_steps=20))["cadence/evaluation"].advice
    assert "steps (this run took 20) instead of every 2, or on a part of the data" in advice
    epochs = loader(num_batches=20, batches_per_epoch=2.0)
    advice = found(evaluated(1.0, 10, num_steps=20, loaders=(epochs,)))["cadence/evaluation"].advice
    assert "epochs (this run took 10) instead of every epoch, or" in advice
    passes = replace(epochs, batches_per_epoch=1.0)  # several of a client's in each round of a federation
    advice = found(evaluated(1.0, 10, num_steps=20, loaders=(passes,)))["cadence/evaluation"].advice
    assert "steps (this run took 20) instead of every 2, or" in advice


# evaluation


def test_evaluation_costs_what_goes_beyond_a_sensible_share() -> None:
    measured = evaluated(1.0, 10)  # 10 s of evaluation beside 5 s of training
    item = found(measured)["cadence/evaluation"]
    assert item.cost_s_per_step == pytest.approx((10 - 0.05 * 15) / 100)
    assert item.where == place(70)
    assert item.severity == "high"
    assert "every 10 steps" in item.message
    assert bottleneck(measured) == "evaluation"


def test_an_interval_is_told_only_where_evaluations_were_told_apart() -> None:
    item = found(steps({**MODEL, "evaluation": [0.05] * 100}))["cadence/evaluation"]
    assert "every" not in item.message + item.advice
    assert item.data["steps_between"] is None


def test_the_advised_interval_brings_evaluation_to_its_fair_share() -> None:
    item = found(evaluated(1.0, 10))["cadence/evaluation"]
    interval = int(item.advice.split("every ")[1].split(" ")[0])
    share = 1.0 / (interval * 0.05 + 1.0)
    assert 0.03 < share <= 0.05


def test_an_evaluation_that_builds_graphs_is_told_to_stop_that_first() -> None:
    run = evaluated(1.0, 10)
    assert "no_grad" not in found(run)["cadence/evaluation"].advice
    building = replace(run, evaluations=tuple(replace(one, builds_graphs=True) for one in run.evaluations))
    item = found(building)["cadence/evaluation"]
    assert item.advice.startswith("Evaluate under torch.no_grad()")
    assert "Then evaluate every" in item.advice
    assert item.data["builds_graphs"]
    fit = replace(building, framework_call=place(70))  # the model is called in there
    assert "no_grad" not in found(fit)["cadence/evaluation"].advice


def test_evaluation_at_a_fair_share_is_silent() -> None:
    assert found(evaluated(0.05, 5)) == {}


def test_a_single_evaluation_is_no_cadence() -> None:
    item = found(evaluated(5.0, 1))["cadence/evaluation"]
    assert item.severity == "info"
    assert "(5 % would do): once, after step 99" in item.message
    assert "instead of" not in item.advice


def test_the_model_once_more_in_every_step_is_told_unless_it_acts() -> None:
    site = SiteCost(place=place(40), operation="other", count=100, seconds=0.8, flags={"grad": 1.0})
    measured = steps(MODEL, sites={"again": (site,)})
    item = found(measured)["cadence/evaluation"]
    assert "forward once more" in item.message and "no_grad" in item.advice
    twice = replace(site, count=198, flags={"grad": 0.0})
    item = found(steps(MODEL, sites={"again": (twice,)}))["cadence/evaluation"]
    assert "forward 2 times more" in item.message and "no_grad" not in item.advice
    assert (item.severity, item.where, item.cost_s_per_step) == ("low", site.place, pytest.approx(0.008))
    acting = {TRAIN: "obs, reward, done, _ = env.step(action)"}
    assert "cadence/evaluation" not in found(measured, sources=acting)


@pytest.mark.parametrize(
    ("workers", "make_s", "started_s", "wants"),
    [
        (0, 0.09, 0.0, "num_workers=2 and persistent_workers=True"),
        (4, 0.0005, 0.3, "num_workers=0"),
        (0, 0.001, 0.0, ""),
    ],
)
def test_an_evaluation_loader_is_given_the_workers_that_pay(
    workers: int, make_s: float, started_s: float, wants: str
) -> None:
    waiting = loader(
        role="evaluation", workers=workers, make_s=make_s, wait_s=0.002 if workers else make_s,
        where=place(40), num_iterators=10, batches_per_epoch=10.0,
        iter_s=np.full(10, started_s), shutdown_s=np.full(10, started_s),
    )  # fmt: skip
    item = found(evaluated(1.0, 10, loaders=(waiting,)))["cadence/evaluation"]
    words = f"with {wants} of its loader at train.py:40" if wants else "workers"
    assert (words in item.advice) == bool(wants)


def test_an_evaluation_bound_run_is_not_told_about_input() -> None:
    waiting = loader(role="evaluation", wait_s=0.09, num_batches=100)
    train = loader(wait_s=0.0001, make_s=0.0001)
    ids = set(found(evaluated(1.0, 10, loaders=(train, waiting))))
    assert not any(id.startswith("input/") for id in ids)


# checkpoint


def test_checkpoints_are_named_with_their_line_size_and_count() -> None:
    site = SiteCost(place=place(88), operation="write", count=20, seconds=3.0, num_bytes=20 * 10_000_000)
    inside = tuple(Interval(start_s=1.5 + i * 0.3, end_s=1.65 + i * 0.3, after_step=i * 5) for i in range(20))
    measured = steps({**MODEL, "checkpoint": 0.03}, sites={"checkpoint": (site,)}, checkpoints=inside)
    item = found(measured)["cadence/checkpoint"]
    assert item.where == place(88)
    assert item.cost_s_per_step == pytest.approx((3.0 - 0.02 * 8.0) / 100)
    assert "every 5 steps" in item.message
    assert any("20 calls" in text for text in item.evidence)
    assert bottleneck(measured) == "device"


def test_a_single_checkpoint_comes_once_and_not_every_so_many_steps() -> None:
    inside = (Interval(start_s=1.5, end_s=4.5, after_step=99),)
    item = found(steps({**MODEL, "checkpoint": 0.03}, checkpoints=inside))["cadence/checkpoint"]
    assert item.severity == "info"
    assert "every" not in " ".join([item.message, *item.evidence])


def test_a_checkpoint_now_and_then_is_silent() -> None:
    site = SiteCost(place=place(88), operation="write", count=1, seconds=0.05)
    assert found(steps({**MODEL, "checkpoint": 0.0005}, sites={"checkpoint": (site,)})) == {}


# logging


def logged(*sites: SiteCost, lines: tuple[Any, ...] = (), total: float = 0.02) -> Steps:
    return steps({**MODEL, "logging": total}, sites={"logging": sites}, lines=lines)


def log_line(number: int, seconds: float, source: str, library: str = "") -> Any:
    return line(
        number,
        seconds,
        file=TRAIN,
        function="main",
        phase="logging",
        role="logging",
        source=source,
        library=library,
    )


def log_site(number: int, operation: str, seconds: float, count: int = 100) -> SiteCost:
    return SiteCost(place=place(number), operation=operation, count=count, seconds=seconds)


@pytest.mark.parametrize(
    ("operation", "expected"),
    [
        ("scalar", "cadence/logging"),
        ("tracker", "cadence/logging"),
        ("histogram", "cadence/logging"),
        ("image", "cadence/images"),
        ("figure", "cadence/images"),
        ("progress", "cadence/progress-output"),
    ],
)
def test_each_operation_has_its_finding(operation: str, expected: str) -> None:
    items = found(logged(log_site(55, operation, 2.0)))
    assert set(items) == {expected}
    item = items[expected]
    assert item.where == place(55)
    assert item.cost_s_per_step == pytest.approx(0.02 - 0.01 * 0.07)
    assert item.severity == "medium"
    once = replace(logged(log_site(55, operation, 2.0)), evaluations=evaluated(0.1, 100).evaluations)
    less = found(once).get(expected, item).advice
    assert less.startswith("Evaluate less often") == (expected == "cadence/images")


@pytest.mark.parametrize(
    ("source", "library", "expected"),
    [
        ("print(step, loss)", "", "cadence/progress-output"),
        ("bar.update()", "tqdm.std", "cadence/progress-output"),
        ("ax.plot(history)", "matplotlib.axes._base", "cadence/images"),
        ("plt.savefig(path)", "", "cadence/images"),
        ("logger.info(msg)", "logging", "cadence/logging"),
        ("writer.add_scalar('a', x)", "torch.utils.tensorboard.writer", "cadence/logging"),
    ],
)
def test_sampled_lines_alone_name_the_kind_of_logging(source: str, library: str, expected: str) -> None:
    items = found(logged(lines=(log_line(61, 2.0, source, library),)))
    assert set(items) == {expected}
    assert items[expected].where is not None and items[expected].where.line == 61


def test_prints_and_bars_have_remedies_of_their_own() -> None:
    printed = log_line(61, 2.0, "print(step, loss)")
    drawn = log_site(55, "progress", 2.0)
    for sites, lines, remedies in (
        ((), (printed,), ("fewer-prints",)),
        ((drawn,), (), ("throttled-progress",)),
        ((drawn,), (printed,), ("throttled-progress", "fewer-prints")),
    ):
        assert found(logged(*sites, lines=lines))["cadence/progress-output"].remedies == remedies


def test_the_same_seconds_are_charged_once() -> None:
    """The figure is seen twice (its site and its sampled lines), the scalar once: parts sum to the phase."""
    figure = log_site(55, "figure", 1.5)
    scalar = log_site(57, "scalar", 0.5)
    lines = (log_line(55, 1.5, "writer.add_figure(f)"), log_line(57, 0.5, "writer.add_scalar(x)"))
    items = found(logged(figure, scalar, lines=lines))
    assert set(items) == {"cadence/images", "cadence/logging"}
    assert items["cadence/images"].cost_s_per_step > items["cadence/logging"].cost_s_per_step
    assert sum(item.cost_s_per_step for item in items.values()) == pytest.approx(0.02, rel=0.1)


def test_the_costliest_call_is_counted() -> None:
    item = found(logged(log_site(55, "scalar", 1.9, count=700), log_site(56, "scalar", 0.1)))[
        "cadence/logging"
    ]
    assert item.where == place(55)
    assert any("7 calls per step" in text for text in item.evidence)


@pytest.mark.parametrize(
    ("seconds", "count", "every"),
    [
        (2.0, 10_000, 10),  # 2 s of logging beside 5 s of training: a tenth leaves 4 %
        (2.0, 100, 10),
        (0.3, 10_000, 2),  # once in two leaves 3 %
        (200.0, 10_000, 1000),
        (200.0, 100, 20),  # of a hundred times a few stay
        (200.0, 84, 20),  # and of 84: one in 50 would keep one
        (200.0, 5, 2),
    ],
)
def test_what_is_done_too_often_is_asked_for_as_rarely_as_it_costs(
    seconds: float, count: int, every: int
) -> None:
    items = found(logged(log_site(55, "scalar", seconds, count=count), total=seconds / 100))
    assert items["cadence/logging"].data["every_nth"] == every


def test_a_log_line_every_fifty_steps_is_silent() -> None:
    assert found(logged(log_site(55, "text", 0.002, count=2), total=0.00002)) == {}


# frameworks: the loop is in a package, and a keyword says how often


@pytest.mark.parametrize(
    ("source", "line", "text"),
    [
        (
            "args = TrainingArguments(\n    eval_steps=10,\n    eval_accumulation_steps=10,\n)",
            2,
            "eval_steps=10",
        ),
        ("args = TrainingArguments(logging_steps=10, max_eval_steps=10)", 70, ""),
        ("a = Trainer(val_check_interval=10)\nb = Trainer(val_check_interval=10)", 70, ""),
        ("trainer = Trainer(val_check_interval=5)", 70, ""),
    ],
)
def test_the_keyword_that_asks_a_framework_for_evaluations_is_named(source, line, text) -> None:
    item = found(evaluated(1.0, 10), sources={TRAIN: source})["cadence/evaluation"]
    assert item.where is not None and item.where.line == line
    assert ("It is asked for by" in item.advice) == bool(text)
    assert text in item.advice


@pytest.mark.parametrize(
    ("command", "text"),
    [
        ("python train.py --eval_steps 10 --max_steps 10", "--eval_steps 10"),
        ("python train.py --eval_step 10 --save_step 10", "--eval_step 10"),
        ("python train.py trainer.check_val_interval=10 seed=10", "trainer.check_val_interval=10"),
        ("python train.py --eval_steps 10 --test-freq=10", ""),
        ("python train.py --sample-step 10 --save_step 10 --size 10", "--sample-step 10"),
        ("python train.py --eval_steps 10 --sample_step 10", "--eval_steps 10"),
        ("python train.py --hparams=size=2,sample_step=10", "sample_step=10"),
        ("python train.py --size 10 --log_step 10 --eval_delay_steps 10", ""),
    ],
)
def test_the_option_that_asks_for_evaluations_is_named(command: str, text: str) -> None:
    source = "def train():\n for i in x:\n  if i % args.log_step == 0:\n   log('%d' % args.size)\n"
    source += "  if (i + 1) % self.sample_step == 0:\n   score()"  # at line 70
    run = evidence(evaluated(1.0, 10), sources={TRAIN: "\n" * 64 + source})
    run = replace(run, recording=replace(run.recording, command=tuple(command.split())))
    (item,) = [one for one in diagnose(run) if one.id == "cadence/evaluation"]
    assert (f"It is asked for by {text}; 400 would do." in item.advice) == bool(text)
    assert item.where == place(70)


@pytest.mark.parametrize(
    ("command", "key", "value", "text"),
    [
        ("--validate_every=1 --size 1", "size", 10, "--validate_every=1; 40 would do"),
        ("", "training.validation_freq", 10, "training.validation_freq=10 (a.yaml:3); 400 would do"),
        ("", "trainer.val_epochs", 1, "trainer.val_epochs=1 (a.yaml:3); 40 would do"),
        ("", "trainer.val_epochs", 10, ""),
    ],
)
def test_what_counts_epochs_or_stands_in_a_file_is_named(command, key, value, text) -> None:
    note = {"note": "config", "source": "yaml", "key": key, "value": value, "file": "a.yaml", "line": 3}
    epochs = loader(num_batches=100, batches_per_epoch=10.0)
    run = evidence(evaluated(1.0, 10, loaders=(epochs,)), notes={"config": [note]})
    run = replace(run, recording=replace(run.recording, command=("train.py", *command.split())))
    (item,) = [one for one in diagnose(run) if one.id == "cadence/evaluation"]
    assert ("It is asked for by" in item.advice) == bool(text) and text in item.advice
    assert item.where == place(70)
