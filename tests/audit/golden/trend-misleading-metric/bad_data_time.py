import time

import torch
from torch import nn
from torch.utils.data import DataLoader


def train(data):
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data_time = 0.0
    for x, y in DataLoader(data, batch_size=8, num_workers=4, persistent_workers=True):
        start = time.time()
        x, y = x.to("cpu"), y.to("cpu")
        data_time += time.time() - start
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(data_time)
