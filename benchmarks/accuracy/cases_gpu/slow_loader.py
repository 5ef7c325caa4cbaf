# truth: input/single-process | input/slow-sample
# bottleneck: input
# line: resize|rotate|asarray|augment
"""ResNet-like net on a GPU, fed by one process that augments with PIL."""
import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self):
        rng = np.random.default_rng(0)
        self.images = [Image.fromarray(rng.integers(0, 255, (300, 300, 3), dtype=np.uint8)) for _ in range(64)]

    def __len__(self):
        return 1600

    def augment(self, img, i):
        return img.rotate(i % 30, Image.BICUBIC).resize((224, 224), Image.BICUBIC)

    def __getitem__(self, i):
        x = np.asarray(self.augment(self.images[i % 64], i), dtype=np.float32) / 255
        return torch.from_numpy(x).permute(2, 0, 1), i % 10


torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(3, 64, 7, 2, 3), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(),
                    nn.Conv2d(128, 256, 3, 2, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 10)).cuda()
opt = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(2):
    for x, y in DataLoader(Photos(), batch_size=32, shuffle=True):
        x, y = x.cuda(), y.cuda()
        loss = nn.functional.cross_entropy(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
    print(epoch, loss.item())
