"""MONAI: CacheDataset and ThreadDataLoader, a UNet that computes."""

from pathlib import Path

import numpy as np
import torch
from monai.data import CacheDataset, ThreadDataLoader
from monai.losses import DiceLoss
from monai.networks.nets import UNet
from monai.transforms import Compose, EnsureChannelFirstd, LoadImaged, RandFlipd, Resized, ScaleIntensityd, Spacingd
from monai.utils import set_determinism


def write(root, count):
    root.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for at in range(count):
        volume = rng.normal(size=(96, 96, 96)).astype(np.float32)
        np.save(root / f"img{at}.npy", volume)
        np.save(root / f"seg{at}.npy", (volume > 1).astype(np.float32))
    return [{"img": str(root / f"img{at}.npy"), "seg": str(root / f"seg{at}.npy")} for at in range(count)]


def main():
    set_determinism(seed=0)
    files = write(Path("data/volumes"), 16)
    transforms = Compose([
        LoadImaged(keys=["img", "seg"]),
        EnsureChannelFirstd(keys=["img", "seg"]),
        Spacingd(keys=["img", "seg"], pixdim=(1.5, 1.5, 1.5), mode=("bilinear", "nearest")),
        ScaleIntensityd(keys="img"),
        Resized(keys=["img", "seg"], spatial_size=(48, 48, 48)),
        RandFlipd(keys=["img", "seg"], prob=0.5, spatial_axis=0),
    ])
    loader = ThreadDataLoader(CacheDataset(data=files, transform=transforms, cache_rate=1.0, num_workers=2), num_workers=0, batch_size=2, shuffle=True)
    model = UNet(spatial_dims=3, in_channels=1, out_channels=1, channels=(16, 32, 64), strides=(2, 2), num_res_units=2)
    loss_function = DiceLoss(sigmoid=True)
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for epoch in range(8):
        model.train()
        epoch_loss = 0
        step = 0
        for batch_data in loader:
            step += 1
            inputs, labels = batch_data["img"], batch_data["seg"]
            optimizer.zero_grad()
            loss = loss_function(model(inputs), labels)
            loss.backward()
            optimizer.step()
            epoch_loss += loss.item()
        print(f"epoch {epoch + 1} average loss: {epoch_loss / step:.4f}")


if __name__ == "__main__":
    main()
