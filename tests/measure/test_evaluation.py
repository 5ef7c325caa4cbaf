"""Forwards that train nothing: evaluations, parts of the step, rollouts; told apart by rows."""

from __future__ import annotations

from textwrap import dedent

import pytest
from tests.scenarios.builder import Script

from hotloop.measure.measure import measure
from hotloop.record import rows as row

LOOP = """
    import torch
    @torch.no_grad()
    def score(model, x):
        out = model(x)  # ask
        return out.topk(5).mean()  # after
    for step in range(100):
        x = data[torch.randint(0, 100, (32,))]
        loss = criterion(model(x), y)  # forward
        loss.backward()  # backward
        optimizer.step()  # update
        print(step, score(model, x))  # call
"""


def trained(*, every: int = 10, average: bool = False):
    """A hundred steps of 8 ms; after one in ``every`` 10 ms of the model without gradients and 10 ms more.

    ``average``: another module is asked, which is never trained and stays in evaluation mode.
    """
    run = Script(dedent(LOOP), sample_ms=0.937)
    for number in range(100):
        run.step()
        if number % every == 0:
            run.at("call", "ask").forward(10, module=2 if average else 1, grad=False, training=not average)
            run.at("call", "after").work(10)
    return measure(run.process()), run


@pytest.mark.parametrize("average", [False, True])
def test_what_only_scores_the_model_is_an_evaluation_with_what_it_does_after(average):
    steps, run = trained(average=average)
    assert len(steps.evaluations) == pytest.approx(10, abs=1)
    assert steps.span_totals["evaluation"] == pytest.approx(0.2, rel=0.15)
    # Its last sample stands for time of the evaluation: no line of it is beside the model.
    assert {line.phase for line in steps.lines if line.place.line == run.line("after")} == {"evaluation"}


@pytest.mark.parametrize("average", [False, True])
def test_a_forward_without_gradients_in_each_step_is_part_of_the_step(average):
    steps, _ = trained(every=1, average=average)
    assert steps.span_totals.get("evaluation", 0.0) == 0
    assert steps.span_totals["forward"] == pytest.approx(1.3, rel=0.1)


@pytest.mark.parametrize(("critic", "seconds"), [(2, 0.0), (1, 0.33)])
def test_a_forward_in_each_step_of_one_optimizer_is_part_of_its_steps(critic, seconds):
    """A frozen encoder of which a discriminator learns, in one of three steps."""
    run = Script(dedent(LOOP), sample_ms=0.937)
    for number in range(99):
        asked = number % 3 == 1
        if asked:
            run.at("call", "ask").forward(10, module=2, grad=False, training=False)
        run.step(optimizer=critic if asked else 1)
    found = measure(run.process()).span_totals.get("evaluation", 0.0)
    assert found == pytest.approx(seconds, rel=0.1)


ROLLED = """
    import torch
    def play(policy, env):
        while not done:
            action = policy(obs)  # ask
            obs, reward, done, info = env.step(int(action))  # env
        return seen
    for round in range(6):
        memory.extend(play(policy, env))  # call
        for _ in range(10):
            x, y = batch(memory)
            with torch.no_grad(): goal = teacher(x)  # teach
            loss = criterion(policy(x), y, goal)  # forward
            loss.backward()  # backward
            optimizer.step()  # update
"""


def rolled(named: str = ""):
    run = Script(dedent(ROLLED), sample_ms=0.937)
    run.notes["process"][0]["env"] = {"HOTLOOP_EVALUATION": named}
    for _ in range(6):
        for _ in range(20):
            run.at("call", "ask").forward(4, module=2, grad=False)
            run.at("call", "env").work(1)
        for _ in range(10):
            run.at("teach").forward(2, module=4, grad=False)
            run.step()
    return measure(run.process()), run


def test_a_policy_asked_before_there_is_anything_to_train_on_makes_batches_and_a_teacher_does_not():
    steps, run = rolled()
    assert steps.span_totals["data_wait"] == pytest.approx(0.6, rel=0.1)
    assert steps.span_totals["forward"] == pytest.approx(0.3, rel=0.1)
    assert not steps.evaluations
    assert f"train.py:{run.line('ask')}" in steps.facts["unclear"][0]


