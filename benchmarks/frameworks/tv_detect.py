"""torchvision: an object detector trained as its references do it; it computes."""

import math
import sys

import torch
import torchvision
from PIL import Image
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms import v2
from torchvision import tv_tensors
from pathlib import Path


class Boxes(Dataset):
    def __init__(self, root, part, transforms):
        self.images = sorted((Path(root) / "images" / part).glob("*.jpg"))
        self.transforms = transforms

    def __len__(self):
        return len(self.images)

    def __getitem__(self, index):
        image = tv_tensors.Image(v2.functional.pil_to_tensor(Image.open(self.images[index])))
        label = Path(str(self.images[index]).replace("images", "labels")).with_suffix(".txt").read_text().split()
        x, y, w, h = (float(value) * image.shape[-1] for value in label[1:])
        boxes = tv_tensors.BoundingBoxes([[x - w / 2, y - h / 2, x + w / 2, y + h / 2]], format="XYXY", canvas_size=image.shape[-2:])
        return self.transforms(image, {"boxes": boxes, "labels": torch.tensor([int(label[0]) + 1])})


def collate(batch):
    return tuple(zip(*batch))


def main():
    transforms = v2.Compose([v2.RandomHorizontalFlip(), v2.ToDtype(torch.float32, scale=True)])
    loader = DataLoader(Boxes("data/boxes", "train", transforms), batch_size=2, shuffle=True, collate_fn=collate)
    model = torchvision.models.detection.ssdlite320_mobilenet_v3_large(weights=None, weights_backbone=None, num_classes=5)
    optimizer = torch.optim.SGD([p for p in model.parameters() if p.requires_grad], lr=0.005, momentum=0.9)
    model.train()
    for epoch in range(1):
        warmup = torch.optim.lr_scheduler.LinearLR(optimizer, start_factor=0.001, total_iters=len(loader) - 1)
        for images, targets in loader:
            images = list(image.to("cpu") for image in images)
            targets = [{k: v.to("cpu") if isinstance(v, torch.Tensor) else v for k, v in t.items()} for t in targets]
            loss_dict = model(images, targets)
            losses = sum(loss for loss in loss_dict.values())
            loss_value = losses.item()
            if not math.isfinite(loss_value):
                print(f"Loss is {loss_value}, stopping training")
                sys.exit(1)
            optimizer.zero_grad()
            losses.backward()
            optimizer.step()
            warmup.step()
        print(epoch, loss_value)


if __name__ == "__main__":
    main()
