"""What the lines of a training loop are for, told from their source.

In each loop the comments say what happens at a line: ``D`` a batch is fetched, ``F`` forward, ``B`` backward,
``O`` optimizer step, ``N`` forward without gradients; ``= role`` time passes there, and that is the role it
must get.
"""

from __future__ import annotations

import re
from textwrap import dedent

import pytest
from tests.scenarios.builder import Script

from hotloop.measure import measure
from hotloop.measure.dataflow import parse
from hotloop.record import rows as row

EVENT = re.compile(r"# ([DFBON])$")
EXPECTED = re.compile(r"# = (\w+)(?: via (\w+))?$")


def roles(source: str, steps: int = 40) -> dict[int, str]:
    """Runs the marked lines from top to bottom, ``steps`` times; the role of every sampled line."""
    source = dedent(source).strip() + "\n"
    lines = source.splitlines()
    run = Script(source, sample_ms=1.37)
    where = {name: _caller(lines, name) for name in _functions(lines)}
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
    for cost in measure(run.process(), {}).lines:
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


def _caller(lines, name):
    """The line that calls a function, outside its own definition."""
    calls = [i for i, line in enumerate(lines, 1) if _calls(line, name)]
    return calls[0] if calls else None


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
            total += loss.item()  # = metrics
            scheduler.step()  # = other
        """,
    "next batch asked for during the step": """
        X, Y = get_batch("train")
        while True:
            logits, loss = model(X, Y)  # F
            X, Y = get_batch("train")  # = input
            scaler.scale(loss).backward()  # B
            scaler.step(optimizer)  # O
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
            weight = (heat > 0).float()  # = targets
            loss = ((pred - heat) ** 2 * weight).mean()  # = forward
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "inner loops that adapt the parameters": """
        def adapt(params, x, y):
            for _ in range(3):
                loss = mse(functional_call(net, params, x), y)  # F
                grads = torch.autograd.grad(loss, params, create_graph=True)  # B
                params = [p - 0.1 * g for p, g in zip(params, grads)]  # = other
            return params
        for x, y in tasks():
            fast = adapt(list(net.parameters()), x, y)
            loss = functional_call(net, fast, x)  # F
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "a penalty on gradients": """
        for x in loader:  # D
            between = mix(x)  # = targets
            score = critic(between)  # F
            grad = torch.autograd.grad(score, between)  # B
            penalty = (grad.norm() - 1) ** 2  # = forward
            real = critic(x)  # F
            loss = penalty - real  # = forward
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "a logger of one's own": """
        def write(**record):
            text = dumps(record)  # = logging
            sync(text)  # = logging
        def histogram(x):
            return histc(x)  # = metrics
        for x in loader:  # D
            out = model(x)  # F
            out.backward()  # B
            optimizer.step()  # O
            logger.write(loss=histogram(out))
        """,
    "a dataset built anew for every epoch": """
        for epoch in range(9):
            data = Curriculum(rows, epoch)  # = other
            loader = DataLoader(data, batch_size=32)  # = other
            for x, y in loader:  # D
                loss = model(x, y)  # F
                loss.backward()  # B
                optimizer.step()  # O
        """,
    "a batch prepared before the windows that it is cut into": """
        def train_on(batch):
            x = features(batch)  # = targets
            for part in x:
                out = model(part)  # F
                out.backward()  # B
                optimizer.step()  # O
        for batch in loader:  # D
            train_on(batch)
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
            history.append(summarize(loss))  # = metrics
        """,
    "a whole step in one call, fed by a rollout": """
        def update(rollout):
            out = policy(rollout)  # F
            out.backward()  # B
            optimizer.step()  # O
        for episode in range(9):
            rollout = collect(episode)  # = input
            loss = update(rollout)
            history.append(summarize(loss))  # = metrics
            policy.anneal(episode)  # = other
        """,
    "a whole step in one call, fed by a memory": """
        def update(agent, s, a):
            out = policy(s, a)  # F
            out.backward()  # B
            optimizer.step()  # O
        agent = Agent()
        for episode in range(9):
            s2, r = env.step(a)  # = input
            memory.push(s, a, r, s2)  # = input
            s, a = memory.sample(64)  # = input
            loss = update(agent, s, a)
            agent.anneal(episode)  # = other
        """,
    "an environment that answers a policy without gradients": """
        for iteration in range(9):
            for step in range(128):
                states[step] = state  # = input
                action, logprob, value = policy(state)  # N
                logprobs[step] = logprob  # = forward
                state, reward, done, info = envs.step(action.cpu().numpy())  # = input
                rewards[step] = torch.tensor(reward)
            returns = discounted(rewards, values)  # = forward
            out = policy(states)  # F
            loss = surrogate(out, logprobs, returns)  # = forward
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "an environment that answers a policy with gradients": """
        for step in range(9):
            values = net(torch.as_tensor(state))  # F
            action = values.argmax().item()  # = input
            state2, reward, done, info = env.step(action)  # = input
            memory.add(state, action, reward, state2)  # = input
            state = state2
            s, a, r, s2 = memory.sample(64)  # = input
            goal = target(s2)  # N
            goal = r + 0.99 * goal  # = forward
            q = net(s)  # F
            loss = huber(q, goal)  # = forward
            loss.backward()  # B
            optimizer.step()  # O
            meter.update(loss.item())  # = metrics
        """,
    "an environment of an agent that gives tensors": """
        while True:
            action = agent.act(state)  # N
            state, reward, done, _ = env.step(action)  # = input
            returns.append(reward)
            loss = agent(state, returns)  # F
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "a matching outside torch": """
        for images, truth in loader:  # D
            boxes = model(images)  # F
            cost = distance(boxes, truth)  # = forward
            pairs = assign(cost.detach().cpu().numpy())  # = forward
            loss = gather(boxes, pairs).sum()  # = forward
            loss.backward()  # B
            optimizer.step()  # O
            bar.set(loss.item())  # = metrics
        """,
    "a record of what the model made": """
        class Record:
            def add(self, values):
                self.values.extend(values)  # = forward
            def cut(self, part):
                return sorted(self.values)[part]  # = forward
        for x, y in loader:  # D
            out = model(x)  # F
            losses = criterion(out, y)  # = forward
            record.add(losses.tolist())
            most = record.cut(10)
            loss = losses.clamp(max=most).mean()  # = forward
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "loss in a function of its own": """
        def compute_loss(batch):
            pred = model(batch)  # F
            pairs = pairwise(pred)  # = forward
            shown = render(pred)  # = metrics
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
            x, y = draw_batch()  # = input
            pred = x @ w + b  # = forward
            loss = ((pred - y) ** 2).mean()  # = forward
            loss.backward()  # B
            with torch.no_grad():
                w -= 0.1 * w.grad
        """,
    "net as a function of parameters": """
        params = [torch.randn(3, 3, requires_grad=True)]
        optimizer = Adam(params)
        for step in range(100):
            x = make(step)  # = input
            out = net(params, x)  # = forward
            loss = out.mean()
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "metrics, ema, print": """
        for x, y in loader:  # D
            out = model(x)  # F
            loss = criterion(out, y)  # = forward
            loss.backward()  # B
            optimizer.step()  # O
            accuracy = (out.argmax(1) == y).mean()  # = metrics
            update_ema(ema, model)  # = other
            print(accuracy)  # = logging
            logger.info("%s", accuracy)  # = logging
            torch.save(ema, "x.pt")  # = checkpoint
        """,
    "teacher": """
        for x, y in loader:  # D
            soft = blur(y)  # = targets
            out = model(x)  # F
            loss = kl(out, soft)  # = forward
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "target network": """
        while True:
            s, a, s2 = memory.sample(64)  # = input
            goal = target(s2)  # N
            goal = clip(goal) * 0.99  # = forward
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
    "class with attributes": """
        def fit(self):
            for step in range(9):
                self.batch = self.sampler.draw()  # = input
                self.out = self.net(self.batch)  # F
                self.loss = self.criterion(self.out)  # = forward
                self.loss.backward()  # B
                self.optimizer.step()  # O
                self.window.append(self.loss)  # = metrics
        fit(trainer)
        """,
    "targets drawn within the loss": """
        def generate(cells, size):
            heat = zeros(size)  # = targets
            for cell in cells:
                heat[cell] = gauss(cell)  # = targets
            return heat
        def criterion(outputs, batch, weight=1.0):
            size = outputs["heat"].shape[-2:]
            heat = generate(batch["cells"], size)
            near = log(outputs["heat"]) * heat  # = forward
            return near.sum() * weight  # = forward
        for batch in loader:  # D
            outputs = model(batch["image"])  # F
            loss = criterion(outputs, batch=batch)
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "a loss that matches predictions to truth": """
        def match(boxes, truth):
            cost = distance(boxes, truth)  # = forward
            return assign(cost)  # = forward
        def criterion(outputs, truth):
            boxes = outputs["boxes"]  # = forward
            pairs = match(boxes, truth)
            return gather(boxes, pairs).sum()  # = forward
        for images, truth in loader:  # D
            outputs = model(images)  # F
            loss = criterion(outputs, truth)
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
    "a loss given everything at once": """
        def criterion(*everything):
            heat = draw(everything)  # = forward
            return heat.sum()  # = forward
        for images, truth in loader:  # D
            outputs = model(images)  # F
            loss = criterion(*outputs, truth)
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "a teacher's answer within the loss": """
        def criterion(outputs, soft):
            wanted = softmax(soft)  # = forward
            return kl(outputs, wanted)  # = forward
        for images, truth in loader:  # D
            soft = teacher(images)  # N
            outputs = model(images)  # F
            loss = criterion(outputs, soft)
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "what a module draws without being called": """
        class Avatar(nn.Module):
            def __init__(self, points, size):
                self.points, self.size = nn.Parameter(points), size
            def render(self, view):
                means = self.points @ view  # = forward
                return paint(means)
            def wanted(self, truth):
                return resize(truth, self.size)  # = forward
        def paint(means):
            return mix(sort(means))  # = forward
        for view, truth in loader:  # D
            picture = avatar.render(view)
            truth = avatar.wanted(truth)
            loss = l1(picture, truth)  # = forward
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "a differentiable function before a module": """
        class Blend(torch.autograd.Function):
            @staticmethod
            def forward(ctx, colors, order):
                return mix(colors, order)  # = forward
        def draw(view):
            return Blend.apply(scene, view)
        for view, truth in loader:  # D
            picture = draw(view)
            features = perceptual(picture)  # F
            loss = l1(features, truth)  # = forward
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "what a module draws before another is called": """
        class Avatar(nn.Module):
            def __init__(self, points, size):
                self.points, self.size = nn.Parameter(points), size
            def render(self, view):
                return self.points @ view  # = forward
            def wanted(self, truth):
                return resize(truth, self.size)  # = targets
        for view, truth in loader:  # D
            picture = avatar.render(view)
            wanted = avatar.wanted(truth)
            features = perceptual(picture)  # F
            loss = l1(features, wanted)  # = forward
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "targets made by a criterion that is a module": """
        class Criterion(nn.Module):
            def __init__(self, sigma):
                self.sigma, self.mse = sigma, nn.MSELoss()
            def __call__(self, outputs, truth):
                heat = self.draw(truth)
                return self.mse(outputs, heat)
            def draw(self, truth):
                return bump(truth, self.sigma)  # = targets
        for images, truth in loader:  # D
            outputs = model(images)  # F
            loss = criterion.__call__(outputs, truth)
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "what a module's forward does before another is called": """
        class Layer(nn.Linear):
            def __init__(self, width):
                self.relu, self.width = nn.ReLU(), width
            def forward(self, x):
                x = x @ self.weight.T + self.bias  # = forward
                return self.relu(x)  # F
        for step in range(9):
            x = draw()  # = input
            loss = layer.forward(x).mean()
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "what a training step draws before its own layers are called": """
        class Training(nn.Module):
            def __init__(self, width):
                self.layer = nn.Linear(width, width)
            def training_step(self):
                x = draw()  # = input
                return self.layer(x).mean()  # F
        for step in range(9):
            loss = task.training_step()
            loss.backward()  # B
            optimizer.step()  # O
        """,
    "two statements on a line": """
        for step in range(9):
            x = draw(); y = label(x)  # = input
            loss = model(x, y)  # F
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


