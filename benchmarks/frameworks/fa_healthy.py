"""fastai: a network that computes."""

import torch
from fastai.callback.tracker import SaveModelCallback
from fastai.data.core import DataLoaders
from fastai.learner import Learner
from fastai.metrics import accuracy
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def images(size):
    return TensorDataset(torch.randn(size, 3, 32, 32), torch.randint(0, 10, (size,)))


model = nn.Sequential(
    nn.Conv2d(3, 64, 3, padding=1), nn.ReLU(), nn.Conv2d(64, 64, 3, padding=1), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(64, 10),
)
dls = DataLoaders(DataLoader(images(1280), batch_size=32, shuffle=True), DataLoader(images(64), batch_size=32))
learn = Learner(dls, model, loss_func=nn.CrossEntropyLoss(), metrics=accuracy, path="out-fa", cbs=SaveModelCallback())
learn.fit(3, 1e-3)
