import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class View(nn.Module):
    def __init__(self, path):
        super().__init__()
        self.path = path


class Views(Dataset):
    def __init__(self, views: list[View]):
        self.views = views

    def __getitem__(self, index):
        return {"image": torch.load(self.views[index].path, weights_only=True)}


def make(views):
    return DataLoader(Views(views), batch_size=None, pin_memory=True)
