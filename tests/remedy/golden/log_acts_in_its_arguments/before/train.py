import torch
from torch.utils.tensorboard import SummaryWriter


def main():
    for i, batch in enumerate(loader):
        loss = model(batch)
        loss.backward()
        writer.add_scalar('train/loss', losses.pop(), i)


if __name__ == '__main__':
    main()
