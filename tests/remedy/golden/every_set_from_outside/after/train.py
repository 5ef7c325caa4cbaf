import torch


class Trainer:
    def __init__(self):
        self.every = 50

    def run(self):
        for step, batch in enumerate(loader):
            loss = self.model(batch)
            loss.backward()
            if 0 == step % (self.every * 4):
                evaluate(self.model)


def main():
    trainer = Trainer()
    trainer.every = 20
    trainer.run()


if __name__ == '__main__':
    main()
