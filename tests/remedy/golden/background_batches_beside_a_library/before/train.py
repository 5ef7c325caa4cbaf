import numpy as np
import torch
from sklearn.utils import shuffle
from torch import nn

data = np.arange(8000, dtype=np.float32).reshape(1000, 8)


def get_batch():
    return torch.from_numpy(data[np.random.randint(0, len(data), 16)])


model = nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(50):
    x = get_batch()
    loss = model(x).sum()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print(shuffle(data)[0])