def acting_and_training(sample_ms: float) -> Script:
    run = Script(
        dedent("""
            class Policy:
                def act(self, x):
                    return self.actor(x)  # layers
            for iteration in range(99):
                for move in range(16):
                    action = policy.act(state)  # acts
                    states[move], reward, done, info = env.step(action)  # steps
                for part in range(4):
                    value = policy.act(states[part])  # trains
                    loss = surrogate(value)  # loss
                    loss.backward()  # backward
                    optimizer.step()  # update
            """),
        sample_ms=sample_ms,
    )
    for _ in range(20):
        for _ in range(16):
            with run.at("acts", "layers"):
                run.forward(0.5, grad=False)
            with run.at("steps"):
                run.work(2)
        for _ in range(4):
            with run.at("trains", "layers"):
                run.forward(0.5)
            with run.at("loss"):
                run.work(0.5)
            with run.at("backward"):
                run.backward(0.5)
            with run.at("update"):
                run.update(0.5)
    return run


def test_a_policy_that_acts_and_trains_is_followed_to_both_its_callers():
    run = acting_and_training(sample_ms=1.37)
    measured = measure(run.process(), {})
    found = {line.place.line: line.role for line in reversed(measured.lines)}  # the costliest comes first
    assert (found[run.line("steps")], found[run.line("loss")]) == ("input", "forward")
    assert measured.source_loop.line == run.line("trains") - 1


