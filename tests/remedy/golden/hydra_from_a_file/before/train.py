import hydra
import torch
from torch.utils.data import DataLoader

@hydra.main(config_path='c', config_name='c')
def main(cfg):
    return DataLoader(data, num_workers=cfg.data.num_workers)


main()