@pytest.mark.parametrize("named", ["play", "train.py:play", "other.py:play"])
def test_what_the_user_calls_evaluation_is_one(named):
    steps, _ = rolled(named)
    told = named != "other.py:play"
    assert bool(steps.evaluations) is told
    assert bool(steps.facts["unclear"]) is not told


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


def test_an_evaluation_by_the_function_that_trains_is_told_by_its_own_call():
    """A site has the stack of its first call only; the samples stand under the call of each."""
    run = AsObserved(dedent(EPOCHS), sample_ms=0.937)
    for epoch in range(5):
        run.at("training", "batch").iterate(2 * epoch + 1)
        for _ in range(10):
            run.at("training", "batch").fetch(2 * epoch + 1, 0.5)
            run.step(2, 2, 2, within=("training",))
        run.at("testing", "batch").iterate(2 * epoch + 2, loader=2)
        for _ in range(5):
            run.at("testing", "batch").fetch(2 * epoch + 2, 0.5)
            run.at("testing", "forward").evaluate(2)
    steps = measure(run.process())
    assert {one.place.line for one in steps.evaluations} == {run.line("testing")}


FIRST = """
    def validate():
        for x in test_loader:
            score(model(x))  # ask
    validate()  # before
    for epoch in range(3):
        loss = criterion(model(x), y)  # forward
        loss.backward()  # backward
        optimizer.step()  # update
        validate()  # testing
"""


