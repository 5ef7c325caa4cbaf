import torch


def evaluate(net):
    net.eval()
    net.train()


def main():
    for epoch in range(90):
        train_one(model)
        loss = last(model)
        loss.backward()
        if not (epoch + 1) % 8 or epoch == 89:
            evaluate(model)


if __name__ == '__main__':
    main()
