"""Accelerate: the state is saved after every step."""

import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

accelerator = Accelerator(cpu=True)
model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 1024), nn.ReLU(), nn.Linear(1024, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
data = TensorDataset(torch.randn(4800, 512), torch.randint(0, 10, (4800,)))
loader = DataLoader(data, batch_size=32, shuffle=True)
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for step, (inputs, targets) in enumerate(loader):
    loss = nn.functional.cross_entropy(model(inputs), targets)
    accelerator.backward(loss)
    optimizer.step()
    optimizer.zero_grad()
    accelerator.save_state("out-acc-ckpt")
    if step % 20 == 0:
        accelerator.print(step, loss.item())
