import torch


def evaluate(net):
    net.eval()
    net.train()


def main():
    for step, batch in enumerate(loader):
        loss = model(batch)
        loss.backward()
        if step % 50 == 0:
            validate(model)


def validate(model):
    accuracy = evaluate(model)
    scheduler.step(accuracy)


if __name__ == '__main__':
    main()
