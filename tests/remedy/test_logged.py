"""``throttled-logging`` and ``fewer-images`` in force: what is written, what is left out, what they say."""

from __future__ import annotations

import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.remedy.test_live_forms import Context
from tests.running import run_observed

from hotloop.probe.counting import StepCount
from hotloop.remedy import catalogue
from hotloop.remedy.live.logged import FewerImages, FewerScalars


class Writer:
    """As much of a SummaryWriter as is asked for; what is written is kept."""

    def __init__(self) -> None:
        self.written: list[tuple[str, str, Any]] = []

    def add_scalar(self, tag: str, value: Any, global_step: int | None = None) -> None:
        self.written.append(("scalar", tag, global_step))

    def add_image(self, tag: str, image: Any, global_step: int | None = None) -> None:
        self.written.append(("image", tag, global_step))

    def add_figure(self, tag: str, figure: Any, global_step: int | None = None, close: bool = True) -> None:
        self.add_image(tag, figure, global_step)

    def add_text(self, tag: str, text: str, global_step: int | None = None) -> None:
        self.written.append(("text", tag, global_step))


class Run:
    """As much of a run of wandb."""

    def __init__(self) -> None:
        self.logged: list[dict[str, Any]] = []
        self.rows: list[dict[str, Any]] = [{}]

    def log(self, data: dict[str, Any], step: int | None = None, commit: bool | None = None) -> None:
        self.logged.append(data)
        self.rows[-1].update(data)
        if commit or (commit is None and step is None):
            self.rows.append({})


class Image:
    """Stands for ``wandb.Image``."""


Image.__module__ = "wandb.sdk.data_types.image"


@pytest.fixture
def context(monkeypatch: pytest.MonkeyPatch) -> Any:
    for name, kind in (
        ("tensorboardX.writer", ("SummaryWriter", Writer)),
        ("wandb.sdk.wandb_run", ("Run", Run)),
    ):
        module = ModuleType(name)
        setattr(module, kind[0], kind[1])
        monkeypatch.setitem(sys.modules, name, module)
    found: Any = Context()
    found.count = StepCount()
    yield found
    found.hooks.undo()
    assert not found.errors


def steps_of(writer: Writer, tag: str) -> list[Any]:
    return [step for _, name, step in writer.written if name == tag]


def test_each_nth_is_written_by_writer_and_name(context: Any) -> None:
    form = FewerScalars(context, 4)
    form.install()
    one, other = Writer(), Writer()
    for step in range(9):
        one.add_scalar("loss", 0.5, step)
        one.add_scalar(tag="lr", value=0.1, global_step=step)
        one.add_text("note", "always", step)
    other.add_scalar("loss", 0.5, 9)
    assert steps_of(one, "loss") == steps_of(one, "lr") == [0, 4, 8]
    assert len(steps_of(one, "note")) == 9
    assert steps_of(other, "loss") == [9]
    assert (form.count, form.group, form.status()) == (12, 4, "in effect: 7 of 19 calls written")


def test_what_comes_seldom_is_written(context: Any) -> None:
    form = FewerScalars(context, 4)
    form.install()
    writer, step = Writer(), 0
    for epoch in range(10):
        for _ in range(8):
            context.count.rounds += 1
            writer.add_scalar("loss", 0.5, step)
            step += 1
        writer.add_scalar("val/acc", 0.5, epoch)
    assert steps_of(writer, "val/acc") == list(range(10))
    assert steps_of(writer, "loss") == list(range(0, 80, 4))
    seldom = FewerScalars(context, 4)
    seldom.install()
    for epoch in range(3):
        context.count.rounds += 8
        Writer.add_scalar(writer, "test", 0.5, epoch)
    assert seldom.status() == "all 3 calls written: they come too seldom to leave any out"


@pytest.mark.parametrize("logs_at", ["each batch", "each update"])
def test_each_nth_is_written_of_a_step_in_parts(context: Any, logs_at: str) -> None:
    FewerScalars(context, 4).install()
    writer = Writer()
    logged = 0
    for batch in range(64):
        updates = batch % 4 == 3
        context.count.batches += 1
        context.count.rounds += updates
        if updates or logs_at == "each batch":
            writer.add_scalar("loss", 0.5, logged)
            logged += 1
    assert steps_of(writer, "loss") == list(range(0, logged, 4))


def test_pictures_are_counted_however_seldom_they_come(context: Any) -> None:
    FewerImages(context, 4).install()
    writer = Writer()
    for step in range(0, 800, 100):
        context.count.rounds += 100
        writer.add_image("samples", None, step)
    assert steps_of(writer, "samples") == [0, 400]


