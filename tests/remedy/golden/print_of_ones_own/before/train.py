import torch

from rich import print


def main():
    for step in range(steps):
        loss = model(next(batches))
        loss.backward()
        print(name, loss)


if __name__ == '__main__':
    main()
