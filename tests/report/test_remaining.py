"""How long the whole training takes: only of a run that was cut, and whose length is configured once."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests import running
from tests.report.report_samples import findings, process, recording, steps

from hotloop.measure.steps import LoaderUse
from hotloop.report.remaining import remaining, words

LOADER = LoaderUse(id=1, role="train", where=None, settings={}, dataset={}, length=300, num_batches=1200)


def config(key: str, meaning: str, value: int, *, given: bool = False) -> dict[str, Any]:
    return {
        "note": "config", "source": "argparse", "key": key, "meaning": meaning, "value": value, "given": given
    }  # fmt: skip


TEXT = """for run in range(3):
    for epoch in tqdm(range(400)):
        pass
bar = tqdm(total=120000)
for epoch in tqdm(range(400)):
    for x in tqdm(loader): pass
"""


def found(*notes: dict[str, Any], code: int = 130, first: str = "") -> dict[str, Any] | None:
    one, loader = process(num_workers=0), replace(LOADER, num_iterators=5)
    more: dict[str, list[dict[str, Any]]] = {"source": [{"file": "/a/train.py", "text": TEXT}], "stack": []}
    for note in notes:
        more.setdefault(note["note"], []).append(note)
        frames = [["/a/train.py", note.get("stack"), "<module>", 1]]
        more["stack"].append({"id": note.get("stack"), "frames": frames, "library": ["tqdm.std:trange"]})
    one = replace(one, notes={**one.notes, **more})
    top, *others = findings()
    top = replace(top, id=first or top.id)
    return remaining(recording(1, exit_code=code), one, steps(loaders=(loader,)), [top, *others])


def bar(line: int, count: int, total: int) -> dict[str, Any]:
    return {"note": "bar", "stack": line, "count": count, "total": total}


def test_epochs_and_steps_are_extrapolated_at_the_rate_of_the_run() -> None:
    span_s, first = steps().span_s, findings()[0]
    kept = 1 - first.cost_s_per_step / steps().step_s
    epochs = found(config("epochs", "epochs", 10), config("epochs", "epochs", 400, given=True))
    assert epochs is not None and epochs["planned"] == {"epochs": 400}
    assert epochs["total_s"] == pytest.approx(span_s * 400 * 300 / 1200)
    assert epochs["left_s"] == pytest.approx(epochs["total_s"] - span_s)
    assert epochs["total_without_first_s"] == pytest.approx(epochs["total_s"] * kept)
    broken = found(config("epochs", "epochs", 400), first="numerics/non-finite-loss")
    assert broken is not None and broken["total_without_first_s"] is None, "to mend it takes no time away"
    updates = found(config("train.max_steps", "max_steps", 120_000), config("epochs", "epochs", -1))
    assert updates is not None and updates["planned"] == {"max_steps": 120_000}
    assert updates["total_s"] == pytest.approx(span_s * 100)
    assert words(updates | {"total_s": 216_000.0, "total_without_first_s": 79_200.0}) == (
        "max_steps=120,000 takes 60 h 0 min at this rate; 22 h 0 min with finding 1 removed "
        "(95 %: 1 h 20 min to 1 h 28 min)"
    )


def test_nothing_is_said_where_the_whole_is_not_known() -> None:
    epochs = config("epochs", "epochs", 400)
    assert found(epochs, code=0) is None, "it came to its own end"
    assert found(epochs, code=1) is None, "it failed"
    assert found(epochs, config("max_steps", "max_steps", 9_000)) is None, "said in two ways"
    assert found(config("eval.epochs", "epochs", 400)) is None, "of something else"
    trainer = config("max_steps", "max_steps", 9_000) | {"source": "trainer"}
    assert found(epochs, trainer) is not None, "what trains knows best"
    assert found(config("epochs", "epochs", 4)) is None, "all of it was done"
    assert found() is None


def test_a_bar_that_counts_steps_or_epochs_says_it_where_nothing_else_does() -> None:
    epochs, whole = bar(5, 4, 400), steps().span_s * 100
    one, two = found(bar(6, 290, 300), epochs), found(bar(4, 1180, 120_000))
    assert one is not None and one["planned"] == {"bar at train.py:5: total": 400}
    assert two is not None and one["total_s"] == two["total_s"] == pytest.approx(whole)
    said = found(config("epochs", "epochs", 400), epochs)
    assert said is not None and said["planned"] == {"epochs": 400}
    assert found(config("epochs", "epochs", 500), epochs) is None, "they contradict each other"
    assert found(bar(2, 4, 400)) is None and found(bar(6, 1200, 9000)) is None, "made again and again"
    assert found(bar(4, 700, 120_000)) is None, "it counts something else"


def test_a_full_bar_is_of_something_that_is_done(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("hotloop.report.remaining._LEAST_S", 1.0)
    assert found(bar(5, 5, 6)) is not None and found(bar(5, 5, 5)) is None


@pytest.mark.parametrize("name", ["transformers.trainer", "lightning.pytorch.trainer.trainer"])
def test_a_trainer_that_is_running_says_how_long(name: str, tmp_path: Path) -> None:
    told = {"transformers.trainer": "state=Trainer(max_steps=6)"}.get(name, "state=None, max_epochs=6")
    script = f"""
        import torch
        from types import SimpleNamespace as Trainer
        p = torch.nn.Parameter(torch.zeros(2)); optimizer = torch.optim.SGD([p], lr=0.1)
        method = "def train(self):\\n for _ in range(9): p.sum().backward(); optimizer.step()"
        exec(method, space := dict(globals(), __name__="{name}"))
        space["train"](Trainer({told}))
    """
    (note,) = running.run_observed(script, folder=tmp_path).notes["config"]
    assert (note["source"], note["value"]) == ("trainer", 6)


def test_bars_of_tqdm_and_rich_are_followed(tmp_path: Path) -> None:
    script = """
        import torch
        from rich.progress import Progress
        from tqdm.auto import tqdm
        p = torch.nn.Parameter(torch.zeros(2)); optimizer = torch.optim.SGD([p], lr=0.1)
        with Progress() as progress:
            task = progress.add_task("training", total=5000)
            for epoch in tqdm(range(900), mininterval=0):
                for i in tqdm(range(10), mininterval=0):
                    p.sum().backward(); optimizer.step()
                    progress.advance(task)
    """
    done = running.run_observed(script, folder=tmp_path, env={"HOTLOOP_STEPS": "45"})
    bars = {note["total"]: note["count"] for note in {n["stack"]: n for n in done.notes["bar"]}.values()}
    assert sorted(bars) == [0, 900, 5000], "the inner one is made again and again"
    assert bars[900] == bars[5000] // 10 and 44 <= bars[5000] <= 50 and not done.notes.get("disabled")
