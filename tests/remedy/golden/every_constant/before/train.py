import torch

LOG_EVERY = 10
EVAL_EVERY = 100  # steps


def evaluate(net):
    net.eval()
    net.train()


def main():
    for step, batch in enumerate(loader):
        loss = model(batch)
        loss.backward()
        if step % EVAL_EVERY == 0:
            evaluate(model)


if __name__ == '__main__':
    main()
