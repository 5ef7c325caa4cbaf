# truth: device/unused-gradients
# bottleneck: device
# line: class Judge|def forward|features
# not: device/batch-too-small
"""Super-resolution with a perceptual loss: the network that judges was never frozen, and no optimizer has it."""
import torch
from torch import nn


def block(width, out):
    return nn.Sequential(nn.Conv2d(width, out, 3, padding=1), nn.ReLU())


class Judge(nn.Module):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(block(3, 24), block(24, 48), nn.MaxPool2d(2), block(48, 96), block(96, 96))

    def forward(self, image):
        return self.features(image)


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    net = nn.Sequential(block(3, 24), block(24, 24), nn.Conv2d(24, 3, 3, padding=1))
    judge = Judge()
    optimizer = torch.optim.Adam(net.parameters(), 1e-3)
    for step in range(70):
        blurred = torch.rand(4, 3, 48, 48)
        sharp = blurred.flip(3)
        made = net(blurred)
        loss = nn.functional.mse_loss(judge(made), judge(sharp)) + (made - sharp).abs().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 20 == 0:
            print(step, loss.item())


if __name__ == "__main__":
    main()
