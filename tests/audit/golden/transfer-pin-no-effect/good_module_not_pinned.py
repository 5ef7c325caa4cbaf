from torch import nn
from torch.utils.data import DataLoader, Dataset


class View(nn.Module):
    pass


class Pinned(nn.Module):
    def pin_memory(self):
        self.image = self.image.pin_memory()
        return self


class Views(Dataset):
    def __getitem__(self, index):
        return View()


class PinnedViews(Dataset):
    def __getitem__(self, index):
        return Pinned()


def make():
    return [
        DataLoader(Views(), batch_size=None),
        DataLoader(Views(), batch_size=None, pin_memory=False),
        DataLoader(PinnedViews(), batch_size=None, pin_memory=True),
    ]
