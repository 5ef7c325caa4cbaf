import torch
from torch.utils.data import DataLoader


def main(dataset, model, optimizer):
    loader = DataLoader(dataset, batch_size=8, shuffle=True, num_workers=4)
    batches = iter(loader)
    for step in range(1000):
        x, y = next(batches)
        loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
