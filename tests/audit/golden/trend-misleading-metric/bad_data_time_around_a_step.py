import time

import torch
from torch import nn


class Trainer:
    def __init__(self):
        self.model = nn.Linear(8, 2)
        self.optimizer = torch.optim.SGD(self.model.parameters(), 0.1)
        self.data_time = 0.0

    def epoch(self, loader):
        for batch in loader:
            start = time.time()
            batch = batch.float()
            self.data_time += time.time() - start
            self.train_step(batch)

    def train_step(self, batch):
        self.optimizer.zero_grad()
        self.model(batch).mean().backward()
        self.optimizer.step()
