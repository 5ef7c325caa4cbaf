import torch


def build(cfg, dataset):
    return torch.utils.data.DataLoader(dataset, **cfg.data)
