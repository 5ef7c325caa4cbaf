"""TensorBoard: histograms of all weights and gradients in every step."""

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter

data = TensorDataset(torch.randn(6400, 256), torch.randint(0, 10, (6400,)))
loader = DataLoader(data, batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(256, 512), nn.ReLU(), nn.Linear(512, 512), nn.ReLU(), nn.Linear(512, 10))
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
writer = SummaryWriter("out-tb")
step = 0
for epoch in range(2):
    for inputs, targets in loader:
        loss = nn.functional.cross_entropy(model(inputs), targets)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        writer.add_scalar("Loss/train", loss.item(), step)
        for name, parameter in model.named_parameters():
            writer.add_histogram(name, parameter, step)
            writer.add_histogram(f"{name}.grad", parameter.grad, step)
        step += 1
    print(epoch, loss.item())
writer.close()
