import torch

import settings


def evaluate(net):
    net.eval()
    net.train()


def main():
    for step, batch in enumerate(loader):
        loss = model(batch)
        loss.backward()
        if step % settings.EVAL_EVERY == 0:
            evaluate(model)


if __name__ == '__main__':
    main()
