"""Passes in evaluation mode: whether what they make is trained on."""

from __future__ import annotations

import ast
from textwrap import dedent, indent

import pytest
from tests.scenarios.builder import Script

from hotloop.measure import measure
from hotloop.measure.paths import held_by_self

#: A function that asks the model for every batch of a loader, and the loop that calls it.
CALLED = """
    import numpy as np
    import torch
    from torch.utils.data import DataLoader, Dataset, Subset, TensorDataset

    class FeatureFile(Dataset):
        def __init__(self, root):
            self.x = np.load(root / "features.npy")

    def replace(target, values):
        target.labels[:] = values

    def accuracy_of(out, y):
        return (out.argmax(1) == y).float().mean()

    def predict(model, loader, bank=None):
        model.eval()
        kept = []
        for x, y in loader:  # ask
            out = model(x)  # model
            {kept}
        {returned}

    def train(model, loader, weight=1.0):
        for x, y in loader:  # fetch
            loss = criterion(model(x), y)  # forward
            loss.backward()  # backward
            optimizer.step()  # update

    {before}
    for epoch in range(6):
        {use}  # call
        train(model, loader)  # train
        {after}
"""
KEPT = "kept.append(out.argmax(1))"
RETURNED = "return torch.cat(kept)"
BEFORE = "dataset = Images(root); loader = DataLoader(dataset, batch_size=8); history = []; best = None"
DEFAULTS = {"kept": KEPT, "returned": RETURNED, "before": BEFORE, "after": "pass"}

TRAINED_ON = {
    "a dataset made of them": {"use": "loader = DataLoader(TensorDataset(images, predict(model, plain)))"},
    "a dataset changed in place": {"use": "dataset.labels[:] = predict(model, plain)"},
    "an attribute of a dataset": {"use": "dataset.labels = predict(model, plain)"},
    "by a method": {"use": "dataset.relabel(predict(model, plain))"},
    "by a method of what is called otherwise": {
        "before": f"{BEFORE}; corpus = Corpus(); loader = DataLoader(corpus)",
        "use": "corpus.revise(predict(model, plain))",
    },
    "by a function": {"use": "replace(dataset, predict(model, plain))"},
    "after the epoch": {"use": "fresh = predict(model, plain)", "after": "loader.dataset.labels = fresh"},
    "the hardest samples": {
        "kept": "kept.extend(per_sample(out, y).tolist())",
        "returned": "return np.array(kept)",
        "use": "hard = np.argsort(predict(model, plain))[-9:]; loader = DataLoader(Subset(dataset, hard))",
    },
    "those that are sure": {
        "kept": "for i, p in zip(y, out.max(1)):\n    if p > 0.9: kept.append(i)",
        "returned": "return kept",
        "use": "loader = DataLoader(Subset(dataset, predict(model, plain)))",
    },
    "weights of a sampler": {
        "before": f"{BEFORE}; sampler = Weighted(); loader = DataLoader(dataset, sampler=sampler)",
        "use": "sampler.weights[:] = predict(model, plain)",
    },
    "by another name": {
        "before": f"{BEFORE}; labels = dataset.labels",
        "use": "labels[:] = predict(model, plain)",
    },
    "a memory that is handed over": {
        "kept": "bank[y] = out",
        "returned": "return None",
        "use": "predict(model, plain, bank=dataset.features)",
    },
    "a file": {
        "returned": "np.save(root / 'features.npy', torch.cat(kept))",
        "use": "predict(model, plain)",
        "after": "loader = DataLoader(FeatureFile(root))",
    },
    "a file of a name": {
        "returned": "torch.save(kept, bank)",
        "use": "predict(model, plain, path); loader = DataLoader(Stored(path))",
    },
    "one of two answers": {
        "returned": "return len(kept), torch.cat(kept)",
        "use": "count, labels = predict(model, plain); loader = make_loader(images, labels)",
    },
}

