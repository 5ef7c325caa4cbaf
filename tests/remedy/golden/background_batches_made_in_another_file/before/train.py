import numpy as np
import torch
from torch import nn

import settings


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    x = settings.get_batch()
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    settings.noise = step / 50
