from copy import deepcopy

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

    def __len__(self):
        return len(self.views)

    def __getitem__(self, index):
        view = deepcopy(self.views[index])
        view.image = torch.load(view.path, weights_only=True)
        return view


def make(views, cuda):
    return DataLoader(Views(views), batch_size=None, pin_memory=cuda)
