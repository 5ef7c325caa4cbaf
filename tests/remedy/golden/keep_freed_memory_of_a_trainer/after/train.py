import torch
import ctypes
import sys


class Trainer:
    def __init__(self):
        self.model = Net()
        self.optimizer = torch.optim.AdamW(self.model.parameters())

    def train(self):
        if sys.platform == "linux":  # glibc keeps what a step frees: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
            ctypes.CDLL(None).mallopt(-3, 1 << 30) or ctypes.CDLL(None).mallopt(-3, 32 << 20)
            ctypes.CDLL(None).mallopt(-1, (1 << 31) - 1)
        for epoch in range(3):
            self.model.train()
            self.run(epoch)

    def run(self, epoch):
        for batch in loader:
            loss = self.model(batch)
            loss.backward()
            self.optimizer.step()


Trainer().train()
