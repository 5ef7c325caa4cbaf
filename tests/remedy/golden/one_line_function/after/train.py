import torch
from torch.utils.data import DataLoader

def make(): return DataLoader(data, 8, num_workers=4)

if __name__ == '__main__': loader = make()