ONLY_LOOKED_AT = {
    "a loss for a schedule": {
        "kept": "kept.append(criterion(out, y))",
        "returned": "return torch.stack(kept).mean()",
        "use": "scheduler.step(predict(model, plain))",
    },
    "the best model": {
        "use": "acc = accuracy_of(predict(model, plain), labels)\n"
        "if best is None or acc > best: best = acc; torch.save({'acc': acc, 'model': model}, 'best.pt')",
        "after": "model.load_state_dict(torch.load('best.pt')['model'])",
    },
    "early stopping": {"use": "if stopper.update(predict(model, plain)): stopped = True"},
    "a history": {"use": "history.append(predict(model, plain))"},
    "predictions kept in a file": {"use": "np.save('predictions.npy', predict(model, plain))"},
    "names that training binds anew": {"use": "x = y = loss = out = predict(model, plain)"},
    "one of two answers, and the other is kept": {
        "returned": "return len(kept), torch.cat(kept)",
        "use": "count, shown = predict(model, plain)",
        "after": "train(model, loader, weight=count)",
    },
    "a score among the settings": {
        "before": f"{BEFORE}; args = parse(); loader = make_loader(args)",
        "use": "args.best = predict(model, plain)",
    },
    "a file that the settings name": {
        "before": f"{BEFORE}; args = parse(); loader = make_loader(args)",
        "use": "torch.save(predict(model, plain), args.out)",
        "after": "loader = make_loader(args)",
    },
    "a history beside the loader": {
        "before": f"{BEFORE}; history = History(); loader = Prepared(dataset, history)",
        "use": "history.push(predict(model, plain))",
    },
    "a tuner that chose the size of batches": {
        "use": "trial = tuner.ask(); loader = DataLoader(dataset, batch_size=trial.number)\n"
        "tuner.tell(trial, predict(model, plain))",
    },
    "a smaller learning rate": {
        "use": "if predict(model, plain) < best: optimizer.groups[0]['lr'] *= 0.5",
        "after": "loader = Prepared(dataset, optimizer)",
    },
    "a score beside the loaders": {
        "before": f"{BEFORE}; state = dict(loader=loader, best=0)",
        "use": "state['best'] = predict(model, plain); loader = state['loader']",
    },
    "the text of a bar": {
        "use": "shown = predict(model, plain); loader = tqdm(loader, desc=shown)",
    },
    "a folder that is called as a key is": {
        "use": "torch.save(predict(model, plain), os.path.join('runs', 'image'))",
        "after": "loader = make_loader('image')",
    },
    "a note in what also knows the loader": {
        "before": f"{BEFORE}; context = Context(dataset, loader)",
        "use": "context.shown = predict(model, plain); loader = context.get_loader()",
    },
    "told to what also knows the loader": {
        "before": f"{BEFORE}; context = Context(dataset, loader)",
        "use": "context.notice(predict(model, plain)); loader = context.loader",
    },
    "told to a state": {
        "before": f"{BEFORE}; state = dict(loader=loader, best=0)",
        "use": "state.update(shown=predict(model, plain)); loader = state['loader']",
    },
    "shapes": {"use": "n = predict(model, plain).shape[0]; loader = DataLoader(dataset, batch_size=n)"},
}


def test_what_a_method_keeps_is_known_by_what_it_was_made_of():
    method = ast.parse(
        "def __init__(self, net, data):\n    self.net, self.data = net, data\n"
        "    loader = DataLoader(data)\n    self.loader = loader\n    self.other = Other()"
    ).body[0]
    assert isinstance(method, ast.FunctionDef)
    kept = held_by_self(method)
    assert kept["self.loader"] == {"self.data"}
    assert kept["self.net"] == kept["self.other"] == set()


