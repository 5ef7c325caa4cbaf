import torch


def train_epoch(model, optimizer, epoch):
    model.train()
    for batch in loader:
        loss = model(batch)
        loss.backward()
        optimizer.step()


def main():
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    epoch = 0
    while epoch < 3:
        train_epoch(model, optimizer, epoch)
        epoch += 1


if __name__ == "__main__":
    main()
