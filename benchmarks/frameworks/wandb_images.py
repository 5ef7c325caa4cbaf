"""wandb, offline: pictures and a histogram of the batch are logged in every step."""

import torch
import wandb
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    run = wandb.init(project="pictures", mode="offline", config={"lr": 1e-3, "batch_size": 32}, dir="out-wandb")
    data = TensorDataset(torch.rand(2560, 3, 32, 32), torch.randint(0, 10, (2560,)))
    loader = DataLoader(data, batch_size=run.config.batch_size, shuffle=True)
    model = nn.Sequential(nn.Conv2d(3, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(32, 10))
    wandb.watch(model, log="all", log_freq=50)
    optimizer = torch.optim.AdamW(model.parameters(), lr=run.config.lr)
    for epoch in range(2):
        for step, (images, targets) in enumerate(loader):
            loss = nn.functional.cross_entropy(model(images), targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            pictures = [wandb.Image(image, caption=str(int(target))) for image, target in zip(images[:8], targets)]
            wandb.log({"train/loss": loss.item(), "inputs": wandb.Histogram(images.flatten().numpy()), "pictures": pictures, "epoch": epoch})
    run.finish()


if __name__ == "__main__":
    main()
