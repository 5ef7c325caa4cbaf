"""The host family against runs whose truth is known."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from synthetic import TRAIN, evidence, line, loader, on_accelerator, steps

from hotloop.diagnose.bottleneck import as_counted, bottleneck
from hotloop.diagnose.diagnose import diagnose
from hotloop.diagnose.line_kinds import by_rows
from hotloop.diagnose.rollouts import steps_environment
from hotloop.findings import Finding, Place
from hotloop.measure.steps import DeviceUse, LineCost, SiteCost, Steps

SOURCE = """\
def decode(out):
    boxes = []
    for row in out:
        for value in row:
            boxes.append(float(value))
    return boxes


def draw(shape, centers):
    heat = torch.zeros(shape)
    for y in range(shape[0]):
        for x in range(shape[1]):
            heat[y, x] = 1.0
    return heat


class Net(nn.Module):
    def forward(this, x):
        for part in this.parts:
            x = part(x)
        for step in plan:
            x = torch.relu(step(x))
        for i in range(x.shape[0]):
            x[i] = x[i] / x[i].sum()
        return x


def main():
    for batch in loader:
        out = net(batch)
        target = make_targets(batch)
        loss = (out - target).square().mean()
        loss.backward()
        optimizer.step()
        scores = decode(out)
        for p, q in zip(ema.parameters(), net.parameters()):
            p.mul_(0.99).add_(q, alpha=0.01)


def make_targets(batch):
    for y in range(64):
        batch[y] = y
    return batch


def jitter(batch):
    return batch + torch.randn(3)
"""
SOURCES = {TRAIN: SOURCE}
MODEL = {"forward": 0.02, "backward": 0.03, "optimizer": 0.005}


def at_line(text: str) -> int:
    return next(i for i, source in enumerate(SOURCE.splitlines(), 1) if text in source)


def hot(text: str, seconds: float, function: str, **fields: Any) -> LineCost:
    """A sampled line of SOURCE, reached from ``statement`` (a text of SOURCE too)."""
    statement = fields.pop("statement", None)
    if statement is not None:
        fields["statement"] = Place(file=TRAIN, line=at_line(statement), function="main")
    return line(
        at_line(text),
        seconds,
        file=TRAIN,
        function=function,
        source=text,
        **{"phase": "other", "nature": "python", **fields},
    )


def run(lines: list[LineCost], phases: dict[str, float] | None = None, **fields: Any) -> Steps:
    return steps(
        {**MODEL, **(phases or {})},
        lines=tuple(lines),
        source_loop=Place(file=TRAIN, line=at_line("for batch in loader"), function="main"),
        **fields,
    )


def found(measured: Steps, **world: Any) -> dict[str, Finding]:
    return {item.id: item for item in diagnose(evidence(measured, sources=SOURCES, **world))}


# python-in-step


FIT = Place(file=TRAIN, line=90, function="main")


def test_a_distribution_may_leave_its_checks_out() -> None:
    hottest = hot("boxes.append(float(value))", 2.0, "decode", library="torch.distributions.categorical")
    item = found(run([hottest], {"other": 0.02}))["host/python-in-step"]
    assert "set_default_validate_args(False)" in item.advice


def test_what_a_framework_does_itself_is_told_apart_from_the_users_code_that_it_calls() -> None:
    """At ``trainer.fit()`` stands no code of the user's, and what it calls is no part of it."""
    own = line(
        90, 1.6, file=TRAIN, function="main", phase="other", nature="python", statement=FIT,
        library="lightning.loops", within="lightning.loops.fit_loop:_FitLoop.advance",
    )  # fmt: skip
    callback = hot("boxes.append(float(value))", 0.9, "decode", statement="for batch in loader")
    helper = hot("batch[y] = y", 0.3, "gathered", statement="for batch in loader")
    fields = {"statement": FIT, "entered": Place(file=TRAIN, line=70, function="Scores.on_batch_end")}
    called = [replace(callback, **fields), replace(helper, **fields)]
    measured = replace(run([own, *called], {"other": 0.028}), source_loop=None, framework_call=FIT)
    items = [one for one in diagnose(evidence(measured, sources=SOURCES)) if one.id == "host/python-in-step"]
    assert [one.where and one.where.line for one in items] == [90, at_line("boxes.append")]
    assert [one.cost_s_per_step for one in items] == pytest.approx([0.016, 0.012], rel=0.1)
    assert items[0].message.startswith("lightning's own work at train.py:90, most of it within _FitLoop.adv")
    assert items[0].advice.startswith("None of it is your code.")
    assert "your code" not in items[1].advice


