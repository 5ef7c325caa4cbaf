import torch


def evaluate(net):
    net.eval()
    net.train()


def main():
    for epoch in range(3):
        for batch in loader:
            loss = model(batch)
            loss.backward()
        evaluate(model)


if __name__ == '__main__':
    main()
