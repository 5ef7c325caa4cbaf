import sys

import yaml
from torch.utils.data import DataLoader

from overrides import overridden

with open('a.yaml') as stream:
    cfg = yaml.safe_load(stream)
overridden(cfg, sys.argv)
loader = DataLoader(data, num_workers=cfg['data']['workers'])
