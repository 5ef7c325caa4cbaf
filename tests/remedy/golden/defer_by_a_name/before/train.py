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
            value = loss.item()
            n = images.shape[0]
            total_loss += value * n
            every.append(value)
            if i % self.log_every == 0:
                self.log(step=i, loss=value, mean=total_loss / (i + 1))
        print(f"{number}: last {value:.4f}, mean {total_loss / len(self.loader.dataset):.4f}")
        return total_loss, every
