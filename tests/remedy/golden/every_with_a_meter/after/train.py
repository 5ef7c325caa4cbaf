import torch


def evaluate(net):
    net.eval()
    net.train()


def main():
    tau, best = 1.0, 0.0
    for step, batch in enumerate(loader):
        loss = model(batch, tau)
        loss.backward()
        if step % 200 == 0:
            accuracy = evaluate(model)
            average_meter.update(accuracy)
    print(best)


if __name__ == '__main__':
    main()
