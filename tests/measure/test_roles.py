"""What the lines of a training loop are for, by their place in the step.

In each loop the comments say what happens at a line: ``D`` a batch is fetched, ``F`` forward, ``B`` backward,
``O`` optimizer step, ``N`` forward without gradients; ``= role`` time passes there, and that is the role it
must get.
"""

from __future__ import annotations

import re
from textwrap import dedent

import pytest
from tests.scenarios.builder import Script
from tests.scenarios.loops import PLAIN

from hotloop.measure.loop import named_phase
from hotloop.measure.measure import measure
from hotloop.record import rows as row

EVENT = re.compile(r"# ([DFBON])$")
EXPECTED = re.compile(r"# = (\w+)(?: via (\w+))?$")


def roles(source: str, steps: int = 40) -> dict[int, str]:
    """Runs the marked lines from top to bottom, ``steps`` times; the role of every sampled line."""
    source = dedent(source).strip() + "\n"
    lines = source.splitlines()
    run = Script(source, sample_ms=1.37)
    # The line that calls a function, outside its own definition.
    calls = {name: [i for i, line in enumerate(lines, 1) if _calls(line, name)] for name in _functions(lines)}
    where = {name: numbers[0] for name, numbers in calls.items() if numbers}
    if any(line.endswith("# D") for line in lines):
        first = next(i for i, line in enumerate(lines, 1) if line.endswith("# D"))
        with run.at(*_stack(lines, where, first)):
            run.iterate(1)
    for _ in range(steps):
        for number, line in _in_call_order(lines):
            event = EVENT.search(line)
            with run.at(*_stack(lines, where, number)):
                match event.group(1) if event else "=" if EXPECTED.search(line) else "":
                    case "D":
                        run.fetch(1, 0.5)
                    case "F":
                        run.forward(0.5)
                    case "N":
                        run.forward(0.5, module=2, grad=False)
                    case "B":
                        run.backward(0.5)
                    case "O":
                        run.update(0.5)
                    case "=":
                        run.work(2.2)
    found: dict[int, dict[str, float]] = {}
    for cost in measure(run.process()).lines:
        found.setdefault(cost.place.line, {}).setdefault(cost.role, 0.0)
        found[cost.place.line][cost.role] += cost.seconds
    return {line: max(by_role, key=by_role.get) for line, by_role in found.items()}


def _functions(lines):
    return [m.group(1) for line in lines if (m := re.match(r" *def (\w+)\(", line))]


def _inside(lines, number):
    """Name of the function a line lies in, "" at module level."""
    depth = _depth(lines[number - 1])
    for line in reversed(lines[: number - 1]):
        if line.strip() and _depth(line) < depth:
            depth = _depth(line)
            if found := re.match(r" *def (\w+)\(", line):
                return found.group(1)
    return ""


def _depth(line):
    return len(line) - len(line.lstrip())


def _calls(line, name):
    called = (".apply(", ".forward(") if name == "forward" else (f"{name}(",)
    return any(call in line for call in called) and not re.match(r" *(def|class) ", line)


def _stack(lines, where, number):
    stack = [number]
    while (name := _inside(lines, stack[0])) and where.get(name):
        stack.insert(0, where[name])
    return stack


def _in_call_order(lines):
    """Marked lines; those of a function where it is called."""

    def of(function):
        for number, line in enumerate(lines, 1):
            if _inside(lines, number) != function:
                continue
            for callee in _functions(lines):
                if _calls(line, callee):
                    yield from of(callee)
            if EVENT.search(line) or EXPECTED.search(line):
                yield number, line

    yield from of("")


