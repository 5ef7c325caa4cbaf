# healthy
# has: device/batch-past-the-knee
# bottleneck: device
"""A CPU is full with a few pictures: 64 at once only take longer. 336 pictures leave a last batch of 16."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)

net = nn.Sequential(
    nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 3, padding=1), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10),
)
data = TensorDataset(torch.randn(336, 3, 32, 32), torch.randint(0, 10, (336,)))
loader = DataLoader(data, batch_size=64, shuffle=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()
for epoch in range(20):
    for images, labels in loader:
        loss = criterion(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
