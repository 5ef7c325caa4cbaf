import torch


def build(cfg, dataset):
    size, depth = cfg.data.samples_per_gpu, cfg.data.get("prefetch_factor", 2)
    return torch.utils.data.DataLoader(dataset, batch_size=size, prefetch_factor=depth)
