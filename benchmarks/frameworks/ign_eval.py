"""pytorch-ignite: the evaluator runs every five iterations."""

import torch
from ignite.engine import Engine, Events, create_supervised_evaluator
from ignite.metrics import Accuracy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def images(size):
    return TensorDataset(torch.randn(size, 3, 32, 32), torch.randint(0, 10, (size,)))


model = nn.Sequential(
    nn.Conv2d(3, 32, 3, padding=1), nn.ReLU(), nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10),
)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)


def train_step(engine, batch):
    model.train()
    inputs, targets = batch
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(inputs), targets)
    loss.backward()
    optimizer.step()
    return loss.item()


train = DataLoader(images(2560), batch_size=32, shuffle=True)
test = DataLoader(images(320), batch_size=32)
trainer = Engine(train_step)
evaluator = create_supervised_evaluator(model, metrics={"accuracy": Accuracy()})


@trainer.on(Events.ITERATION_COMPLETED(every=5))
def evaluate(engine):
    evaluator.run(test)
    print(engine.state.iteration, engine.state.output, evaluator.state.metrics)


trainer.run(train, max_epochs=2)