def test_python_beside_the_model_is_named_with_its_line_and_cost() -> None:
    lines = [
        hot("boxes.append(float(value))", 1.6, "decode", statement="scores = decode(out)"),
        hot("for value in row:", 0.4, "decode", statement="scores = decode(out)"),
    ]
    item = found(run(lines, {"other": 0.02}))["host/python-in-step"]
    assert item.where == lines[0].place
    assert item.cost_s_per_step == pytest.approx(0.02)
    assert item.severity == "medium"
    assert item.cost_ci95 is not None and item.cost_ci95[0] < 0.02 < item.cost_ci95[1]
    called = [replace(one, library="torch.optim.optimizer") for one in lines]  # around the update itself
    assert "host/python-in-step" not in found(run(called, {"other": 0.02}))


def test_an_augmentation_in_the_step_belongs_to_the_loader() -> None:
    at = hot("out = net(batch)", 2.0, "main", nature="native")
    for source in ("batch = self.augment(batch)", "x = random_crop(x)", "x, y = mixup(x, y)"):
        item = found(run([replace(at, source=source)], {"other": 0.02}))["host/python-in-step"]
        assert item.advice.startswith("Augment in the dataset or in collate_fn")
    item = found(run([replace(at, source="scores = meter(batch)")], {"other": 0.02}))["host/python-in-step"]
    assert not item.advice.startswith("Augment")


def test_an_environment_that_is_stepped_gets_the_advice_of_a_rollout() -> None:
    source = SOURCE + "\ndef collect(self):\n    state, reward, done = self.env.step(self.act(state))\n"
    measured = run(
        [hot("heat[y, x] = 1.0", 1.6, "Field.step", statement="scores = decode(out)")], {"other": 0.03}
    )
    items = {item.id: item for item in diagnose(evidence(measured, sources={TRAIN: source}))}
    assert "more environments at once" in items["host/python-in-step"].advice
    body = "    a, r, d = env.step(a)\n    for x in r:\n        x.add_(1)\n    d.backward()\n"
    inner = replace(
        hot("heat[y, x] = 1.0", 1.6, "main"), place=Place(file=TRAIN, line=4, function="main"), statement=None
    )
    items = {
        one.id: one
        for one in diagnose(evidence(run([inner], {"other": 0.03}), sources={TRAIN: "while 1:\n" + body}))
    }
    assert "more environments at once" not in items["host/python-in-step"].advice


@pytest.mark.parametrize(("phase", "told"), [("data_wait", True), ("evaluation", False)])
def test_an_environment_that_only_evaluations_step_makes_no_data(phase: str, told: bool) -> None:
    stepped = line(2, 2.0, file="/app/episodes.py", function="episode", phase=phase)
    text = "def episode(env, policy):\n    state, reward, done, _ = env.step(policy(state))\n"
    measured = replace(run([], {"other": 0.02}), lines=(stepped,))
    assert steps_environment(evidence(measured, sources={**SOURCES, "/app/episodes.py": text})) is told


def test_work_that_is_done_once_is_not_told_of_every_step() -> None:
    """Features that are made between two parts of a training."""
    other = np.full(100, 0.0001)
    other[60] = 3.0
    once = found(run([hot("boxes.append(float(value))", 3.0, "decode")], {"other": other}))
    item = once["host/python-in-step"]
    assert (item.severity, item.cost_s_per_step) == ("info", 0)
    assert "takes 3.00 s once, at step 60 of 100" in item.message
    assert "trend/step-outliers" not in once
    again = found(run([hot("boxes.append(float(value))", 3.0, "decode")], {"other": 0.03}))
    assert again["host/python-in-step"].cost_s_per_step == pytest.approx(0.03)


