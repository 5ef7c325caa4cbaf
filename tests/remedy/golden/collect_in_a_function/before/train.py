import gc

import torch


def train(batch):
    loss = model(batch)
    loss.backward()
    gc.collect()


def main():
    for step in range(steps):
        train(next(batches))


if __name__ == '__main__':
    main()
