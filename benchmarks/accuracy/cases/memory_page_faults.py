# healthy
# has: memory/page-faults
# bottleneck: device
"""A small convolutional network on the CPU: a step's activations go back to the kernel when it is over."""
import torch
from torch import nn
from torch.nn import functional as F

torch.manual_seed(0)
torch.set_num_threads(1)


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.conv = nn.Conv2d(inputs, outputs, 3, padding=1, bias=False)
        self.norm = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return F.relu(self.norm(self.conv(x)))


model = nn.Sequential(Block(3, 16), Block(16, 16), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(16, 10))
optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
images = torch.randn(640, 3, 64, 64)
labels = torch.randint(10, (640,))
for epoch in range(4):
    order = torch.randperm(len(images))
    for part in order.split(8):
        loss = F.cross_entropy(model(images[part]), labels[part])
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
