import yaml

import torch
from torch.utils.data import DataLoader


def build():
    data_cfg = None
    return DataLoader(data, num_workers=24)


with open('a.yaml') as stream:
    cfg = yaml.safe_load(stream)
loader = build()
