"""albumentations: one worker decodes and warps pictures for a small network."""

from pathlib import Path

import albumentations as A
import cv2
import torch
import torchvision
from albumentations.pytorch import ToTensorV2
from torch import nn
from torch.utils.data import DataLoader, Dataset


class Pictures(Dataset):
    def __init__(self, root, transform):
        self.paths = sorted(Path(root).glob("*/*.jpg"))
        self.names = sorted({path.parent.name for path in self.paths})
        self.transform = transform

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        path = self.paths[index]
        image = cv2.cvtColor(cv2.imread(str(path)), cv2.COLOR_BGR2RGB)
        return self.transform(image=image)["image"], self.names.index(path.parent.name)


def main():
    cv2.setNumThreads(0)
    transform = A.Compose([
        A.ElasticTransform(alpha=50, sigma=5, p=0.7), A.RandomBrightnessContrast(p=0.5), A.HorizontalFlip(p=0.5), A.Resize(64, 64),
        A.Normalize(), ToTensorV2(),
    ])
    loader = DataLoader(Pictures("data/pictures/train", transform), batch_size=32, shuffle=True, num_workers=1, persistent_workers=True)
    model = torchvision.models.mobilenet_v3_small(weights=None, num_classes=4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    for epoch in range(4):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
