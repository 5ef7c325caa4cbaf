import torch

from viewer import Viewer


def main():
    viewer = Viewer()
    for step in range(steps):
        loss = model(next(batches))
        loss.backward()
        if viewer.enabled:
            # who is there
            if step % 50 == 0:
                viewer.poll(model)


if __name__ == '__main__':
    main()
