import torch

import argparse


def evaluate(net):
    net.eval()
    net.train()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--eval-every', type=int, default=80, help='steps')
    train(parser.parse_args())


def train(args):
    for step, batch in enumerate(loader):
        loss = model(batch)
        loss.backward()
        if args.eval_every and step % args.eval_every == 0:
            evaluate(model)


if __name__ == '__main__':
    main()