def test_what_a_written_call_calls_is_written(context: Any) -> None:
    FewerImages(context, 3).install()
    writer = Writer()
    for step in range(7):
        writer.add_figure("samples", None, step)
        writer.add_image("samples", None, 100 + step)
        writer.add_scalar("loss", 0.5, step)
    assert steps_of(writer, "samples") == [0, 100, 3, 103, 6, 106]
    assert len(steps_of(writer, "loss")) == 7


def test_switched_off_everything_is_written(context: Any) -> None:
    form = FewerScalars(context, 2)
    form.active = False
    form.install()
    writer = Writer()
    writer.add_scalar("loss", 0.5, 0)
    assert form.status() == "nothing in this run that it applies to"
    form.on()
    for step in (1, 2):
        writer.add_scalar("loss", 0.5, step)
    form.off()
    writer.add_scalar("loss", 0.5, 3)
    assert steps_of(writer, "loss") == [0, 1, 3]


def test_a_figure_that_is_not_written_is_closed(context: Any) -> None:
    pyplot = pytest.importorskip("matplotlib.pyplot")
    FewerImages(context, 2).install()
    writer = Writer()
    open_before = len(pyplot.get_fignums())
    figures = [pyplot.figure() for _ in range(4)]
    writer.add_figure("first", figures[0], 0)
    writer.add_figure("first", figures[1], 1)
    writer.add_figure("kept", [figures[2]], 0, close=False)
    writer.add_figure("kept", [figures[3]], 1, False)
    try:
        assert len(pyplot.get_fignums()) == open_before + 3
        assert not pyplot.fignum_exists(figures[1].number)
    finally:
        for figure in figures:
            pyplot.close(figure)


def test_a_tracker_gets_numbers_each_nth_time_and_pictures_stay(context: Any) -> None:
    form = FewerScalars(context, 2)
    form.install()
    run = Run()
    for step in range(4):
        run.log({"loss": step}, step=step)
        run.log({"acc": step, "seen": [Image()]})
    assert [data["loss"] for data in run.logged if "loss" in data] == [0, 2]
    assert [data["acc"] for data in run.logged if "acc" in data] == [0, 1, 2, 3]
    assert form.status() == "in effect: 2 of 4 calls written"


def test_a_tracker_gets_pictures_each_nth_time_and_numbers_stay(context: Any) -> None:
    FewerImages(context, 2).install()
    run = Run()
    for step in range(3):
        run.log(data={"loss": step, "seen": Image()})
        run.log({"alone": Image()})
    assert [sorted(data) for data in run.logged] == [
        ["loss", "seen"],
        ["alone"],
        ["loss"],
        ["loss", "seen"],
        ["alone"],
    ]


def test_a_tracker_whose_rows_the_script_commits_is_left(context: Any) -> None:
    FewerScalars(context, 2).install()
    run = Run()
    for step in range(3):
        run.log({"a": step}, commit=False)
        run.log({"b": step})
    assert run.rows == [*({"a": step, "b": step} for step in range(3)), {}]


SCRIPT = """
    import sys
    import torch
    from torch.utils.tensorboard import SummaryWriter

    torch.manual_seed(0)
    writer = SummaryWriter("log")
    model = torch.nn.Linear(4, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(20):
        loss = model(torch.ones(2, 4)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        writer.add_scalar("loss", loss.item(), step)
        writer.add_scalars("both", {"a": 1.0, "b": 2.0}, step)
    writer.close()
    print(loss.item())
"""


def test_logging_of_a_run_is_throttled_and_told(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    plain = run_observed(SCRIPT, folder=tmp_path / "plain")
    env = catalogue.environment([catalogue.parse("throttled-logging=5")])
    done = run_observed(SCRIPT, folder=tmp_path / "throttled", env=env)
    assert done.returncode == 0, done.stderr
    assert done.stdout == plain.stdout
    assert not done.notes.get("disabled")
    last = done.notes["remedy"][-1]
    assert (last["status"], last["count"]) == ("in effect: 8 of 40 calls written", 32)
    lines = {done.line(row) for row in done.of("log")}
    assert len(done.of("log")) == 9 and len(lines) == 3
    assert len(plain.of("log")) == 41


def test_figures_that_are_saved_by_hand_are_left_to_the_source(
    context: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    form = FewerImages(context, 4)
    form.install()
    monkeypatch.setitem(sys.modules, "matplotlib.figure", ModuleType("matplotlib.figure"))
    assert form.status() == "no picture goes to a writer or a tracker; savefig is left to hotloop fix"
    Writer().add_figure("samples", object(), 0)
    assert form.status().startswith("all 1 calls written")
