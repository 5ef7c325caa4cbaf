import torch

from log import log
from settings import EVERY


def evaluate(net):
    net.eval()
    net.train()


def main():
    for step, batch in enumerate(loader):
        loss = model(batch)
        loss.backward()
        log(step)
        if step % (EVERY * 4) == 0:
            evaluate(model)


if __name__ == '__main__':
    main()
