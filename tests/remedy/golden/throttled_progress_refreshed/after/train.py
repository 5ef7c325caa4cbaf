import torch
from tqdm import tqdm


def main():
    bar = tqdm(loader, mininterval=1.0)
    for x, y in bar:
        loss = model(x)
        loss.backward()
        bar.refresh()
    chart.refresh()


if __name__ == '__main__':
    main()
