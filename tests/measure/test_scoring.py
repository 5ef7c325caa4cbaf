"""Forwards without gradients of a model that stays in training mode: scores, or data for training."""

from __future__ import annotations

from textwrap import dedent

import pytest
from tests.scenarios.builder import Script

from hotloop.measure import measure
from hotloop.record import rows as row

LOOP = """
    import torch
    @torch.no_grad()
    def score(model, x, memory):
        out = model(x)  # ask
        {kept}
        return out.topk(5).mean()  # after
    for step in range(100):
        x = data[torch.randint(0, 100, (32,))]
        loss = criterion(model(x), y)  # forward
        loss.backward()  # backward
        optimizer.step()  # update
        {use}  # call
"""


def step(run: Script) -> None:
    """A training step of 8 ms."""
    with run.at("forward"):
        run.forward(3)
    with run.at("backward"):
        run.backward(4)
    with run.at("update"):
        run.update(1)


def trained(
    *, use: str, kept: str = "out = out.relu()", every: int = 10, source: str = LOOP, average: bool = False
):
    """A hundred steps of 8 ms; after one in ``every`` 10 ms of the model without gradients and 10 ms more.

    ``average``: another module is asked, which is never trained and stays in evaluation mode.
    """
    run = Script(dedent(source).format(use=use, kept=kept), sample_ms=0.937)
    for number in range(100):
        step(run)
        if number % every == 0:
            with run.at("call", "ask"):
                run.forward(10, module=2 if average else 1, grad=False, training=not average)
            with run.at("call", "after"):
                run.work(10)
    return measure(run.process(), {}), run


@pytest.mark.parametrize("average", [False, True])
def test_what_only_scores_the_model_is_an_evaluation_with_what_it_does_after(average):
    steps, run = trained(use="print(step, score(model, x, memory))", average=average)
    assert len(steps.evaluations) == pytest.approx(10, abs=1)
    assert steps.span_totals["evaluation"] == pytest.approx(0.2, rel=0.15)
    # Its last sample stands for time of the evaluation: no line of it is beside the model.
    assert {line.phase for line in steps.lines if line.place.line == run.line("after")} == {"evaluation"}


@pytest.mark.parametrize(("drawn_ms", "phase"), [(30, "logging"), (3, "evaluation")])
def test_a_function_that_draws_for_longer_than_it_evaluates_is_told_as_drawing(drawn_ms, phase):
    run = Script(dedent(LOOP).format(use="score(model, x, memory)", kept="ax.imshow(out)"), sample_ms=0.937)
    for number in range(100):
        step(run)
        if number % 10 == 0:
            with run.at("call", "ask"):
                run.evaluate(10)
            with run.at("call", "after"), run.library("matplotlib.figure:Figure.savefig"):
                run.work(drawn_ms)
                run.call(row.LOG, drawn_ms, obj=row.LOG_OPS.index("figure"))
    steps = measure(run.process(), {})
    assert {line.phase for line in steps.lines if line.place.line == run.line("after")} == {phase}
    assert steps.span_totals["evaluation"] == pytest.approx(0.1 if phase == "logging" else 0.16, rel=0.1)


@pytest.mark.parametrize(
    "changed",
    [
        {"use": "data = score(model, x, memory)"},  # trains on it
        {"use": "score(model, x, memory)", "kept": "memory.append(out)"},
        {"use": "score(model, x, memory)", "kept": "memory.rows[0] = out"},
        {"use": "memory.push(score(model, x, memory)); data = memory.sample()"},
        {"use": "print(score(model, x, memory))", "every": 1},  # part of the step
    ],
)
@pytest.mark.parametrize("average", [False, True])
def test_what_makes_data_or_belongs_to_the_step_is_no_evaluation(changed, average):
    steps, _ = trained(**changed, average=average)
    assert steps.span_totals.get("evaluation", 0.0) == 0


PLAYED = """
    import torch
    def play(model):
        move = model(board).argmax()  # ask
        return outcome(move)  # after
    for step in range(100):
        {made}  # call
        x = batch(games, step)
        loss = criterion(model(x), y)  # forward
        loss.backward()  # backward
        optimizer.step()  # update
"""


@pytest.mark.parametrize(
    ("made", "evaluates"),
    [
        ("games = play(model)", False),
        ("games.extend(play(model))", False),
        ("games += play(model)", False),
        ("score = play(model)", True),
        ("print(play(model))", True),
    ],
)
def test_a_model_in_evaluation_mode_that_makes_its_own_batches_is_no_evaluation(made, evaluates):
    run = Script(dedent(PLAYED).format(made=made), sample_ms=0.937)
    for number in range(100):
        if number % 10 == 0:
            with run.at("call", "ask"):
                run.evaluate(10)
            with run.at("call", "after"):
                run.work(10)
        step(run)
    steps = measure(run.process(), {})
    assert bool(steps.evaluations) is evaluates
    assert (steps.span_totals["evaluation"] > 0.1) is evaluates
    assert (steps.span_totals["data_wait"] == pytest.approx(0.1, rel=0.2)) is not evaluates


