import torch


class Hooks:
    def after(self, model):
        evaluate(model)
        self.scheduler.step()


class Trainer:
    def __init__(self, model):
        self.model, self.hooks = model, Hooks()

    def fit(self):
        for step, batch in enumerate(loader):
            loss = self.model(batch)
            loss.backward()
            if step % 50 == 0:
                self.hooks.after(self.model)


def main():
    Trainer(model).fit()


if __name__ == '__main__':
    main()
