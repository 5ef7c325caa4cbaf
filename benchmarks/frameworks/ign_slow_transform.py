"""pytorch-ignite: every sample is normalized in Python."""

import torch
from ignite.contrib.handlers import ProgressBar
from ignite.engine import Events, create_supervised_evaluator, create_supervised_trainer
from ignite.handlers import ModelCheckpoint
from ignite.metrics import Accuracy, Loss
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Signals(Dataset):
    def __init__(self, size, seed):
        self.data = torch.randn(size, 200, generator=torch.Generator().manual_seed(seed))

    def __len__(self):
        return len(self.data)

    def __getitem__(self, index):
        values = self.data[index].tolist()
        mean = sum(values) / len(values)
        smooth = []
        for at in range(len(values)):
            window = values[max(0, at - 5) : at + 6]
            smooth.append(sum(window) / len(window) - mean)
        return torch.tensor(smooth), int(mean > 0)


def main():
    model = nn.Sequential(nn.Linear(200, 128), nn.ReLU(), nn.Linear(128, 2))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.CrossEntropyLoss()
    train_loader = DataLoader(Signals(1600, 0), batch_size=32, shuffle=True)
    val_loader = DataLoader(Signals(320, 1), batch_size=32)
    trainer = create_supervised_trainer(model, optimizer, criterion)
    evaluator = create_supervised_evaluator(model, metrics={"accuracy": Accuracy(), "nll": Loss(criterion)})
    ProgressBar().attach(trainer, output_transform=lambda loss: {"loss": loss})

    @trainer.on(Events.EPOCH_COMPLETED)
    def validate(engine):
        evaluator.run(val_loader)
        print(engine.state.epoch, evaluator.state.metrics)

    trainer.add_event_handler(Events.EPOCH_COMPLETED, ModelCheckpoint("out-ign", "net", require_empty=False), {"model": model})
    trainer.run(train_loader, max_epochs=4)


if __name__ == "__main__":
    main()
