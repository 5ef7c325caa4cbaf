# truth: memory/host-growth | memory/unbounded-cache
# bottleneck: device
"""total_loss += loss keeps every graph alive, with its activations."""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)
model = nn.Sequential(nn.Linear(512, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(), nn.Linear(2048, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
x, y = torch.randn(4096, 512), torch.randn(4096, 1)
outputs = []
for step in range(420):
    i = (step * 64) % 4096
    pred = model(x[i:i + 64])
    loss = nn.functional.mse_loss(pred, y[i:i + 64])
    optimizer.zero_grad()
    loss.backward(retain_graph=True)
    optimizer.step()
    outputs.append(pred)
    if step % 60 == 0:
        print(step, loss.item())