def test_of_few_samples_those_count_where_the_first_call_was_no_training():
    run = acting_and_training(sample_ms=29.3)
    measured = measure(run.process(), {})
    assert measured.source_loop.line == run.line("trains") - 1


COPIED = ("copy:deepcopy", "copy:_reconstruct")
CAST = ("torch.nn.modules.module:Module.float", "torch.nn.modules.module:Module._apply")


@pytest.mark.parametrize(("line", "prepared"), [("soft", CAST), ("loss", CAST), ("loss", COPIED)])
def test_a_module_made_ready_for_a_forward_is_none_of_it(line, prepared):
    run = Script(
        dedent("""
            for step in range(500):
                soft = teacher.float()(x)  # soft
                out = model(x)  # forward
                loss = copy.deepcopy(critic).float()(out, soft)  # loss
                loss.backward()  # backward
                optimizer.step()  # update
            """)
    )

    def asks(at):
        if line == at:
            with run.at(at), run.library(*prepared):
                run.work(20)
        with run.at(at):
            run.forward(2, module=2, grad=False, training=False)

    for _ in range(20):
        asks("soft")
        with run.at("forward"):
            run.forward(2)
        asks("loss")
        with run.at("backward"):
            run.backward(2)
        with run.at("update"):
            run.update(1)
    lines = measure(run.process(), {}).lines
    made = [cost for cost in lines if cost.place.line == run.line(line) and cost.library]
    assert {(cost.role, cost.phase) for cost in made if cost.phase != "startup"} == {("other", "other")}


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
            with run.at(f"fetch {part}"):
                run.fetch(number, 1)
            with run.at(f"forward {part}"):
                run.forward(2)
            with run.at(f"backward {part}"):
                run.backward(2)
            with run.at(f"update {part}"):
                run.update(1)
        if part == "one":
            with run.at("between"):
                run.work(200)
    lines = [one for one in measure(run.process(), {}).lines if one.place.line == run.line("between")]
    assert {line.role for line in lines} == {"other"}