def passes_between_epochs(source: str) -> tuple[float, int]:
    """Six passes of 80 ms, each before ten steps: seconds of evaluation, evaluations."""
    run = Script(source, sample_ms=0.937)
    run.note("loader", id=1, where=0)
    run.note("loader", id=2, where=0)
    for epoch in range(6):
        with run.at("call", "ask"):
            run.iterate(100 + epoch, loader=2)
        for _ in range(8):
            with run.at("call", "ask"):
                run.fetch(100 + epoch, 1)
            with run.at("call", "model"):
                run.evaluate(9)
        with run.at("call", "ask"):
            run.fetch(100 + epoch, 0.1, end=True)
        with run.at("train", "fetch"):
            run.iterate(200 + epoch)
        for _ in range(10):
            with run.at("train", "fetch"):
                run.fetch(200 + epoch, 1)
            with run.at("train", "forward"):
                run.forward(3)
            with run.at("train", "backward"):
                run.backward(4)
            with run.at("train", "update"):
                run.update(1)
        with run.at("train", "fetch"):
            run.fetch(200 + epoch, 0.1, end=True)
    steps = measure(run.process(), {})
    assert steps.num_steps == 60
    return steps.span_totals["evaluation"], len(steps.evaluations)


def written(changed: dict[str, str]) -> str:
    """The script with its parts in place, of several lines or of one."""
    source = dedent(CALLED)
    for name, text in (DEFAULTS | changed).items():
        line = next(line for line in source.splitlines() if f"{{{name}}}" in line)
        space = line[: len(line) - len(line.lstrip())]
        lines = text.splitlines()
        # The mark stays on the line that calls.
        marked = [one + line.partition("}")[2] if "predict(" in one else one for one in lines]
        source = source.replace(line, indent("\n".join(marked), space))
    return source


@pytest.mark.parametrize("name", TRAINED_ON)
def test_a_pass_whose_results_are_trained_on_is_no_evaluation(name):
    assert passes_between_epochs(written(TRAINED_ON[name])) == (0.0, 0)


@pytest.mark.parametrize("name", ONLY_LOOKED_AT)
def test_a_pass_whose_results_are_only_looked_at_is_an_evaluation(name):
    seconds, number = passes_between_epochs(written(ONLY_LOOKED_AT[name]))
    assert number == 6
    assert seconds == pytest.approx(0.4, rel=0.3)


OF_ONE_NUMBER = [
    "torch.cat(kept).mean()",
    "np.mean(kept)",
    "max(0.0, kept[0])",
    "sum(1 for one in kept if one == 1)",
    "f'{kept}'",
    "'%s' % kept",
    "criterion(torch.cat(kept), y)",
    "F.cross_entropy(torch.cat(kept), y)",
]
OF_EACH = [
    "torch.cat(kept).max(1)",
    "torch.cat(kept).mean(dim=0)",
    "np.max(kept, 1)",
    "sum(kept)",
    "F.cross_entropy(torch.cat(kept), y, reduction='none')",
]


@pytest.mark.parametrize("answer", OF_ONE_NUMBER + OF_EACH)
def test_one_number_of_a_pass_is_only_looked_at(answer):
    source = written(
        {"returned": f"return {answer}", "use": "loader = make_loader(images, predict(model, plain))"}
    )
    assert passes_between_epochs(source)[1] == (6 if answer in OF_ONE_NUMBER else 0)


def test_of_a_source_that_takes_too_long_to_follow_nothing_is_said(monkeypatch):
    calls = ", ".join(["one(2)"] * 60)
    source = written(TRAINED_ON["a dataset changed in place"] | {"before": f"{BEFORE}; more = [{calls}]"})
    assert passes_between_epochs(source)[1] == 0
    monkeypatch.setattr("hotloop.measure.feeding.MOST_STATEMENTS", 60)
    assert passes_between_epochs(source)[1] == 6


METHODS = """
    import torch
    class Trainer:
        def __init__(self, model, data):
            self.model, self.data = model, data
            self.optimizer = Adam(model.parameters())
            self.loader = DataLoader(data, shuffle=True)
            self.plain = DataLoader(data)
        def compute_loss(self, x, y):
            return criterion(self.model(x), y)
        def look(self):
            parts = []
            for x, y in self.plain:  # ask
                parts.append(self.model(x))  # model
            {kept}
        def epoch(self):
            for x, y in self.loader:  # fetch
                loss = self.compute_loss(x, y)  # forward
                loss.backward()  # backward
                self.optimizer.step()  # update
        def fit(self):
            for _ in range(6):
                answer = self.look()  # call
                self.epoch()  # train
"""


