import torch


class Log:
    def __init__(self, writer):
        self.writer = writer

    def scalar(self, name, value, step):
        self.writer.add_scalar(name, value, step)


def main():
    log = Log(writer)
    tell = log.scalar
    for epoch in range(3):
        for step, batch in enumerate(loader):
            loss = model(batch)
            loss.backward()
            log.scalar("loss", loss.item(), step)
        tell("accuracy", evaluate(model), epoch)


main()
