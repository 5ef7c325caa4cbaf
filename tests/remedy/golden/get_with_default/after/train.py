import yaml

import torch
from torch.utils.data import DataLoader


def build(cfg):
    data_cfg = cfg['data']
    return DataLoader(data, data_cfg['batch_size'], num_workers=data_cfg.get('num_workers', 4))


with open('a.yaml') as stream:
    cfg = yaml.safe_load(stream)
loader = build(cfg)
