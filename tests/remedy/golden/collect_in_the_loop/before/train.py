import gc

import torch


def main():
    for step in range(steps):
        loss = model(next(batches))
        loss.backward()
        # out of memory at night
        gc.collect()
        optimizer.step()


if __name__ == '__main__':
    main()
