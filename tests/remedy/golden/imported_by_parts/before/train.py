import torch
import torch.nn as nn
import torch.optim
import torch.utils.data
import torch.utils.data.distributed


def main(dataset, epochs):
    model = nn.Linear(4, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    loader = torch.utils.data.DataLoader(dataset, batch_size=8, num_workers=2)
    for epoch in range(epochs):
        for x, y in loader:
            loss = nn.functional.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        torch.save(model.state_dict(), "checkpoint.pth.tar")
