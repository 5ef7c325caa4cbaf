"""webdataset: pictures of 512 pixels out of shards, decoded by the training process."""

import torch
import torchvision
import webdataset as wds
from torch import nn
from torchvision.transforms import v2


def main():
    preproc = v2.Compose([
        v2.RandomResizedCrop(64), v2.RandomHorizontalFlip(), v2.ToImage(), v2.ToDtype(torch.float32, scale=True),
        v2.Normalize([0.5] * 3, [0.25] * 3),
    ])
    dataset = (
        wds.WebDataset("data/shards/train-{0000..0003}.tar", shardshuffle=100, nodesplitter=wds.split_by_node)
        .shuffle(200)
        .decode("pil")
        .to_tuple("jpg", "cls")
        .map_tuple(preproc, lambda x: x)
        .batched(32)
    )
    loader = wds.WebLoader(dataset, batch_size=None, num_workers=0)
    loader = loader.with_epoch(20)
    model = torchvision.models.mobilenet_v3_small(weights=None, num_classes=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for epoch in range(3):
        for inputs, targets in loader:
            loss = nn.functional.cross_entropy(model(inputs), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        print(epoch, loss.item())


if __name__ == "__main__":
    main()
