import torch


def train(model, x, y, optimizer):
    for epoch in range(1000):
        loss = (model(x) - y).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if epoch % 10 == 0:
            torch.save(model.state_dict(), "last.pt")