def test_a_few_samples_are_no_verdict() -> None:
    lines = [hot("boxes.append(float(value))", 2.0, "decode", samples=5)]
    assert "host/python-in-step" not in found(run(lines, {"other": 0.02}))


def test_a_small_share_is_no_cause() -> None:
    lines = [hot("boxes.append(float(value))", 0.1, "decode")]
    assert "host/python-in-step" not in found(run(lines, {"other": 0.001}))


def test_two_causes_are_two_findings_costliest_first() -> None:
    lines = [
        hot("boxes.append(float(value))", 1.0, "decode", statement="scores = decode(out)"),
        hot("p.mul_(0.99)", 2.0, "main", statement="p.mul_(0.99)"),
    ]
    items = diagnose(evidence(run(lines, {"other": 0.03}), sources=SOURCES))
    assert [item.where.line for item in items if item.where] == [
        at_line("p.mul_(0.99)"),
        at_line("boxes.append"),
    ]


def test_an_average_updated_parameter_by_parameter_is_told_of_foreach() -> None:
    item = found(run([hot("p.mul_(0.99)", 2.0, "main")], {"other": 0.02}))["host/python-in-step"]
    assert "_foreach_" in item.advice
    assert item.remedies == ("foreach-lerp", "foreach-loop")


@pytest.mark.parametrize(
    ("body", "remedies"),
    [
        ("p.grad.data.clamp_(-1, 1)", ("foreach-loop",)),
        ("p.data -= lr * p.grad", ("foreach-loop",)),
        ("p.data.mul_(1 - tau).add_(q.data, alpha=tau)", ("foreach-lerp", "foreach-loop")),
        ("total += p.grad.norm() ** 2", ()),
        ("bad = bad or torch.isnan(p.grad).any().item()", ()),
        ("print(p.shape)", ()),
    ],
)
def test_what_is_done_to_each_parameter_says_what_would_write_it(
    body: str, remedies: tuple[str, ...]
) -> None:
    source = SOURCE.replace("p.mul_(0.99).add_(q, alpha=0.01)", body)
    measured = run([hot("p.mul_(0.99)", 2.0, "main")], {"other": 0.02})
    items = diagnose(evidence(measured, sources={TRAIN: source}))
    assert [item.remedies for item in items if item.id == "host/python-in-step"] == [remedies]


def test_a_pixel_loop_inside_forward_is_python_in_step() -> None:
    lines = [hot("heat[y, x] = 1.0", 4.8, "draw", phase="forward")]
    measured = run(lines, {"forward": 0.05})
    item = found(measured)["host/python-in-step"]
    assert (item.where, item.data["besides_s"]) == (lines[0].place, measured.per_step("backward"))
    assert bottleneck(as_counted(evidence(measured, sources=SOURCES))) == "host"


def test_functions_that_one_loop_calls_are_that_loop() -> None:
    within = Place(file=TRAIN, line=at_line("heat[y, x] = 1.0"), function="draw")
    tiny = {"phase": "forward", "nature": "python", "callers": (within,)}
    lines = [line(n, 2.0, file=f"/w/{n}.py", function=f"part{n}", **tiny) for n in (1, 2)]
    item = found(run(lines, {"forward": 0.05}))["host/python-in-step"]
    loop = Place(file=TRAIN, line=at_line("for y in range(shape[0])"))
    assert (item.where, item.cost_s_per_step) == (loop, pytest.approx(0.04))
    assert item.message.startswith("The loop at ")


def test_a_loop_with_the_update_in_it_is_no_loop_inside_the_model() -> None:
    lines = [hot("out = net(batch)", 4.0, "main", phase="forward")]
    lost = replace(run(lines, {"forward": 0.05}), source_loop=None)
    assert "host/python-in-step" in found(lost)
    update = hot("optimizer.step()", 1.0, "main", phase="optimizer", library="torch.optim.adam")
    assert "host/python-in-step" not in found(replace(lost, lines=(*lines, update)))
    method = replace(update.place, file="/w/agent.py", line=9)  # the loop calls what updates
    update = replace(update, place=method, statement=method, callers=(update.place,))
    assert "host/python-in-step" not in found(replace(lost, lines=(*lines, update)))


