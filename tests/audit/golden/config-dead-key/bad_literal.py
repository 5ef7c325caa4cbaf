import torch


def build(cfg, dataset):
    return torch.utils.data.DataLoader(dataset, batch_size=cfg.data.samples_per_gpu, prefetch_factor=2)
