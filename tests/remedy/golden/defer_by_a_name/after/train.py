import torch
from torch import nn


class Trainer:
    def epoch(self, number):
        total_loss = 0.0
        every = []
        for i, (images, labels) in enumerate(self.loader):
            loss = self.criterion(self.model(images), labels)
            loss.backward()
            self.optimizer.step()
            value = loss.detach().clone()
            n = images.shape[0]
            total_loss += value.double() * n
            every.append(value)
            if i % self.log_every == 0:
                self.log(step=i, loss=float(value), mean=float(total_loss) / (i + 1))
        every[:] = map(float, every)
        print(f"{number}: last {float(value):.4f}, mean {float(total_loss) / len(self.loader.dataset):.4f}")
        return float(total_loss), every
