import torch


class Log:
    def __init__(self, writer):
        self.writer = writer

    def __call__(self, name, value, step):
        self.writer.add_scalar(name, value, step)


def main():
    log = Log(writer)
    for epoch in range(3):
        for step, batch in enumerate(loader):
            loss = model(batch)
            loss.backward()
            log("loss", loss.item(), step)
        log("accuracy", evaluate(model), epoch)


main()
