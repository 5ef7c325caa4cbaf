import torch


class Trainer:
    def __init__(self):
        self.model = Net()
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def train(self):
        for epoch in range(3):
            self.model.train()
            self.run(epoch)

    def run(self, epoch):
        for batch in loader:
            loss = self.model(batch)
            loss.backward()
            self.optimizer.step()


Trainer().train()