@pytest.mark.parametrize(
    ("library", "by_way_of", "calls_module", "is_named"),
    [
        ("sklearn.metrics", "main", False, True),
        ("", "main", False, False),
        ("sklearn.metrics", "Net.forward", False, False),
        ("transformers.utils.deprecation", "main", True, False),  # a decorator around the model's forward
    ],
)
def test_another_librarys_work_between_model_and_loss(
    library: str, by_way_of: str, calls_module: bool, is_named: bool
) -> None:
    statement = Place(file=TRAIN, line=at_line("out = net(batch)"), function="main")
    callers = (
        (statement,)
        if by_way_of == "main"
        else (Place(file="/w/net.py", line=1, function=by_way_of), statement)
    )
    score = line(
        5, 2.0, file="/w/scores.py", function="score", phase="forward", nature="python", library=library,
        statement=statement, callers=callers, calls_module=calls_module,
    )  # fmt: skip
    assert ("host/python-in-step" in found(run([score], {"forward": 0.05}))) == is_named


@pytest.mark.parametrize(
    ("text", "nature"),
    [
        (
            "x = part(x)",
            "python",
        ),  # the structure of the model: tiny layers dispatch slowly, and that is compute
        ("x = torch.relu(step(x))", "python"),
        ("heat[y, x] = 1.0", "native"),  # long calls are compute, in a loop or not
        ("out = net(batch)", "python"),  # in the training loop, not in a loop of its own
    ],
)
def test_a_models_own_structure_is_not_python_in_step(text: str, nature: str) -> None:
    function = {"x": "Net.forward", "h": "draw", "o": "main"}[text[0]]
    lines = [hot(text, 3.0, function, phase="forward", nature=nature)]
    assert "host/python-in-step" not in found(run(lines, {"forward": 0.05}))


def test_python_hidden_behind_the_device_costs_nothing() -> None:
    lines = [hot("boxes.append(float(value))", 2.0, "decode")]
    hidden = on_accelerator(
        run(lines, {"other": 0.02}), device=DeviceUse(busy_ratio=0.98, idle_s_by_phase={"other": 0.02})
    )
    exposed = on_accelerator(
        run(lines, {"other": 0.02}), device=DeviceUse(busy_ratio=0.5, idle_s_by_phase={"other": 1.9})
    )
    assert "host/python-in-step" not in found(hidden)
    assert found(exposed)["host/python-in-step"].cost_s_per_step == pytest.approx(0.019)


def test_waiting_in_the_step_is_told_as_waiting() -> None:
    lines = [hot("scores = decode(out)", 2.0, "main", nature="waiting", on_cpu_ratio=0.01)]
    item = found(run(lines, {"other": 0.02}))["host/python-in-step"]
    assert "waiting" in item.advice


# recomputed-targets


def test_targets_made_in_the_step_are_their_own_finding() -> None:
    lines = [hot("batch[y] = y", 2.0, "make_targets", role="targets", statement="target = make_targets")]
    items = found(run(lines, {"other": 0.02}))
    assert set(items) == {"host/recomputed-targets"}
    item = items["host/recomputed-targets"]
    assert item.where == lines[0].place
    assert item.cost_s_per_step == pytest.approx(0.02)
    assert "once" in item.advice
    assert item.remedies == ("memoize",)
    assert item.advice.endswith("--apply memoize=train.py:make_targets")
    assert item.data["function"] == "train.py:make_targets"
    tried = {"remedy": [{"id": "memoize", "status": "it gives what it was given, or a part of it"}]}
    assert not found(run(lines, {"other": 0.02}), notes=tried)["host/recomputed-targets"].remedies