@pytest.mark.parametrize(
    ("kept", "evaluates"),
    [
        ("self.predictions = torch.cat(parts)", True),
        ("self.metrics['all'] = torch.cat(parts); return self.metrics", True),
        ("self.data.labels = torch.cat(parts)", False),
        ("self.loader = DataLoader(TensorDataset(self.data, torch.cat(parts)))", False),
    ],
)
def test_what_a_trainer_keeps_of_a_pass_is_trained_on_where_its_loader_was_made_of_it(kept, evaluates):
    assert passes_between_epochs(dedent(METHODS).format(kept=kept))[1] == (6 if evaluates else 0)


ROLLED = """
    import torch
    def play(policy, env):
        obs, done = env.reset(), False
        seen, rewards = [], []
        while not done:
            value = critic(obs)  # value
            action = policy(obs)  # ask
            obs, reward, done, info = env.step(int(action))
            seen.append((obs, action)); rewards.append(reward)
        {returned}
    for round in range(6):
        {use}  # call
        for _ in range(10):
            x, y = batch(memory)
            with torch.no_grad(): goal = teacher(x)  # teach
            loss = criterion(policy(x), y, goal)  # forward
            loss.backward()  # backward
            optimizer.step()  # update
"""


@pytest.mark.parametrize(
    ("returned", "use", "is_input"),
    [
        ("return seen", "memory.extend(play(policy, env))", True),
        ("return seen", "memory = play(policy, env)", True),
        ("return sum(rewards)", "returns.append(play(policy, env))", False),
    ],
)
def test_a_policy_asked_for_a_rollout_makes_batches_and_a_teacher_does_not(returned, use, is_input):
    run = Script(dedent(ROLLED).format(returned=returned, use=use), sample_ms=0.937)
    for _ in range(6):
        for _ in range(20):
            with run.at("call", "value"):
                run.forward(1, module=3, grad=False)
            with run.at("call", "ask"):
                run.forward(4, module=2, grad=False)
        for _ in range(10):
            with run.at("teach"):
                run.forward(2, module=4, grad=False)
            with run.at("forward"):
                run.forward(3)
            with run.at("backward"):
                run.backward(4)
            with run.at("update"):
                run.update(1)
    steps = measure(run.process(), {})
    # The span begins with the first step: of six rollouts five lie in it.
    asked = steps.span_totals["data_wait"]
    assert asked == (pytest.approx(0.5, rel=0.25) if is_input else 0)
    assert steps.span_totals["forward"] >= 0.3 - 1e-9


ACTING = """
    import torch
    for step in range(60):
        with torch.no_grad(): action = policy(obs).argmax().item()  # ask
        obs, reward, done, info = env.step(action)
        memory.append((obs, action, reward))
        x, r = memory.sample()
        with torch.no_grad(): goal = r + target(x)  # teach
        loss = criterion(policy(x), goal)  # forward
        loss.backward()  # backward
        optimizer.step()  # update
"""


def test_a_policy_that_acts_in_the_training_loop_makes_batches_and_its_target_network_does_not():
    run = Script(dedent(ACTING), sample_ms=0.937)
    for _ in range(60):
        with run.at("ask"):
            run.forward(2, grad=False)
        with run.at("teach"):
            run.forward(2, module=2, grad=False)
        with run.at("forward"):
            run.forward(3)
        with run.at("backward"):
            run.backward(4)
        with run.at("update"):
            run.update(1)
    steps = measure(run.process(), {})
    assert steps.span_totals["data_wait"] == pytest.approx(0.12, rel=0.1)
    assert steps.span_totals["forward"] == pytest.approx(0.3, rel=0.1)
