"""Accelerate: a plain loop; every sample is normalized in Python."""

import torch
from accelerate import Accelerator
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


def evaluate(accelerator, model, loader):
    model.eval()
    right = total = 0
    with torch.no_grad():
        for inputs, targets in loader:
            predictions = model(inputs).argmax(-1)
            predictions, targets = accelerator.gather_for_metrics((predictions, targets))
            right += (predictions == targets).sum().item()
            total += len(targets)
    model.train()
    return right / total


def main():
    accelerator = Accelerator(cpu=True, gradient_accumulation_steps=2)
    model = nn.Sequential(nn.Linear(200, 128), nn.ReLU(), nn.Linear(128, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    train_loader = DataLoader(Signals(1600, 0), batch_size=32, shuffle=True)
    eval_loader = DataLoader(Signals(160, 1), batch_size=32)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, total_iters=400)
    model, optimizer, train_loader, eval_loader, scheduler = accelerator.prepare(
        model, optimizer, train_loader, eval_loader, scheduler
    )
    criterion = nn.CrossEntropyLoss()
    for epoch in range(4):
        for inputs, targets in train_loader:
            with accelerator.accumulate(model):
                loss = criterion(model(inputs), targets)
                accelerator.backward(loss)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
        accelerator.print(epoch, loss.item(), evaluate(accelerator, model, eval_loader))
    accelerator.save_state("out-acc")


if __name__ == "__main__":
    main()
