import torch


def train(model, optimizer, loader):
    for epoch in range(3):
        for batch in loader:
            loss = model(batch)
            loss.backward()
            optimizer.step()


model = Net()
optimizer = torch.optim.AdamW(model.parameters())
train(model, optimizer, easy)
train(model, optimizer, hard)
