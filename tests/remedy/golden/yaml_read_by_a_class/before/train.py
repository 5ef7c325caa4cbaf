import yaml
import torch
from torch.utils.data import DataLoader

class Config:
    def __init__(self, path):
        self.raw = yaml.safe_load(open(path))


class Trainer:
    def __init__(self, config):
        self.config = config

    def loader(self):
        return DataLoader(data, self.config.raw['batch_size'], num_workers=2)


Trainer(Config('a.yaml')).loader()
