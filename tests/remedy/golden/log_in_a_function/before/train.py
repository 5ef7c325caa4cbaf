import torch
from torch.utils.tensorboard import SummaryWriter


class Log:
    def write(self, values, step):
        for name, value in values.items(): self.writer.add_scalar(name, value, step)
        self.last = step


def main():
    log = Log()
    step = 0
    for batch in loader:
        loss = model(batch)
        loss.backward()
        log.write({'loss': loss.item()}, step)
        step += 1


if __name__ == '__main__':
    main()
