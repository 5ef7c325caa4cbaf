import torch
from torch.utils.data import DataLoader

from config import Node


def of_trainer():
    options = Node()
    options.workers = 4
    return options


def defaults():
    options = Node()
    options.trainer = of_trainer()
    options.trainer.rate = 0.1
    return options


class Trainer:
    def __init__(self, config):
        self.config = config

    def run(self):
        config = self.config
        for x in DataLoader(data, num_workers=config.workers):
            step(x)


options = defaults()
trainer = Trainer(options.trainer)
trainer.run()
