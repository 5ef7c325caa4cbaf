import torch


def evaluate(net):
    net.eval()
    net.train()


def main():
    for batch in loader:
        loss = model(batch)
        loss.backward()
        if rank % 8 == 0:
            evaluate(model)


if __name__ == '__main__':
    main()