@pytest.mark.parametrize(("copied", "role"), [("net", "other"), ("rows", "input")])
def test_a_module_copied_where_targets_are_made_is_no_input_and_copied_data_is(copied, role):
    source = f"""
    optimizer = Adam(net.parameters())
    def targets(net, rows):
        made = copy.deepcopy({copied})  # copy
        return made(rows)  # ask
    for step in range(500):
        y = targets(net, rows)  # call
        out = net(rows)  # forward
        loss = criterion(out, y)
        loss.backward()  # backward
        optimizer.step()  # update
    """
    run = Script(dedent(source))
    for _ in range(20):
        with run.at("call", "copy"), run.library(*COPIED):
            run.work(20)
        with run.at("call", "ask"):
            run.forward(2, module=2, grad=False, training=False)
        with run.at("forward"):
            run.forward(2)
        with run.at("backward"):
            run.backward(2)
        with run.at("update"):
            run.update(1)
    lines = [line for line in measure(run.process(), {}).lines if line.place.line == run.line("copy")]
    assert {line.role for line in lines if line.phase != "startup"} == {role}


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
        with run.at("forward"):
            run.forward(2)
        with run.at("backward"):
            run.backward(2)
        with run.at("update"):
            run.update(1)
        with run.at("tell"), run.library(*calls):
            run.work(20, on_cpu=0.0)
    told = [line for line in measure(run.process(), {}).lines if line.place.line == run.line("tell")]
    assert {line.role for line in told} == {role}


