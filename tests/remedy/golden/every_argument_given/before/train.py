import torch

import argparse


def evaluate(net):
    net.eval()
    net.train()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--eval-every', type=int, default=20, help='steps')
    args = parser.parse_args()
    for step, batch in enumerate(loader):
        loss = model(batch)
        loss.backward()
        if step % args.eval_every == 0:
            evaluate(model)


if __name__ == '__main__':
    main()
