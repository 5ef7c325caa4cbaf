import torch
from torch.utils.data import DataLoader


def main(net, dataset, optimizer):
    model = torch.compile(net)
    train_loader = DataLoader(dataset, batch_size=8, shuffle=True)
    for x, y in train_loader:
        loss = model(x, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
