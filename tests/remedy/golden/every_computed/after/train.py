import torch


def evaluate(net):
    net.eval()
    net.train()


def main():
    every = len(loader) // 4
    for step, batch in enumerate(loader):
        loss = model(batch)
        loss.backward()
        if step % (every * 4) == 0:
            evaluate(model)
        if step % (len(loader) // 2) == 0:
            save(model)


if __name__ == '__main__':
    main()
