import torch
from torch.utils.tensorboard import SummaryWriter


def main():
    for epoch in range(3):
        for batch in loader:
            loss = model(batch)
            loss.backward()
            seen += len(batch)
            writer.add_scalar('train/loss', loss.item(), epoch)
            writer.add_scalar('train/lr', lr, seen)


if __name__ == '__main__':
    main()
