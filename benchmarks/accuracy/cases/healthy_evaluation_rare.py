# healthy
# bottleneck: device
"""Segmentation net, a modest validation and a checkpoint per epoch, TensorBoard once in a while, tqdm."""
import os
import tempfile

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm


def blob_masks(n):
    x = torch.rand(n, 1, 48, 48)
    return TensorDataset(x, (nn.functional.avg_pool2d(x, 5, 1, 2) > 0.5).float())


def main():
    torch.manual_seed(0)
    torch.set_num_threads(1)
    train_loader = DataLoader(blob_masks(640), batch_size=16, shuffle=True)
    val_loader = DataLoader(blob_masks(16), batch_size=16)
    model = nn.Sequential(nn.Conv2d(1, 24, 5, padding=2), nn.ReLU(), nn.Conv2d(24, 32, 3, padding=1), nn.ReLU(),
                          nn.Conv2d(32, 1, 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = nn.BCEWithLogitsLoss()
    with tempfile.TemporaryDirectory() as folder:
        writer = SummaryWriter(folder)
        step = 0
        for epoch in range(4):
            for x, y in tqdm(train_loader):
                loss = criterion(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if step % 20 == 0:
                    writer.add_scalar("loss", loss.item(), step)
                step += 1
            model.eval()
            with torch.no_grad():
                val = sum(criterion(model(x), y).item() for x, y in val_loader)
            model.train()
            print("epoch", epoch, "val", val)
            torch.save(model.state_dict(), os.path.join(folder, "model.pt"))
        writer.close()


if __name__ == "__main__":
    main()
