# healthy
# has: device/batch-past-the-knee
# bottleneck: device
"""512 pictures at once make tensors of 50 MB, which get fresh pages for every operation; 128 stay in memory that is
there. 640 pictures leave a last batch of 128."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
torch.set_num_threads(1)

net = nn.Sequential(
    nn.Conv2d(3, 24, 3, padding=1), nn.ReLU(), nn.Conv2d(24, 24, 1), nn.GELU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(24, 10),
)
data = TensorDataset(torch.randn(640, 3, 32, 32), torch.randint(0, 10, (640,)))
loader = DataLoader(data, batch_size=512, shuffle=True)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
criterion = nn.CrossEntropyLoss()
for epoch in range(14):
    for images, labels in loader:
        loss = criterion(net(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