@pytest.mark.parametrize(
    ("at", "use", "phase"),
    [
        ("write", "grid(out).save(path)", "logging"),
        ("write", "grid(images).resize((512, 512)).save(path)", "logging"),
        ("augment", "print()", "other"),
    ],
)
def test_an_image_that_is_written_is_logging_and_one_that_is_encoded_for_a_batch_is_none(at, use, phase):
    run = Script(
        dedent(f"""
            for images, y in loader:  # fetch
                images = compressed(images, quality=50)  # augment
                out = model(images)  # forward
                loss = criterion(out, y)
                loss.backward()  # backward
                optimizer.step()  # update
                {use}  # write
        """)
    )
    for _ in range(20):
        with run.at("fetch"):
            run.fetch(1, 1)
        if at == "augment":
            with run.at(at), run.library("PIL.Image:Image.save", "PIL.JpegImagePlugin:_save"):
                run.work(20)
        with run.at("forward"):
            run.forward(2)
        with run.at("backward"):
            run.backward(2)
        with run.at("update"):
            run.update(1)
        if at == "write":
            with run.at(at), run.library("PIL.Image:Image.save", "PIL.PngImagePlugin:_save"):
                run.work(20)
    told = [line for line in measure(run.process(), {}).lines if line.place.line == run.line(at)]
    assert {line.phase for line in told} == {phase}
    assert {line.role for line in told} == {"logging" if phase == "logging" else "targets"}


def test_a_queue_that_is_polled_by_a_selector_is_no_viewer():
    run = Script(
        dedent("""
            for step in range(500):
                x, y = batches.get(timeout=60)  # get
                out = model(x)  # forward
                out.backward()  # backward
                optimizer.step()  # update
            """)
    )
    polls = ("multiprocessing.queues:get", "multiprocessing.connection:wait", "selectors:select")
    for _ in range(20):
        with run.at("get"), run.library(*polls):
            run.work(20, on_cpu=0.0)
        with run.at("forward"):
            run.forward(2)
        with run.at("backward"):
            run.backward(2)
        with run.at("update"):
            run.update(1)
    waits = [line for line in measure(run.process(), {}).lines if line.library == "selectors"]
    assert {line.role for line in waits if line.phase != "startup"} == {"input"}


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
    steps = measure(run.process(), {})
    lines = [line for line in steps.lines if line.library == "transformers.trainer"]
    assert {line.role for line in lines} == {role}
    assert steps.per_step(phase) == pytest.approx(0.02, abs=0.002)
    assert (steps.source_loop, steps.framework_call and steps.framework_call.line) == (None, 2)
    assert {line.within for line in lines} == {calls[-1]}


def test_a_rollout_that_a_framework_collects_is_input_and_its_evaluation_is_none_of_it():
    """stable-baselines3: the policy is put into evaluation mode for both."""
    run = Script("agent = PPO(env)\nagent.learn(9000)\n")
    learn = ("stable_baselines3.ppo:PPO.learn", "stable_baselines3.common:OnPolicyAlgorithm.collect_rollouts")
    callback = ("stable_baselines3.common:EvalCallback._on_step", "stable_baselines3.common:evaluate_policy")
    with run.at(2):
        for rollout in range(8):
            run.mark(training=False)
            with run.library(*learn):
                for _ in range(20):
                    run.work(8)
                    run.forward(2, grad=False, training=False)
            if rollout % 4 == 3:
                with run.library(*learn, *callback):
                    for _ in range(20):
                        run.mark(training=False)
                        run.evaluate(2)
                        run.work(3)
                with run.library(*learn):
                    for _ in range(10):
                        run.work(8)
                        run.forward(2, grad=False, training=False)
            run.mark(training=True)
            for _ in range(5):
                with run.library("stable_baselines3.ppo:PPO.learn", "stable_baselines3.ppo:PPO.train"):
                    run.forward(2)
                    run.backward(4)
                    run.update(1)
    steps = measure(run.process(), {})
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
        with run.at(2):
            run.call(row.FORWARD, 20, obj=2, flags=row.FORWARD_TRAINING)
        with run.at(3):
            run.forward(2, grad=False, module=3)
            run.forward(2)
            run.backward(2)
        with run.at(4):
            run.update(1)
    steps = measure(run.process(), {})
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
        with run.at(3):
            run.update(1)
    steps = measure(run.process(), {})
    assert steps.source_loop is not None and steps.framework_call is None


def test_a_function_nested_too_deep_is_not_understood_and_the_rest_of_its_file_is():
    deep = "+".join(["x"] * 900)
    source = parse(["w = nn.Parameter(x)", "def f(x):", f"    return {deep}", "def g(x):", "    return x"])
    assert source is not None
    assert source.function("f", 2) is None
    assert source.function("g", 4) is not None
    assert source.function("<module>", 1) is source.tree


def test_a_file_is_parsed_once():
    lines = ["def f(x):", "    return x"]
    assert parse(lines, ["SGD"]) is parse(list(lines), ["SGD"])
    assert parse(lines, ["Adam"]) is not parse(lines, ["SGD"])
