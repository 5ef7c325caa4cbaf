import argparse

import torch
import gc


def train(model, loader, args):
    for x in loader:
        with torch.autocast('cuda', dtype=torch.bfloat16, enabled=args.amp):
            loss = model(x).sum()
        loss.backward()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument('--amp', type=int, default=1)
    parser.add_argument('--compile', action='store_true')
    args = parser.parse_args()
    model = torch.nn.Linear(4, 2)
    model = torch.compile(model) if args.compile else model
    gc.collect()
    gc.freeze()
    for epoch in range(3):
        train(model, loader, args)


if __name__ == '__main__':
    main()
