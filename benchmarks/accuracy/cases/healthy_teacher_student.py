# healthy
# bottleneck: device
"""Distillation: a frozen teacher in eval mode runs in every step; that is no evaluation."""
import torch
from torch import nn

torch.manual_seed(0)
torch.set_num_threads(1)


def net(width):
    return nn.Sequential(nn.Conv2d(3, width, 3, 2, 1), nn.ReLU(), nn.Conv2d(width, 2 * width, 3, 2, 1), nn.ReLU(),
                         nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(8 * width, 20))


teacher, student = net(48).eval(), net(32)
optimizer = torch.optim.SGD(student.parameters(), lr=0.05)
images = torch.randn(512, 3, 48, 48)
loader = torch.utils.data.DataLoader(images, batch_size=32, shuffle=True)
for epoch in range(9):
    for x in loader:
        with torch.no_grad():
            soft = teacher(x).softmax(1)
        loss = nn.functional.cross_entropy(student(x), soft)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(epoch, loss.item())