def test_random_work_on_the_batch_is_sent_to_the_workers_not_stored() -> None:
    lines = [hot("return batch + torch.randn(3)", 2.0, "jitter", role="targets")]
    item = found(run(lines, {"other": 0.02}))["host/recomputed-targets"]
    assert "workers" in item.advice
    assert "once" not in item.advice
    assert not item.remedies


@pytest.mark.parametrize(
    ("text", "asked"),
    [("states = torch.FloatTensor(states)", True), ("torch.stack([torch.from_numpy(a) for a in x])", False)],
)
def test_rows_that_are_made_tensors_where_the_time_goes_are_converted_at_once(text: str, asked: bool) -> None:
    assert by_rows(text) == (("batched-convert",) if asked else ())


# sync-in-step


def sync(number: int, seconds: float, **fields: Any) -> SiteCost:
    place = Place(file=TRAIN, line=number, function="main")
    return SiteCost(place=place, operation="item", count=100, seconds=seconds, **fields)


def device(busy: float, **idle: float) -> DeviceUse:
    return DeviceUse(busy_ratio=busy, idle_s_by_phase=idle)


def test_a_sync_costs_what_the_device_then_idles() -> None:
    sites = {"sync": (sync(31, 2.0), sync(32, 0.5))}
    measured = on_accelerator(
        run([], {"sync": 0.025}, sites=sites), device=device(0.8, forward=0.6, other=0.4, data_wait=2.0)
    )
    item = found(measured)["host/sync-in-step"]
    assert item.where is not None and item.where.line == 31
    assert item.cost_s_per_step == pytest.approx(
        0.010
    )  # the idle second outside data waits, not 2.5 s of waiting
    assert any("train.py:32" in text for text in item.evidence)


def test_waiting_for_a_device_that_never_idles_costs_nothing() -> None:
    measured = on_accelerator(
        run([], {"sync": 0.025}, sites={"sync": (sync(31, 2.5),)}), device=device(0.995, forward=0.01)
    )
    assert "host/sync-in-step" not in found(measured)


def test_no_sync_finding_on_a_cpu_or_without_knowing_the_device() -> None:
    measured = run([], {"sync": 0.025}, sites={"sync": (sync(31, 2.5),)})
    assert "host/sync-in-step" not in found(measured)
    assert "host/sync-in-step" not in found(on_accelerator(measured))
    assert "host/sync-in-step" in found(on_accelerator(measured), system={"gpu0_util_ratio": [0.5] * 6})


def test_evaluations_syncs_are_not_the_steps() -> None:
    sites = {"sync": (sync(31, 2.5, in_step=False),)}
    measured = on_accelerator(run([], {"sync": 0.025}, sites=sites), device=device(0.5, forward=2.0))
    assert "host/sync-in-step" not in found(measured)


# launch-bound, threads, gc, viewer


def test_idle_while_launching_is_launch_bound() -> None:
    measured = on_accelerator(run([]), device=device(0.3, forward=1.5, backward=1.5, optimizer=0.4))
    item = found(measured)["host/launch-bound"]
    assert item.cost_s_per_step == pytest.approx(0.034)
    assert "host/launch-bound" not in found(
        on_accelerator(run([]), device=device(0.95, forward=0.1, backward=0.1))
    )
    assert "host/launch-bound" not in found(run([]))


def test_kernel_times_correct_the_upper_bound() -> None:
    profiled = DeviceUse(busy_ratio=0.6, idle_s_by_phase={"forward": 2.0}, launch_bound_ratio=0.15)
    item = found(on_accelerator(run([]), device=profiled))["host/launch-bound"]
    assert item.cost_s_per_step == pytest.approx(0.15 * 0.055)


def computing(threads: int, **world: Any) -> dict[str, Finding]:
    lines = [hot("out = net(batch)", 4.0, "main", phase="forward", nature="native")]
    return found(run(lines, facts={"torch": {"threads": threads}}), **world)


def sampled_threads(process_cpu: float, main_cpu: float) -> dict[int, dict[str, np.ndarray[Any, Any]]]:
    """One sample a second of a process that uses these cores, and its first thread."""
    seconds = np.arange(0.0, 8.0)
    return {100: {"t_s": seconds, "cpu_ratio": np.full(8, process_cpu), "main_cpu_s": seconds * main_cpu}}


