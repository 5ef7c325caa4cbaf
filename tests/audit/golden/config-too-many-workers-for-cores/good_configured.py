from torch.utils.data import DataLoader


def make(data, cfg):
    return DataLoader(data, num_workers=cfg.data.num_workers)