@pytest.mark.parametrize("pieces", [1, 3])
def test_evaluations_of_one_function_are_told_by_the_call_of_each(pieces):
    run = AsObserved(dedent(FIRST), sample_ms=0.937)
    run.at("before", "ask").evaluate(20)
    for _ in range(12):
        for _ in range(5):
            run.step()
        run.at("testing", "ask").evaluate(20)
        for _ in range(pieces - 1):
            run.at("testing", "ask").forward(1)
            run.at("testing", "ask").evaluate(20)
    first, *others = measure(run.process()).evaluations
    assert first.place.line == run.line("before")
    assert {one.place.line for one in others} == {run.line("testing")}
    assert [round(one.seconds, 2) for one in others] == [0.02 * pieces] * 12


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
    for x, y in test_loader:  # final
        score += metric(model(x), y)  # tests
    """
    run = Script(dedent(source))
    for epoch in range(4):
        run.at("train").iterate(2 * epoch + 1)
        for _ in range(10):
            run.at("train").fetch(2 * epoch + 1, 1)
            run.step()
        run.at("asks").iterate(2 * epoch + 2, loader=2)
        for _ in range(5):
            run.at("asks").fetch(2 * epoch + 2, 1)
            run.at("ask").forward(3, grad=grad, training=False)
    run.at("final").iterate(9, loader=3)
    for _ in range(50):
        run.at("final").fetch(9, 1)
        run.at("tests").evaluate(3)
    steps = measure(run.process())
    assert [one.builds_graphs for one in steps.evaluations] == [grad] * 4 + [False]
    # The test of what was trained is none of the evaluations that come again.
    assert steps.span_totals["evaluation"] == pytest.approx(0.08, rel=0.1)
    assert steps.totals["evaluation"] == pytest.approx(0.28, rel=0.1)


def test_what_an_epoch_begins_with_is_no_score_of_the_evaluation_before():
    """An evaluation by a method of the model, which asks its modules one by one, with graphs, no loader."""
    source = """
    def drawn(data):
        return [draw(one) for one in data]  # draw

    for epoch in range(4):
        data = drawn(data)  # begin
        for x, y in loader:  # train
            loss = criterion(model(x), y)  # forward
            loss.backward()  # backward
            optimizer.step()  # update
        model.eval()
        for one in users:
            score += metric(model.predict(one))  # ask
    """
    run = Script(dedent(source))
    for epoch in range(4):
        run.at("begin", "draw").work(50)
        run.at("train").iterate(epoch + 1)
        for _ in range(10):
            run.at("train").fetch(epoch + 1, 1)
            run.step()
        for _ in range(20):
            run.at("ask").forward(3, module=2, training=False)
    steps = measure(run.process())
    assert [one.builds_graphs for one in steps.evaluations] == [True] * 4
    assert steps.span_totals["evaluation"] == pytest.approx(4 * 0.06, rel=0.1)
    assert steps.span_totals["other"] == pytest.approx(3 * 0.05, rel=0.1)


@pytest.mark.parametrize("training", [True, False])
def test_a_term_of_the_loss_in_few_steps_is_forward(training):
    run = Script("for step in range(60):\n    term = net(edge)  # term\n    loss = net(x) + term  # forward\n"
                 "    loss.backward()  # backward\n    optimizer.step()  # update\n")  # fmt: skip
    for step in range(60):
        if step % 4 == 0:
            run.at("term").forward(3, training=training)
        run.step()
    steps = measure(run.process())
    assert not steps.evaluations
    assert steps.span_totals["forward"] == pytest.approx(60 * 0.003 + 15 * 0.003, rel=0.1)


VIEWED = dedent("""
    def poll(server, field, grid):
        ready, _, _ = select.select([server], [], [], 0)  # poll
        with torch.no_grad():
            image = field(grid)  # render
        return image

    for step in range(99):  # loop
        x, y = batch()
        with torch.no_grad():
            soft = teacher(x)  # teacher
        loss = criterion(field(x), soft)  # forward
        loss.backward()  # backward
        optimizer.step()  # update
        poll(server, field, grid)  # viewer
    """)


def rendered(polled: bool):
    run = Script(VIEWED)
    for _ in range(40):
        run.at("teacher").forward(5, module=2, grad=False)
        run.step(3, 4, 1)
        if polled:
            run.at("viewer", "poll").call(row.SOCKET, 0.1)
        run.at("viewer", "render").forward(9, grad=False)
    return measure(run.process()).span_totals


@pytest.mark.parametrize(("attacks", "training"), [(False, False), (True, False), (False, True)])
@pytest.mark.parametrize("every", [1, 25])
def test_a_forward_in_evaluation_mode_in_every_step_is_the_model_once_more(attacks, training, every):
    """One that a backward follows, as of an attack, is none; nor one in training mode, nor many at once."""
    source = """
    for epoch in range(100):
        loss = criterion(model(x), y)  # forward
        loss.backward()  # backward
        optimizer.step()  # update
        score = metric(model(x), y)  # again
    """
    run = Script(dedent(source))
    for step in range(100):
        run.step()
        for _ in range(0 if step % every else every):
            with run.at("again"):
                run.forward(2, training=training)
                if attacks:
                    run.backward(2)
    again = measure(run.process()).sites.get("again", ())
    assert [(site.place.line, site.count) for site in again] == (
        [] if attacks or training or every > 1 else [(run.line("again"), 99)]
    )


def test_the_model_once_more_is_named_where_the_loop_calls_it():
    source = """
    def score():
        return metric(model(x), y)  # again
    for epoch in range(100):
        loss = criterion(model(x), y)  # forward
        loss.backward()  # backward
        optimizer.step()  # update
        score()  # train
        score()  # validate
    """
    run = Script(dedent(source))
    for _ in range(100):
        run.step()
        for _ in range(2):
            run.at("train", "again").forward(2, training=False, grad=False)
    again = measure(run.process()).sites["again"]
    named = [(site.place.line, site.count, site.flags) for site in again]
    assert named == [(run.line("train"), 198, {"grad": 0.0})]


def test_what_a_viewer_renders_with_the_model_is_no_forward_of_training():
    totals = rendered(polled=True)
    assert totals["forward"] == pytest.approx(40 * 0.008, rel=0.1)
    assert totals["other"] == pytest.approx(40 * 0.0091, rel=0.1)


def test_what_no_socket_is_served_with_stays_forward():
    assert rendered(polled=False)["forward"] == pytest.approx(40 * 0.017, rel=0.1)
