import torch


class Log:
    def __init__(self, writer):
        self.writer = writer

    def scalar(self, name, value, step):
        self.writer.add_scalar(name, value, step)

    def all(self, values, step):
        for name in values:
            self.scalar(name, values[name], step)


def main():
    log = Log(writer)
    for epoch in range(3):
        for step, batch in enumerate(loader):
            loss = model(batch)
            loss.backward()
            log.all({"loss": loss.item()}, step)
        log.all({"accuracy": evaluate(model)}, epoch)


main()
