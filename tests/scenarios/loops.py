"""Training loops by name. Each returns a Scenario: the process and what is true of it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from textwrap import dedent

from hotloop.record.recording import Process

from .builder import Script


@dataclass(frozen=True, kw_only=True)
class Scenario:
    """A run and its truth: steps, evaluations, and the milliseconds of phases in the training span."""

    process: Process
    num_steps: int
    num_evaluations: int = 0
    num_updates: int | None = None
    span_ms: Mapping[str, float] = field(default_factory=dict)
    script: Script


PLAIN = dedent("""
    import torch
    for epoch in range(2):
        for x, y in loader:  # fetch
            out = model(x)  # forward
            loss = criterion(out, y)
            optimizer.zero_grad()
            loss.backward()  # backward
            optimizer.step()  # update
        model.eval()
        for x, y in val:  # val
            correct += (model(x).argmax(1) == y).sum()  # evaluate
        print(correct)  # print
        torch.save(model.state_dict(), "a.pt")  # save
    """)


def plain(steps: int = 50, fetch_ms: float = 2.0) -> Scenario:
    """One loader, one epoch."""
    run = Script(PLAIN)
    run.work(100)
    run.at("fetch").iterate(1, ms=1)
    for _ in range(steps):
        run.at("fetch").fetch(1, fetch_ms)
        run.step()
    run.at("fetch").fetch(1, 0.1, end=True)
    run.work(20)
    return Scenario(
        process=run.process(), num_steps=steps, num_updates=steps, script=run,
        span_ms={
            "data_wait": fetch_ms * steps, "forward": 3 * steps, "backward": 4 * steps, "optimizer": steps,
            "epoch_gap": 1,
        },
    )  # fmt: skip


def epochs_with_evaluation(
    epochs: int = 3, steps: int = 20, evaluations: int = 10, *, modules: bool = True
) -> Scenario:
    """Each epoch is followed by an evaluation on a second loader and a checkpoint.

    Without ``modules`` none is ever called, nor saved: functions read the parameters that are trained.
    """
    run = Script(PLAIN)
    run.work(50)
    for epoch in range(epochs):
        run.at("fetch").iterate(2 * epoch + 1, loader=1, ms=2)
        for _ in range(steps):
            run.at("fetch").fetch(2 * epoch + 1, 1)
            if modules:
                run.at("forward").forward(3)
            run.at("backward").backward(4)
            run.at("update").update(1)
        run.at("fetch").fetch(2 * epoch + 1, 0.5, end=True)
        run.at("val").iterate(2 * epoch + 2, loader=2, ms=2)
        for _ in range(evaluations):
            run.at("val").fetch(2 * epoch + 2, 5)
            with run.at("evaluate"):
                if modules:
                    run.evaluate(3)
                run.work(2)
        run.at("val").fetch(2 * epoch + 2, 0.5, end=True)
        if modules:
            run.at("save").call(13, 30, obj=1)
    run.work(5)
    span_ms = {"data_wait": epochs * steps, "backward": 4 * epochs * steps, "epoch_gap": 2.5 * epochs}
    if modules:
        span_ms |= {
            "forward": 3 * epochs * steps,
            "evaluation": epochs * (2 + 10 * evaluations + 0.5),
            "checkpoint": 30 * epochs,
        }
    return Scenario(
        process=run.process(), num_steps=epochs * steps, num_evaluations=epochs, script=run, span_ms=span_ms
    )


SCORED = dedent("""
    class Scores:
        def compute(self):
            return max(self.pairs)  # compute
    for epoch in range(3):
        for x, y in loader:  # fetch
            loss = criterion(model(x), y)  # forward
            loss.backward()  # backward
            optimizer.step()  # update
        scores = Scores()
        for x, y in val:  # val
            scores.update(model(x), y)  # evaluate
        print(loss, scores.compute())  # score
        weights = copy(model)  # keep
    def copy(model):
        return deepcopy(model)  # copy
    """)


def score_of_an_evaluation(epochs: int = 3, steps: int = 20) -> Scenario:
    """The score is computed in the training function; what follows it has nothing to do with it."""
    run = Script(SCORED)
    for epoch in range(epochs):
        run.at("fetch").iterate(2 * epoch + 1, loader=1, ms=1)
        for _ in range(steps):
            run.at("fetch").fetch(2 * epoch + 1, 1)
            run.step()
        run.at("fetch").fetch(2 * epoch + 1, 0.1, end=True)
        run.at("val").iterate(2 * epoch + 2, loader=2, ms=1)
        for _ in range(5):
            run.at("val").fetch(2 * epoch + 2, 1)
            run.at("evaluate").evaluate(3)
        run.at("val").fetch(2 * epoch + 2, 0.1, end=True)
        run.at("score", "compute").work(400)
        with run.at("keep", "copy"), run.library("copy:deepcopy"):
            run.work(200)
    with run.at("fetch"):
        run.iterate(99, loader=1, ms=1)
        run.fetch(99, 1)
    run.step()
    return Scenario(
        process=run.process(), num_steps=epochs * steps + 1, num_evaluations=epochs, script=run,
        span_ms={"evaluation": epochs * (400 + 5 * 4 + 1.1), "other": epochs * 200},
    )  # fmt: skip


def accumulation(updates: int = 12, every: int = 4) -> Scenario:
    """Several batches per update: a step is a batch."""
    run = Script(PLAIN)
    run.at("fetch").iterate(1)
    for _ in range(updates):
        for micro in range(every):
            run.at("fetch").fetch(1, 1)
            run.at("forward").forward(3)
            run.at("backward").backward(4)
            if micro == every - 1:
                run.at("update").update(1)
    run.at("fetch").fetch(1, 0.1, end=True)
    return Scenario(process=run.process(), num_steps=updates * every, num_updates=updates, script=run)


def gan(steps: int = 25, with_loader: bool = True) -> Scenario:
    """Two optimizers a batch: one step."""
    run = Script(PLAIN)
    if with_loader:
        run.at("fetch").iterate(1)
    for _ in range(steps):
        if with_loader:
            run.at("fetch").fetch(1, 1)
        for optimizer in (1, 2):
            run.at("forward").forward(2, module=optimizer)
            run.at("backward").backward(2)
            run.at("update").update(1, optimizer=optimizer)
    return Scenario(process=run.process(), num_steps=steps, num_updates=steps, script=run)


def zipped(steps: int = 25) -> Scenario:
    """A batch of each of two loaders a step."""
    run = Script(PLAIN)
    with run.at("fetch"):
        run.iterate(1, loader=1)
        run.iterate(2, loader=2)
    for _ in range(steps):
        with run.at("fetch"):
            run.fetch(1, 1)
            run.fetch(2, 1)
        run.step()
    return Scenario(process=run.process(), num_steps=steps, script=run)


GET_BATCH = dedent("""
    import torch

    def get_batch(split):
        ix = torch.randint(len(data), (32,))
        x = torch.stack([data[i] for i in ix])  # stack
        return x, x

    for step in range(100):
        x, y = get_batch("train")  # get
        logits = model(x)  # forward
        loss = torch.nn.functional.cross_entropy(logits, y)  # loss
        optimizer.zero_grad()  # zero
        loss.backward()  # backward
        optimizer.step()  # update
        accuracy = heavy_metric(logits, y)  # metric
        if step % 10 == 0:
            print(loss.item())  # print
    """)


def get_batch(steps: int = 60, batch_ms: float = 20.0) -> Scenario:
    """No loader: batches are made by a function of the script; a metric follows the update."""
    run = Script(GET_BATCH, sample_ms=1.97)
    run.work(50)
    for _ in range(steps):
        run.at("get", "stack").work(batch_ms)
        run.at("forward").forward(3)
        run.at("loss").work(5)
        run.at("backward").backward(4)
        run.at("update").update(1)
        run.at("metric").work(6)
    return Scenario(
        process=run.process(), num_steps=steps, script=run,
        span_ms={"data_wait": batch_ms * (steps - 1), "forward": 8 * steps, "other": 6 * (steps - 1)},
    )  # fmt: skip


TARGETS = dedent("""
    def make_targets(y):
        heat = []
        for box in y:
            heat.append(draw(box))  # draw
        return stack(heat)

    def train(model, loader):
        for batch in loader:  # fetch
            images, boxes = batch
            heat = make_targets(boxes)  # targets
            pred = model(images)  # forward
            diff = pred - heat
            loss = (diff ** 2).mean()  # loss
            optimizer.zero_grad()
            loss.backward()  # backward
            optimizer.step()  # update
            ema.update(model)  # ema
            logger.info("loss %s", loss)  # log
            poll_viewer(server)  # viewer

    train(model, loader)  # main
    """)


def recomputed_targets(steps: int = 60) -> Scenario:
    """A loader drives the loop, and the loop does more than training: targets, EMA, logging, a viewer."""
    run = Script(TARGETS)
    run.at("main", "fetch").iterate(1)
    for _ in range(steps):
        run.at("main", "fetch").fetch(1, 1)
        run.at("main", "targets", "draw").work(12)
        run.at("main", "forward").forward(3)
        run.at("main", "loss").work(5)
        run.at("main", "backward").backward(4)
        run.at("main", "update").update(1)
        run.at("main", "ema").work(7)
        with run.at("main", "log"), run.library("logging:info"):
            run.work(6)
        with run.at("main", "viewer"), run.library("select:select"):
            run.work(8, on_cpu=0.0)
    run.at("main", "fetch").fetch(1, 0.1, end=True)
    return Scenario(
        process=run.process(), num_steps=steps, script=run,
        span_ms={"data_wait": steps, "forward": 8 * steps, "logging": 6 * steps, "other": 27 * steps},
    )  # fmt: skip


EVALUATE = dedent("""
    def evaluate(model, loader):
        dataset = build()  # build
        model.eval()
        for x, y in loader:  # val
            outputs.append(model(x))  # evaluate
        return mean_average_precision(outputs)  # metric

    def train():
        for epoch in range(9):
            for x, y in loader:  # fetch
                out = model(x)  # forward
                loss = criterion(out, y)
                loss.backward()  # backward
                optimizer.step()  # update
            score = evaluate(model, val)  # call
            history.append(slow(score))  # after

    train()  # main
    """)


def metrics_after_evaluation(epochs: int = 3, steps: int = 20) -> Scenario:
    """The evaluation function builds its data before, and computes long metrics after its forwards."""
    run = Script(EVALUATE)
    for epoch in range(epochs):
        run.at("main", "fetch").iterate(2 * epoch + 1, loader=1)
        for _ in range(steps):
            run.at("main", "fetch").fetch(2 * epoch + 1, 1)
            run.step(within=("main",))
        run.at("main", "fetch").fetch(2 * epoch + 1, 0.1, end=True)
        run.at("main", "call", "build").work(100)
        run.at("main", "call", "val").iterate(2 * epoch + 2, loader=2, ms=1)
        for _ in range(5):
            run.at("main", "call", "val").fetch(2 * epoch + 2, 5)
            run.at("main", "call", "evaluate").evaluate(3)
        run.at("main", "call", "val").fetch(2 * epoch + 2, 0.1, end=True)
        run.at("main", "call", "metric").work(200)
        run.at("main", "after").work(60)
    with run.at("main", "fetch"):
        run.iterate(2 * epochs + 1, loader=1)
        run.fetch(2 * epochs + 1, 1)
    return Scenario(
        process=run.process(), num_steps=epochs * steps, num_evaluations=epochs, script=run,
        span_ms={"evaluation": 341 * epochs, "data_wait": epochs * steps, "forward": 3 * epochs * steps},
    )  # fmt: skip


SCENARIOS: dict[str, Callable[[], Scenario]] = {
    "plain": plain,
    "epochs_with_evaluation": epochs_with_evaluation,
    "renderer_with_evaluation": partial(epochs_with_evaluation, modules=False),
    "accumulation": accumulation,
    "gan": gan,
    "gan_without_loader": lambda: gan(with_loader=False),
    "zipped": zipped,
    "get_batch": get_batch,
    "recomputed_targets": recomputed_targets,
    "metrics_after_evaluation": metrics_after_evaluation,
    "score_of_an_evaluation": score_of_an_evaluation,
}
