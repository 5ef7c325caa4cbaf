import torch
from torch.utils.data import DataLoader, Dataset


class Scans(Dataset):
    def __len__(self):
        return 300

    def __getitem__(self, index):
        return torch.load(f"{index}.pt")


train_loader = DataLoader(Scans(), batch_size=16, num_workers=12, prefetch_factor=4)
