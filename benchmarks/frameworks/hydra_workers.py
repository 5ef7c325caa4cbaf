"""hydra: settings from its configuration, a folder of its own for each run; the training process decodes the pictures."""

import logging
from pathlib import Path

import hydra
import torch
import torchvision
from hydra.utils import to_absolute_path
from omegaconf import DictConfig
from torch import nn
from torch.utils.data import DataLoader
from torchvision.transforms import v2

log = logging.getLogger(__name__)


@hydra.main(version_base=None, config_path="hydra_conf", config_name="config")
def main(cfg: DictConfig) -> None:
    transform = v2.Compose([v2.RandomResizedCrop(64), v2.ToImage(), v2.ToDtype(torch.float32, scale=True)])
    dataset = torchvision.datasets.ImageFolder(to_absolute_path(cfg.data.root), transform)
    loader = DataLoader(dataset, batch_size=cfg.data.batch_size, num_workers=cfg.data.num_workers, shuffle=True)
    model = torchvision.models.mobilenet_v3_small(weights=None, num_classes=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=cfg.optim.lr)
    for epoch in range(cfg.trainer.max_epochs):
        for images, labels in loader:
            loss = nn.functional.cross_entropy(model(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        log.info("epoch %d loss %.3f in %s", epoch, loss.item(), Path.cwd().name)
    torch.save(model.state_dict(), "last.pt")


if __name__ == "__main__":
    main()
