from omegaconf import OmegaConf
import torch
from torch.utils.data import DataLoader

cfg = OmegaConf.load('a.yaml')
loader = DataLoader(data, num_workers=cfg.loader.num_workers)
