import torch
from torch.utils.data import DataLoader

from dataclasses import dataclass


@dataclass
class Config:
    workers: int = 4
    batch: int = 8


def build(config):
    return DataLoader(data, config.batch, num_workers=config.workers)


loader = build(Config(batch=4))