LOOPS = {
    "get_batch": """
        for step in range(100):
            ix = sample_indices()  # = input
            x = data[ix]  # = input
            y = labels[ix]  # = input
            out = model(x)  # F
            loss = f(out, y)  # = forward
            optimizer.zero_grad()
            loss.backward()  # B
            optimizer.step()  # O
            total += loss.item()  # = other
            scheduler.step()  # = other
        """,
    "generator": """
        def batches():
            for part in parts:
                yield tokenize(part)  # = input
        for x in batches():
            loss = model(x)  # F
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "queue filled by a thread": """
        while True:
            batch = queue.get()  # = input
            x, y = batch["x"], batch["y"]
            loss = model(x, y)  # F
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "targets and augmentation beside a loader": """
        for images, boxes in loader:  # D
            images = jitter(images)  # = targets
            heat = draw(boxes)  # = targets
            pred = model(images)  # F
            weight = (heat > 0).float()  # = forward
            loss = ((pred - heat) ** 2 * weight).mean()  # = forward
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "step in a function": """
        def train_step(model, batch):
            x, y = prepare(batch)  # = targets
            out = model(x)  # F
            loss = focal(out, y)  # = forward
            loss.backward()  # B
            optimizer.step()  # O
            return loss
        for batch in loader:  # D
            loss = train_step(model, batch)
            history.append(summarize(loss))  # = other
        """,
    "a whole step in one call, fed by a rollout": """
        def update(rollout):
            out = policy(rollout)  # F
            out.backward()  # B
            optimizer.step()  # O
        for episode in range(9):
            rollout = collect(episode)  # = input
            loss = update(rollout)
            history.append(summarize(loss))  # = other
            policy.anneal(episode)  # = other
        """,
    "an environment that answers a policy without gradients": """
        for iteration in range(9):
            for step in range(128):
                states[step] = state  # = input
                action, logprob, value = policy(state)  # N
                logprobs[step] = logprob  # = input
                state, reward, done, info = envs.step(action.cpu().numpy())  # = input
                rewards[step] = torch.tensor(reward)
            returns = discounted(rewards, values)  # = input
            out = policy(states)  # F
            loss = surrogate(out, logprobs, returns)  # = forward
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "loss in a function of its own": """
        def compute_loss(batch):
            pred = model(batch)  # F
            pairs = pairwise(pred)  # = forward
            shown = render(pred)  # = forward
            return pairs.sum()
        for batch in loader:  # D
            loss = compute_loss(batch)
            optimizer.zero_grad()
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "parameters without a module": """
        w = torch.zeros(3, requires_grad=True)
        b = torch.zeros(1, requires_grad=True)
        for step in range(100):
            x, y = draw_batch()  # = forward
            pred = x @ w + b  # = forward
            loss = ((pred - y) ** 2).mean()  # = forward
            loss.backward()  # B
            with torch.no_grad():
                w -= 0.1 * w.grad
        """,
    "metrics, ema, print": """
        for x, y in loader:  # D
            out = model(x)  # F
            loss = criterion(out, y)  # = forward
            loss.backward()  # B
            optimizer.step()  # O
            accuracy = (out.argmax(1) == y).mean()  # = other
            update_ema(ema, model)  # = other
            print(accuracy)  # = logging
            torch.save(ema, "x.pt")  # = checkpoint
        """,
    "target network": """
        while True:
            s, a, s2 = memory.sample(64)  # = input
            goal = target(s2)  # N
            goal = clip(goal) * 0.99  # = input
            q = net(s)  # F
            loss = huber(q, goal)  # = forward
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "frozen encoder": """
        for images, labels in loader:  # D
            images = jitter(images)  # = targets
            latents = encoder(images)  # N
            noisy = add_noise(latents)  # = forward
            loss = unet(noisy)  # F
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "a loss that walks over predictions": """
        def align(wanted, truth):
            row = begin()
            for one in wanted:
                row = begin()  # = forward
                for t in truth:
                    row.append(0.0)  # = forward
                row.append(cost(one))  # = forward
            return row
        for images, truth in loader:  # D
            outputs = model(images)  # F
            loss = align(outputs, truth)
            loss.backward()  # B
            optimizer.step()  # O
        """,
}


@pytest.mark.parametrize("name", LOOPS)
def test_lines_get_their_role(name):
    source = dedent(LOOPS[name]).strip()
    expected = {
        number: found.group(1)
        for number, line in enumerate(source.splitlines(), 1)
        if (found := EXPECTED.search(line))
    }
    found = roles(LOOPS[name])
    assert {number: found.get(number) for number in expected} == expected


TWO_PHASES = """
    for x in first:  # fetch one
        loss = criterion(model(x), x)  # forward one
        loss.backward()  # backward one
        optimizer.step()  # update one
    extra = features(x)  # between
    for x, e in second:  # fetch two
        loss = criterion(head(model(x), e), extra)  # forward two
        loss.backward()  # backward two
        optimizer.step()  # update two
"""


def test_what_is_made_between_two_loops_over_batches_is_no_target_of_each():
    run = Script(dedent(TWO_PHASES))
    for number, part in enumerate(("one", "two"), 1):
        run.iterate(number, loader=number)
        for _ in range(20):
            run.at(f"fetch {part}").fetch(number, 1)
            run.at(f"forward {part}").forward(2)
            run.at(f"backward {part}").backward(2)
            run.at(f"update {part}").update(1)
        if part == "one":
            run.at("between").work(200)
    lines = [one for one in measure(run.process()).lines if one.place.line == run.line("between")]
    assert {line.role for line in lines} == {"other"}


@pytest.mark.parametrize(
    ("calls", "role"),
    [
        (("http.client:HTTPConnection.getresponse", "socket:SocketIO.readinto"), "other"),
        (("asyncio.runners:run", "asyncio.base_events:BaseEventLoop._run_once", "selectors:select"), "other"),
        (("subprocess:Popen.communicate", "selectors:_PollLikeSelector.select"), "other"),
        (("websockets.sync.connection:Connection.recv", "socket:SocketIO.readinto"), "viewer"),
        (("socket:socket.accept",), "viewer"),
    ],
)
def test_what_serves_nobody_is_no_viewer(calls, role):
    run = Script(
        dedent("""
            for step in range(500):
                out = model(x)  # forward
                out.backward()  # backward
                optimizer.step()  # update
                client.send(step)  # tell
            """)
    )
    for _ in range(20):
        run.step(2, 2, 1)
        with run.at("tell"), run.library(*calls):
            run.work(20, on_cpu=0.0)
    told = [line for line in measure(run.process()).lines if line.place.line == run.line("tell")]
    assert {line.role for line in told} == {role}


@pytest.mark.parametrize("calls", [("torch.nn.modules.module:Module._call_impl",), ()])
def test_a_line_that_calls_a_module_is_told_whatever_wraps_its_forward(calls):
    run = Script(PLAIN)
    for _ in range(20):
        run.step(2, 2, 1)
        with run.at("forward"), run.library(*calls, "transformers.utils.deprecation:wrapped"):
            run.work(20)
    told = [line for line in measure(run.process()).lines if line.place.line == run.line("forward")]
    assert {(line.library, line.calls_module) for line in told} == {
        ("transformers.utils.deprecation", bool(calls))
    }


@pytest.mark.parametrize(
    ("functions", "role", "phase"),
    [
        (("Trainer.train", "Trainer._run_epoch", "Trainer.training_step"), "other", "other"),
        (("Trainer.train", "Trainer._maybe_log_save_evaluate"), "other", "other"),
        (
            ("Trainer.train", "Trainer._maybe_log_save_evaluate", "Trainer._save_checkpoint"),
            "checkpoint",
            "checkpoint",
        ),
        (("Trainer.train", "Trainer._maybe_log_save_evaluate", "Trainer.log"), "logging", "logging"),
        (
            ("Trainer.train", "Trainer._maybe_log_save_evaluate", "Trainer._evaluate"),
            "evaluation",
            "evaluation",
        ),
        (("Learner.fit", "Learner._do_grad_opt", "Optimizer.step", "adam_step"), "other", "optimizer"),
        (("Trainer.fit", "FitLoop.run", "ModelCheckpoint.on_train_batch_end"), "checkpoint", "checkpoint"),
    ],
)
def test_what_a_framework_that_runs_the_whole_loop_does_is_told_by_its_functions(functions, role, phase):
    """It writes checkpoints and logs at the one line that it trains at: that says nothing of the rest."""
    run = Script("trainer = Trainer(model)\ntrainer.train()\n")
    run.iterate(1)
    calls = [f"transformers.trainer:{name}" for name in functions]
    with run.at(2):
        for step in range(40):
            run.fetch(1, 1)
            run.forward(2)
            run.backward(2)
            with run.library(*calls):
                run.work(20)
            run.update(1)
            if step == 20:
                run.call(row.SAVE, 1, obj=1)
                run.call(row.LOG, 1, obj=1)
    steps = measure(run.process())
    lines = [line for line in steps.lines if line.library == "transformers.trainer"]
    assert {line.role for line in lines} == {role}
    assert steps.per_step(phase) == pytest.approx(0.02, abs=0.002)
    assert (steps.source_loop, steps.framework_call and steps.framework_call.line) == (None, 2)
    assert {line.within for line in lines} == {calls[-1]}


@pytest.mark.parametrize(
    ("entry", "phase"),
    [
        ("fastai.optimizer:Lookahead.step", "optimizer"),
        ("fastai.optimizer:build", "other"),
        ("fastai.data.load:DataLoader.__iter__", "data_wait"),
        ("fastai.learner:Learner.step", "other"),
        ("utils:save_all", "checkpoint"),
        ("torch.optim.adam:Adam.step", "other"),  # it has rows of its own
    ],
)
def test_a_librarys_own_optimizer_and_loader_are_known_by_their_functions(entry, phase):
    assert named_phase(["fastai.learner:Learner.fit", entry])[1] == phase


@pytest.mark.parametrize("training", [False, True])
def test_a_rollout_that_a_framework_collects_is_input_and_its_evaluation_is_none_of_it(training):
    """stable-baselines3: the policy is in evaluation mode in both, or parts of it in training mode."""
    run = Script("agent = PPO(env)\nagent.learn(9000)\n")
    learn = ("stable_baselines3.ppo:PPO.learn", "stable_baselines3.common:OnPolicyAlgorithm.collect_rollouts")
    callback = ("stable_baselines3.common:EvalCallback._on_step", "stable_baselines3.common:evaluate_policy")
    with run.at(2):
        for rollout in range(8):
            with run.library(*learn):
                for _ in range(20):
                    run.work(8)
                    run.forward(2, grad=False, training=training)
            if rollout % 4 == 3:
                with run.library(*learn, *callback):
                    for _ in range(20):
                        run.forward(2, grad=False, training=training)
                        run.work(3)
                with run.library(*learn):
                    for _ in range(10):
                        run.work(8)
                        run.forward(2, grad=False, training=training)
            for _ in range(5):
                with run.library("stable_baselines3.ppo:PPO.learn", "stable_baselines3.ppo:PPO.train"):
                    run.train(2, 4, 1)
    steps = measure(run.process())
    assert len(steps.evaluations) == 2
    assert steps.span_totals["evaluation"] == pytest.approx(0.2, abs=0.06)
    assert steps.span_totals["data_wait"] > 1.2
    assert steps.span_totals["forward"] == pytest.approx(0.08, abs=0.05)


def test_a_module_without_parameters_that_builds_no_graph_is_beside_the_model():
    """An augmentation of the batch in the step, as kornia's."""
    run = Script(
        "for batch in loader:\n    batch = augment(batch)\n    net(batch).backward()\n    optimizer.step()\n"
    )
    run.iterate(1)
    for _ in range(20):
        run.fetch(1, 1)
        run.at(2).call(row.FORWARD, 20, obj=2, flags=row.FORWARD_TRAINING)
        with run.at(3):
            run.forward(2, grad=False, module=3)
            run.forward(2)
            run.backward(2)
        run.at(4).update(1)
    steps = measure(run.process())
    assert steps.per_step("other") == pytest.approx(0.02, abs=0.002)
    assert steps.per_step("forward") == pytest.approx(0.004, abs=0.001)
    beside = next(line for line in steps.lines if line.phase == "other")
    assert (beside.place.line, beside.role) == (2, "other")


def test_a_loop_of_the_users_is_no_frameworks():
    run = Script("for batch in loader:\n    net(batch).backward()\n    optimizer.step()\n")
    run.iterate(1)
    for _ in range(20):
        run.fetch(1, 1)
        with run.at(2):
            run.forward(2)
            run.backward(2)
        run.at(3).update(1)
    steps = measure(run.process())
    assert steps.source_loop is not None and steps.framework_call is None


@pytest.mark.parametrize(("operation", "phase"), [("progress", "other"), ("scalar", "logging")])
def test_a_bar_makes_no_logging_of_the_statement_that_it_goes_around(operation, phase):
    run = Script("step(model)\nplay(games)\n")
    for _ in range(40):
        with run.at(1):
            run.train(2, 2, 1)
        with run.at(2):
            run.work(20)
            run.call(row.LOG, 1, obj=row.LOG_OPS.index(operation))
    steps = measure(run.process())
    assert steps.per_step(phase) >= 0.019
