# truth: numerics/scaler-skipping
# bottleneck: device
"""A loss scale set so high that nearly every update overflows and is skipped."""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(256, 1024), nn.ReLU(), nn.Linear(1024, 1024), nn.ReLU(), nn.Linear(1024, 16))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0**126, growth_interval=2, growth_factor=16.0, backoff_factor=0.9)
dataset = torch.utils.data.TensorDataset(torch.randn(1600, 256), torch.randn(1600, 16))
for epoch in range(5):
    for x, y in torch.utils.data.DataLoader(dataset, batch_size=32, shuffle=True):
        loss = 1000.0 * nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    print("epoch", epoch, "loss", loss.item(), "scale", scaler.get_scale())
