import torch


def main():
    while True:
        loss = model(next(batches))
        loss.backward()
        viewer.poll(model)


if __name__ == '__main__':
    main()
