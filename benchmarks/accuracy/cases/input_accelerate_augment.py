# truth: input/single-process | input/slow-sample
# bottleneck: input
# line: rotate|blur|filter|augment|resize|asarray
"""Hugging Face Accelerate loop with a heavy PIL augmentation in the only process."""
import numpy as np
import torch
from accelerate import Accelerator
from PIL import Image, ImageFilter
from torch.utils.data import DataLoader, Dataset


class Photos(Dataset):
    def __init__(self, n=240):
        rng = np.random.default_rng(2)
        self.images = [Image.fromarray(rng.integers(0, 255, (160, 160, 3), dtype=np.uint8)) for _ in range(n)]
        self.rng = np.random.default_rng(3)

    def __len__(self):
        return len(self.images)

    def augment(self, img):
        img = img.rotate(float(self.rng.uniform(-20, 20)), Image.BICUBIC)
        img = img.filter(ImageFilter.GaussianBlur(1.5))
        return img.resize((64, 64))

    def __getitem__(self, i):
        x = np.asarray(self.augment(self.images[i]), dtype=np.float32) / 127.5 - 1
        return torch.from_numpy(x).permute(2, 0, 1).contiguous(), i % 3


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 5, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.LazyLinear(3))
    model(torch.zeros(1, 3, 64, 64))
    optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, DataLoader(Photos(), batch_size=12, shuffle=True))
    for epoch in range(9):
        model.train()
        for x, y in loader:
            loss = torch.nn.functional.cross_entropy(model(x), y)
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
        accelerator.print(epoch, loss.item())


if __name__ == "__main__":
    main()
