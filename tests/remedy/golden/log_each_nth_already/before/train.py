import torch
from torch.utils.tensorboard import SummaryWriter


def main():
    for i, batch in enumerate(loader):
        loss = model(batch)
        loss.backward()
        if i % 2 == 0:
            writer.add_scalar('train/loss', loss.item(), i)


if __name__ == '__main__':
    main()
