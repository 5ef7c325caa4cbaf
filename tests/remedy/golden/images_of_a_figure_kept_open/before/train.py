import matplotlib.pyplot as plt
import torch


def main():
    for i, batch in enumerate(loader):
        fig = draw(batch)
        loss = model(batch)
        loss.backward()
        writer.add_figure('samples', fig, i)


if __name__ == '__main__':
    main()