def test_more_threads_than_cores_cost_by_how_many_share_a_core() -> None:
    fighting = {"cores": 2, "process_system": sampled_threads(1.9, 0.4)}
    some = computing(4, **fighting)["host/thread-oversubscription"]
    many = computing(24, **fighting)["host/thread-oversubscription"]
    assert 0.2 < some.share < many.share < 0.8
    assert "OMP_NUM_THREADS=2" in many.advice
    assert any("assumed" in text for text in many.evidence)


def test_threads_that_the_script_sets_are_told_where_it_does() -> None:
    """The environment is overridden by it."""
    by = {"threads": 24, "set_by": {"threads": [24, TRAIN, 5]}}
    world = {"cores": 2, "process_system": sampled_threads(1.9, 0.4)}
    item = found(run([], {"forward": 0.03}, facts={"torch": by}), **world)["host/thread-oversubscription"]
    assert (item.where.file, item.where.line) == (TRAIN, 5)
    assert item.advice.startswith("Call torch.set_num_threads(2) at train.py:5")
    by["threads"] = 8
    item = found(run([], {"forward": 0.03}, facts={"torch": by}), **world)["host/thread-oversubscription"]
    assert item.where is None


def test_as_many_threads_as_cores_are_right_unless_others_use_some() -> None:
    assert "host/thread-oversubscription" not in computing(2, cores=2)
    assert "host/thread-oversubscription" not in computing(1, cores=0.5)
    beside = {"t_s": np.arange(0.0, 8.0), "cpu_ratio": np.full(8, 0.95)}  # other programs use a core
    world = {"process_system": sampled_threads(0.9, 0.5), "machine": {"cpu_count": 2}, "system": beside}
    item = computing(2, cores=2, **world)["host/thread-oversubscription"]
    assert (item.severity, item.cost_s_per_step, item.data["unpriced"]) == ("info", 0.0, True)
    assert "1.0 of 2 cores" in item.message and "OMP_NUM_THREADS=1" in item.advice
    assert "host/thread-oversubscription" not in computing(1, cores=2, **world)


def test_helper_threads_with_nothing_to_do_are_no_more_than_info() -> None:
    idle = computing(8, cores=2, process_system=sampled_threads(0.95, 0.93))
    assert idle["host/thread-oversubscription"].severity == "info"
    assert computing(8, cores=2)["host/thread-oversubscription"].severity == "info"


def test_garbage_collection_counts_from_three_percent() -> None:
    assert "host/gc-pauses" not in found(run([], gc_s=0.10, gc_count=20))
    item = found(run([], gc_s=0.60, gc_count=20))["host/gc-pauses"]
    assert item.cost_s_per_step == pytest.approx(0.006)
    assert item.severity == "medium"
    assert item.remedies == ("gc-freeze",)


@pytest.mark.parametrize(
    "unlike",
    [
        {"gc_count": 2},  # one long collection in a short run
        {"gc_s_by_phase": {"logging": 0.55, "forward": 0.05}},
        {"gc_s_by_phase": {"data_wait": 0.55, "forward": 0.05}, "loaders": (loader(workers=2, make_s=0.01),)},
    ],
)
def test_collections_that_hold_no_step_up_are_no_finding(unlike: dict[str, Any]) -> None:
    assert "host/gc-pauses" not in found(run([], **{"gc_s": 0.60, "gc_count": 20, **unlike}))


def test_collections_are_not_charged_to_the_code_they_happen_in_as_well() -> None:
    """Code that makes many objects sets the collector off: most of its time is the collector's."""
    lines = [hot("boxes.append(float(value))", 3.0, "decode")]
    measured = run(lines, {"other": 0.03}, gc_s=2.4, gc_count=40, gc_s_by_phase={"other": 2.4})
    items = diagnose(evidence(measured, sources=SOURCES))
    assert [item.id for item in items if item.id.startswith("host/")] == [
        "host/gc-pauses",
        "host/python-in-step",
    ]
    assert sum(item.cost_s_per_step for item in items if item.id.startswith("host/")) == pytest.approx(0.03)


