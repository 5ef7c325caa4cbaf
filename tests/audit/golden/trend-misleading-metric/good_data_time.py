import time

import torch
from torch import nn
from torch.utils.data import DataLoader


def train(data, feed):
    model = nn.Linear(8, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    data_time = copy_time = 0.0
    end = time.time()
    for x, y in DataLoader(data, batch_size=8, num_workers=4, persistent_workers=True):
        data_time += time.time() - end
        start = time.time()
        x, y = x.to("cpu"), y.to("cpu")
        copy_time += time.time() - start
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        end = time.time()
    for _ in range(100):
        start = time.time()
        x, y = next(feed)
        data_time = time.time() - start
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(x), y).backward()
        optimizer.step()
    print(data_time, copy_time)
