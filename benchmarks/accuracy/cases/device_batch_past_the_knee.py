# healthy
# has: device/batch-past-the-knee
# bottleneck: device
"""256 pictures at once make tensors of 37 MB, which get fresh pages for every operation; 64 stay in memory that is
there. 320 pictures leave a last batch of 64."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)

net = nn.Sequential(
    nn.Conv2d(3, 36, 1), nn.ReLU(), nn.GELU(), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(36, 10)
)
data = TensorDataset(torch.randn(320, 3, 32, 32), torch.randint(0, 10, (320,)))
loader = DataLoader(data, batch_size=256, shuffle=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()
for epoch in range(55):
    for images, labels in loader:
        loss = criterion(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
