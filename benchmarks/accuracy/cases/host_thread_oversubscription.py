# truth: host/thread-oversubscription
# bottleneck: device | host
# not: input/single-process | input/too-few-workers
"""Copied from a 64-core server: 24 intra-op threads on whatever machine this runs on."""
import os

os.environ["OMP_NUM_THREADS"] = "24"
import torch
from torch import nn

torch.set_num_threads(24)
torch.manual_seed(0)

net = nn.Sequential(
    nn.Conv2d(3, 24, 3, padding=1), nn.BatchNorm2d(24), nn.ReLU(), nn.MaxPool2d(2),
    nn.Conv2d(24, 48, 3, padding=1), nn.BatchNorm2d(48), nn.ReLU(), nn.AdaptiveAvgPool2d(1),
    nn.Flatten(), nn.Linear(48, 10),
)
opt = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
images, labels = torch.randn(512, 3, 32, 32), torch.randint(0, 10, (512,))
loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(images, labels), batch_size=32, shuffle=True)
for epoch in range(3):
    for x, y in loader:
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item())
