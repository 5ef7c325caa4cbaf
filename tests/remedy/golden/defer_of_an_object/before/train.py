import torch
from torch import nn


class Trainer:
    def epoch(self):
        for images, labels in self.loader:
            loss = self.criterion(self.model(images), labels)
            loss.backward()
            self.optimizer.step()
            self.total += loss.item()
            self.stats["loss"] += loss.item()
