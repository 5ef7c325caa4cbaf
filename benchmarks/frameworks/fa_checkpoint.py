"""fastai: the learner is saved after every batch."""

import torch
from fastai.callback.core import Callback
from fastai.data.core import DataLoaders
from fastai.learner import Learner
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class SaveAlways(Callback):
    def after_batch(self):
        if self.training:
            self.learn.save("last")


data = TensorDataset(torch.randn(3200, 512), torch.randint(0, 10, (3200,)))
model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 10))
dls = DataLoaders(DataLoader(data, batch_size=32, shuffle=True), DataLoader(data, batch_size=320))
learn = Learner(dls, model, loss_func=nn.CrossEntropyLoss(), path="out-fa", cbs=SaveAlways())
learn.fit(1, 1e-3)
