import torch


class Base:
    def validate(self, model):
        evaluate(model)
        for group in self.optimizer.param_groups:
            group['lr'] *= 0.5


class Trainer(Base):
    def fit(self, model):
        for step, batch in enumerate(loader):
            loss = model(batch)
            loss.backward()
            if step % 50 == 0:
                self.validate(model)


def main():
    Trainer().fit(model)


if __name__ == '__main__':
    main()