KEPT = """
    import random
    import torch
    def play(model):
        move = model(board).argmax()  # ask
        return outcome(move)  # after
    for step in range(100):
        {made}  # call
        {kept}
        x = torch.stack(games)
        loss = criterion(model(x), y)  # forward
        loss.backward()  # backward
        optimizer.step()  # update
"""


@pytest.mark.parametrize(
    ("made", "kept", "evaluates"),
    [
        ("score = play(model)", "torch.save({'score': score}, 'best.pt')", True),
        ("games = play(model)", "torch.save(games, 'games.pt')", False),
        ("order = play(model)", "random.shuffle(games, order)", False),
    ],
)
def test_what_a_module_is_given_comes_not_back_by_each_of_its_functions(made, kept, evaluates):
    run = Script(dedent(KEPT).format(made=made, kept=kept), sample_ms=0.937)
    for number in range(100):
        if number % 10 == 0:
            with run.at("call", "ask"):
                run.evaluate(10)
            with run.at("call", "after"):
                run.work(10)
        step(run)
    assert bool(measure(run.process(), {}).evaluations) is evaluates


IN_PLACE = """
    import torch
    best = 0.0
    for step in range(100):
        x = data[torch.randint(0, 100, (32,))]
        loss = criterion(model(x), y)  # forward
        loss.backward()  # backward
        optimizer.step()  # update
        out = model(held_out)  # ask
        {use}  # after
"""


def scored_in_place(use: str):
    run = Script(dedent(IN_PLACE).format(use=use), sample_ms=0.937)
    for _ in range(100):
        step(run)
        with run.at("ask"):
            run.forward(10, grad=False)
        with run.at("after"):
            run.work(1)
    return measure(run.process(), {})


@pytest.mark.parametrize(
    "use", ["best = max(best, out.mean())", "print(out.mean())", "curve.append(out.mean())"]
)
def test_scoring_in_every_step_is_an_evaluation_where_the_loop_shows_what_becomes_of_it(use):
    steps = scored_in_place(use)
    assert steps.span_totals["evaluation"] == pytest.approx(1.0, rel=0.15)
    assert len(steps.evaluations) == pytest.approx(100, abs=1)


@pytest.mark.parametrize(
    "use",
    ["data = data[out.argsort()]", "sampler.update(out)", "memory.scores = out", "data.weights[0] = out"],
)
def test_what_may_come_back_into_training_is_part_of_the_step(use):
    assert scored_in_place(use).span_totals.get("evaluation", 0.0) == 0


@pytest.mark.parametrize(
    ("use", "kept", "every_step"),
    [
        ("loss_now, accuracy = score(model, x, memory)", "out = out.relu()", True),
        ("curve.append(score(model, x, memory))", "model.eval()", True),
        ("pseudo = score(model, x, memory); data = data[pseudo]", "out = out.relu()", False),
        ("sampler.update(score(model, x, memory))", "out = out.relu()", False),
        ("loss_now = score(model, x, memory)", "memory.append(out)", False),
    ],
)
def test_a_test_after_every_update_is_an_evaluation_where_nothing_of_training_uses_it(use, kept, every_step):
    run = Script(dedent(LOOP).format(use=use, kept=kept), sample_ms=0.937)
    for _ in range(100):
        step(run)
        with run.at("call", "ask"):
            run.evaluate(10)
        with run.at("call", "after"):
            run.work(1)
    steps = measure(run.process(), {})
    assert len(steps.evaluations) == pytest.approx(100 if every_step else 0, abs=1)
    assert steps.span_totals["evaluation"] == (pytest.approx(1.1, rel=0.1) if every_step else 0)


AGENT = """
    class Agent:
        def act(self, state):
            action = self.net(state).argmax()  # ask
            return action.item()  # after
        def replay(self):
            loss = criterion(self.net(self.states), self.targets)  # forward
            loss.backward()  # backward
            self.optimizer.step()  # update
    for step in range(100):
        action = agent.act(state)  # call
        agent.remember(state, action)
        agent.replay()  # replay
"""


def test_where_one_call_is_the_whole_step_nothing_tells_what_it_uses():
    run = Script(dedent(AGENT), sample_ms=0.937)
    for step in range(100):
        if step % 4 == 0:
            with run.at("call", "ask"):
                run.forward(5, grad=False)
        with run.at("replay", "forward"):
            run.forward(3)
        with run.at("replay", "backward"):
            run.backward(4)
        with run.at("replay", "update"):
            run.call(row.OPTIMIZER, 1, obj=1)
    assert measure(run.process(), {}).span_totals.get("evaluation", 0.0) == 0


