import torch
from torch.utils.tensorboard import SummaryWriter


def main():
    writer = SummaryWriter()
    for epoch in range(3):
        for i, (x, y) in enumerate(tqdm(loader)):
            step = epoch * len(loader) + i
            loss = model(x, y)
            loss.backward()
            for name, p in model.named_parameters():
                writer.add_histogram(name, p, step)
                if p.grad is not None:
                    writer.add_histogram(f'{name}.grad', p.grad, step)


if __name__ == '__main__':
    main()
