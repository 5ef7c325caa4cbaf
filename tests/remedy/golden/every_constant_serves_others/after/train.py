import torch

EVERY = 100


def evaluate(net):
    net.eval()
    net.train()


def main():
    for step, batch in enumerate(loader):
        loss = model(batch)
        loss.backward()
        if step % EVERY == 0:
            print(step, loss.item())
        if step % (EVERY * 4) == 0:
            evaluate(model)


if __name__ == '__main__':
    main()
