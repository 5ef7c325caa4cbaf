import torch


class Trainer:
    beta = 0.1

    def fit(self, model):
        for step, batch in enumerate(loader):
            loss = self.loss(model, batch)
            loss.backward()
            if step % 50 == 0:
                evaluate(model)
                self.beta += 0.1

    def loss(self, model, batch):
        return model(batch) * self.beta


def main():
    Trainer().fit(model)


if __name__ == '__main__':
    main()