def test_an_evaluation_begun_in_a_generator_of_batches_is_placed_there():
    source = """
    def batches(model):
        for n, x in enumerate(data):
            if n % 10 == 0:
                validate(model)  # called
            yield x
    def validate(model):
        return model(held_out)  # ask
    for x in batches(model):  # driven
        loss = criterion(model(x), y)  # forward
        loss.backward()  # backward
        optimizer.step()  # update
    """
    run = Script(dedent(source))
    for step in range(40):
        if step % 10 == 0:
            with run.at("driven", "called", "ask"):
                run.evaluate(10)
        for mark, happens in (("forward", run.forward), ("backward", run.backward), ("update", run.update)):
            with run.at(mark):
                happens(2)
    steps = measure(run.process(), {})
    assert {(one.place.line, one.place.function) for one in steps.evaluations} == {
        (run.line("called"), "batches")
    }


def test_an_evaluation_in_a_callback_is_placed_where_it_is_asked_every_nth_step():
    source = """
    def tell(step):
        for callback in callbacks:
            callback(step)  # calls
    def report(step):
        print(step)
        if step % 10 == 0:
            model.eval()
            validate(model)  # validates
    def validate(model):
        return model(held_out)  # ask
    for step in range(40):
        loss = criterion(model(x), y)  # forward
        loss.backward()  # backward
        optimizer.step()  # update
        tell(step)  # tells
    """
    run = Script(dedent(source))
    for step in range(40):
        for mark, happens in (("forward", run.forward), ("backward", run.backward), ("update", run.update)):
            with run.at(mark):
                happens(2)
        if step % 10 == 0:
            with run.at("tells", "calls", "validates", "ask"):
                run.evaluate(10)
    steps = measure(run.process(), {})
    assert {(one.place.line, one.place.function) for one in steps.evaluations} == {
        (run.line("validates"), "report")
    }


EPOCHS = """
    def run_epoch(loader, train):
        for x in loader:  # batch
            with torch.set_grad_enabled(train):
                loss = criterion(model(x), y)  # forward
            if train:
                loss.backward()  # backward
                optimizer.step()  # update
    for epoch in range(5):
        run_epoch(train_loader, True)  # training
        run_epoch(test_loader, False)  # testing
"""


class AsObserved(Script):
    """Sites by the innermost line, as the probe has them: the stack is the one first seen."""

    def site(self):
        known = {note["line"]: note["id"] for note in self.notes.get("site", ())}
        return known.get(self.frames()[-1][1]) or super().site()


def test_an_evaluation_by_the_function_that_trains_is_placed_where_it_is_called_for_that():
    run = AsObserved(dedent(EPOCHS), sample_ms=0.937)
    for epoch in range(5):
        with run.at("training", "batch"):
            run.iterate(2 * epoch + 1)
        for _ in range(10):
            with run.at("training", "batch"):
                run.fetch(2 * epoch + 1, 0.5)
            for mark, happens in (
                ("forward", run.forward),
                ("backward", run.backward),
                ("update", run.update),
            ):
                with run.at("training", mark):
                    happens(2)
        with run.at("testing", "batch"):
            run.iterate(2 * epoch + 2, loader=2)
        for _ in range(5):
            with run.at("testing", "batch"):
                run.fetch(2 * epoch + 2, 0.5)
            with run.at("testing", "forward"):
                run.evaluate(2)
    steps = measure(run.process(), {})
    assert {one.place.line for one in steps.evaluations} == {run.line("testing")}


@pytest.mark.parametrize("grad", [True, False])
def test_an_evaluation_that_builds_graphs_is_known(grad):
    source = """
    for epoch in range(4):
        for x, y in loader:  # train
            loss = criterion(model(x), y)  # forward
            loss.backward()  # backward
            optimizer.step()  # update
        model.eval()
        for x, y in held_out:  # asks
            score += metric(model(x), y)  # ask
    """
    run = Script(dedent(source))
    for epoch in range(4):
        with run.at("train"):
            run.iterate(2 * epoch + 1)
        for _ in range(10):
            with run.at("train"):
                run.fetch(2 * epoch + 1, 1)
            step(run)
        with run.at("asks"):
            run.iterate(2 * epoch + 2, loader=2)
        for _ in range(5):
            with run.at("asks"):
                run.fetch(2 * epoch + 2, 1)
            with run.at("ask"):
                run.forward(3, grad=grad, training=False)
    steps = measure(run.process(), {})
    assert [one.builds_graphs for one in steps.evaluations] == [grad] * 4
