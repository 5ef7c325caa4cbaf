# healthy
# bottleneck: device
"""One sample a step, a picture that keeps the cores busy: a larger batch would take as much longer."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)
data = TensorDataset(torch.randn(60, 3, 128, 128), torch.randint(0, 2, (60, 1, 128, 128)).float())
net = nn.Sequential(nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Conv2d(16, 16, 3, padding=1), nn.ReLU(),
                    nn.Conv2d(16, 1, 3, padding=1))
optimizer = torch.optim.SGD(net.parameters(), lr=1e-2)
for epoch in range(4):
    for picture, mask in DataLoader(data, batch_size=1, shuffle=True):
        loss = nn.functional.binary_cross_entropy_with_logits(net(picture), mask)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
