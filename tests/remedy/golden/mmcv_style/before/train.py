from mmengine import Config
import torch
from torch.utils.data import DataLoader

cfg = Config.fromfile('configs/a.py')
loader = DataLoader(data, num_workers=cfg.data.workers_per_gpu)