def test_a_collection_called_for_in_the_step_is_told_once_with_its_line() -> None:
    lines = [line(77, 1.0, file=TRAIN, function="main", phase="other", source="gc.collect()")]
    items = found(run(lines, {"other": 0.01}, gc_s=0.98, gc_count=100))
    assert set(items) == {"host/gc-pauses"}
    assert items["host/gc-pauses"].where == lines[0].place
    assert "gc.collect()" in items["host/gc-pauses"].advice
    assert items["host/gc-pauses"].remedies == ("rarer-gc-collect", "gc-freeze")


ANOMALY = {
    "anomaly": {"stacks": 4000, "seconds": 1.5},
    "torch": {"grad_anomaly": True, "set_by": {"grad_anomaly": [True, TRAIN, 3]}},
}


def test_anomaly_detection_costs_the_stacks_it_records() -> None:
    item = found(run([], facts=ANOMALY))["host/anomaly-detection"]
    assert item.cost_s_per_step == pytest.approx(0.015)
    assert item.where == Place(file=TRAIN, line=3, function="")
    assert "train.py:3" in item.message
    assert "40 stacks a step" in item.evidence[0]
    brief = {**ANOMALY, "anomaly": {"stacks": 40, "seconds": 0.02}}
    assert "host/anomaly-detection" not in found(run([], facts=brief))


def test_python_in_forward_is_not_told_beside_anomaly_detection() -> None:
    lines = [hot("heat[y, x] = 1.0", 1.0, "draw", phase="forward")]
    assert "host/python-in-step" in found(run(lines))
    assert "host/python-in-step" not in found(run(lines, facts=ANOMALY))


def test_a_profiler_that_is_left_on_is_told_to_stop() -> None:
    lines = [hot("scores = decode(out)", 2.0, "main", library="torch.autograd.profiler_util")]
    assert "repeat=1" in found(run(lines, {"other": 0.02}))["host/python-in-step"].advice


def test_a_viewer_costs_its_polling_and_its_rendering() -> None:
    place = Place(file=TRAIN, line=at_line("scores = decode(out)"), function="main")
    lines = [
        hot("boxes.append(float(value))", 1.5, "decode", role="viewer", statement="scores = decode(out)"),
        hot("for value in row:", 0.5, "decode", statement="scores = decode(out)"),
    ]
    sites = {"socket": (SiteCost(place=place, operation="accept", count=100, seconds=0.01),)}
    items = found(run(lines, {"other": 0.02}, sites=sites))
    assert items["host/viewer-in-loop"].cost_s_per_step == pytest.approx(0.02)
    assert items["host/viewer-in-loop"].where == place


def test_the_function_that_serves_a_viewer_is_named_for_its_remedy() -> None:
    place = Place(file=TRAIN, line=at_line("scores = decode(out)"), function="main")
    within = Place(file="/w/viewer.py", line=9, function="Viewer.poll")
    lines = [line(30, 2.0, file="/w/viewer.py", function="Viewer.render", phase="other", role="viewer")]
    lines = [replace(lines[0], statement=place, callers=(within, place))]
    item = found(run(lines, {"other": 0.02}))["host/viewer-in-loop"]
    assert item.data["function"] == "viewer.py:Viewer.poll"
    lines = [replace(lines[0], callers=())]
    assert found(run(lines, {"other": 0.02}))["host/viewer-in-loop"].data["function"] is None


def test_one_statement_is_not_charged_twice() -> None:
    place = Place(file=TRAIN, line=at_line("scores = decode(out)"), function="main")
    lines = [hot("for value in row:", 2.0, "decode", statement="scores = decode(out)")]
    sites = {"socket": (SiteCost(place=place, operation="accept", count=100, seconds=0.01),)}
    items = diagnose(evidence(run(lines, {"other": 0.02}, sites=sites), sources=SOURCES))
    assert sum(item.cost_s_per_step for item in items) <= 0.0201
