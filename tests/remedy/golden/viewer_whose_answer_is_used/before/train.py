import torch


def main():
    for step in range(steps):
        loss = model(next(batches))
        loss.backward()
        paused = viewer.poll(model)


if __name__ == '__main__':
    main()
