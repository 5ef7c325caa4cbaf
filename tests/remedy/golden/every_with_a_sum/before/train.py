import torch


def evaluate(net):
    net.eval()
    net.train()


def main():
    running = 0.0
    for step, batch in enumerate(loader):
        loss = model(batch)
        loss.backward()
        running += loss.item()
        if step % 50 == 0:
            print(running / 50, evaluate(model))
            running, seen = 0.0, 0


if __name__ == '__main__':
    main()
