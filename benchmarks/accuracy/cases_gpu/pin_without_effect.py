# truth: transfer/pin-no-effect | transfer/pageable | transfer/blocking | input/single-process
# bottleneck: transfer | input
# has: transfer/pin-no-effect
"""pin_memory=True, but the batch is an object the loader cannot look into, so nothing is pinned."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Camera:
    def __init__(self, image):
        self.image = image


class Cameras(Dataset):
    def __init__(self):
        self.images = torch.rand(24, 3, 1080, 1920)

    def __len__(self):
        return 600

    def __getitem__(self, i):
        return Camera(self.images[i % 24])


net = nn.Conv2d(3, 4, 9, 8).cuda()
opt = torch.optim.SGD(net.parameters(), lr=1e-4)
for epoch in range(2):
    for camera in DataLoader(Cameras(), batch_size=None, shuffle=True, num_workers=2, pin_memory=True):
        image = camera.image.cuda(non_blocking=True)
        loss = net(image[None]).pow(2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
print(loss.item())
