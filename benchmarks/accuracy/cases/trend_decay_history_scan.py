# truth: trend/throughput-decay | host/python-in-step
# bottleneck: host | device
# has: trend/throughput-decay
# line: history|sum|sorted|median|for
"""Early stopping recomputed over the whole loss history in each step: the longer, the slower."""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
x = torch.randn(16_000, 32)
y = x[:, :1] * 2
history = []


def should_stop(history, window=50):
    smoothed = []
    for i in range(len(history)):
        part = history[max(0, i - window):i + 1]
        smoothed.append(sum(part) / len(part))
    return len(smoothed) > 200 and min(smoothed[-100:]) > min(smoothed) * 1e6


step = 0
for epoch in range(3):
    for xb, yb in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(x, y), batch_size=12, shuffle=True):
        loss = nn.functional.mse_loss(model(xb), yb)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        history.append(loss.item())
        step += 1
        if should_stop(history):
            break
        if step > 4200:
            break
print(len(history), history[-1])
