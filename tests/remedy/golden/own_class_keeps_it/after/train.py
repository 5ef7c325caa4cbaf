import torch
from torch.utils.data import DataLoader

class Trainer:
    def __init__(self, data, workers=4):
        self.data = data
        self.workers = workers

    def loader(self):
        return DataLoader(self.data, 8, num_workers=self.workers)


trainer = Trainer(data)
loader = trainer.loader()
