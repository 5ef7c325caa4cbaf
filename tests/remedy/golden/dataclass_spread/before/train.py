from dataclasses import asdict, replace

from torch.utils.data import DataLoader

from config import Config


def build(config):
    return DataLoader(data, **asdict(config.loading))


given = dict(lr=0.1)
loader = build(replace(Config(), **given))
