import time

import torch
from torch import nn
from torch.utils.data import DataLoader


def train(data):
    model = nn.Linear(8, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    forward_time = 0.0
    for x, y in DataLoader(data, batch_size=8, num_workers=4, pin_memory=True, persistent_workers=True):
        x, y = x.cuda(non_blocking=True), y.cuda(non_blocking=True)
        start = time.perf_counter()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.item()
        forward_time += time.perf_counter() - start
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
