# truth: input/unused-fields | input/worker-transport
# bottleneck: input
# has: input/unused-fields
# not: input/too-few-workers
"""The dataset was written for another project: masks, flow and raw frames are shipped, only 'image' is read."""
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset


class MultiTask(Dataset):
    def __init__(self):
        g = torch.Generator().manual_seed(0)
        self.frames = torch.rand(24, 3, 640, 480, generator=g)
        self.flow = torch.rand(24, 2, 640, 480, generator=g)

    def __len__(self):
        return 960

    def __getitem__(self, i):
        k = i % 24
        return {
            "image": self.frames[k, :, ::10, ::10],
            "raw": self.frames[k],
            "flow": self.flow[k],
            "mask": self.frames[k, 0] > 0.5,
            "label": i % 6,
        }


def fit():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    data = DataLoader(MultiTask(), batch_size=8, shuffle=True, num_workers=2, persistent_workers=True)
    model = nn.Sequential(nn.Conv2d(3, 12, 3, 2), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten(), nn.Linear(192, 6))
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4)
    for epoch in range(2):
        for batch in data:
            logits = model(batch["image"])
            loss = nn.functional.cross_entropy(logits, batch["label"])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    fit()
