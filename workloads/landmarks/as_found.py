"""The project as it was found: flags, loaders, targets, loss, running average and loop.

``cured.py`` has what the guide and the cure put in their place.
"""

import numpy as np
import torch
from torch.nn import functional
from torch.utils.data import DataLoader
from tqdm import tqdm

from data import RADIUS, SIGMA, NpyBatches, in_order
from model import decode_predictions, gather_offsets, to_pixels


def set_flags(args, config):
    """The configuration has ``cudnn_benchmark``; nothing asks it."""
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False


def make_loaders(args, config, device):
    """The loaders of training and validation. The configuration has ``num_workers``; nothing asks it."""
    root, mask_pool = config["data"]["root"], args.regression == "mask_pool"
    train_set, val_set = (NpyBatches(root, mode, mask_pool) for mode in ("train", "val"))
    sampler, val_set = in_order(train_set, val_set, args.seed)
    pin_memory = device.type == "cuda"
    train_loader = DataLoader(train_set, batch_size=1, sampler=sampler, num_workers=2, pin_memory=pin_memory)
    val_loader = DataLoader(val_set, batch_size=1, shuffle=False, num_workers=2, pin_memory=pin_memory)
    return train_loader, val_loader


def to_device(batch, device):
    """Move what a file held, and wait for it; the loader's own batch dimension goes."""
    batch = {name: value.to(device).squeeze(0) for name, value in batch.items()}
    batch["images"] = batch["images"].to(memory_format=torch.channels_last)
    return batch


def generate_targets(cells, offsets, grid, around_cells):
    """Heatmaps (B, 2, h, w) and offsets (B, 4, h, w) drawn anew: cell by cell, in every step.

    A Gaussian stands at the landmark itself, between cells, so no cell of a heatmap is ever 1;
    ``around_cells`` puts it on the cell, where the files have it.
    """
    height, width = grid
    heatmaps = torch.zeros(len(cells), 2, height, width, device=cells.device)
    maps = torch.zeros(len(cells), 4, height, width, device=cells.device)
    for b in range(len(cells)):
        for k in range(2):
            centre = cells[b, k].float() if around_cells else cells[b, k] + offsets[b, k]
            cx, cy = int(cells[b, k, 0]), int(cells[b, k, 1])
            for y in range(max(0, cy - RADIUS), min(height, cy + RADIUS + 1)):
                for x in range(max(0, cx - RADIUS), min(width, cx + RADIUS + 1)):
                    square = (x - centre[0]) ** 2 + (y - centre[1]) ** 2
                    heatmaps[b, k, y, x] = torch.exp(-square / (2 * SIGMA**2))
            maps[b, 2 * k : 2 * k + 2, cy, cx] = offsets[b, k]
    return heatmaps, maps


def heatmap_loss(predicted, target, weights):
    """Penalty-reduced focal loss: cells where the target is 1 are positive, those near them count less."""
    predicted = predicted.clamp(1e-4, 1 - 1e-4)
    positive = target.eq(1).float()
    weights = weights[:, None]
    near = (torch.log(predicted) * (1 - predicted) ** 2 * positive * weights).sum()
    far = (torch.log(1 - predicted) * predicted**2 * (1 - target) ** 4 * weights).sum()
    num_positive = positive.sum()
    if num_positive == 0:
        return -far
    return -(near + far) / num_positive


def compute_loss(args, config, outputs, batch):
    """Return the loss and its two parts, on targets drawn anew."""
    cells = batch["cells"]
    grid = outputs["heatmaps"].shape[-2:]
    heatmaps, maps = generate_targets(cells, batch["cell_offsets"], grid, args.identical_targets)
    heat = heatmap_loss(outputs["heatmaps"], heatmaps, batch["weights"])
    offset = functional.l1_loss(gather_offsets(outputs["offsets"], cells), gather_offsets(maps, cells))
    return heat + config["training"]["offset_weight"] * offset, heat, offset


@torch.no_grad()
def update_average(average, model, decay):
    """The running average, parameter by parameter."""
    for mean, value in zip(average.parameters(), model.parameters(), strict=True):
        mean.mul_(decay).add_(value, alpha=1 - decay)
    for mean, value in zip(average.buffers(), model.buffers(), strict=True):
        mean.copy_(value)


def train_epoch(args, config, model, average, loader, optimizer, device, log, epoch):
    """Train on every file once; return the mean of loss, its two parts and the two errors in pixels."""
    model.train()
    settings = config["training"]
    use_bf16 = settings["amp"] == "bf16"
    totals = np.zeros(5)
    log.start()
    for step, batch in enumerate(tqdm(loader, desc=f"epoch {epoch + 1}", leave=False, disable=None)):
        log.mark("data_wait")
        batch = to_device(batch, device)
        log.mark("h2d")
        outputs, errors = forward(model, batch, use_bf16)
        loss, heat, offset = compute_loss(args, config, outputs, batch)
        totals += [loss.item(), heat.item(), offset.item(), errors[0].item(), errors[1].item()]
        log.mark("fwd")
        loss.backward()
        log.mark("bwd")
        torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip_grad_norm"])
        optimizer.step()
        optimizer.zero_grad()
        log.mark("opt")
        update_average(average, getattr(model, "module", model), settings["ema_decay"])
        log.mark("other")
        log.write(epoch * len(loader) + step, len(batch["images"]), loss.detach())
        log.start()
    return (totals / len(loader)).tolist()


def forward(model, batch, use_bf16):
    """Return the outputs and the two landmarks' mean errors in pixels."""
    with torch.autocast(batch["images"].device.type, torch.bfloat16, enabled=use_bf16):
        outputs = model(batch["images"])
    with torch.no_grad():
        truth = to_pixels(batch["cells"], batch["cell_offsets"])
        return outputs, (decode_predictions(outputs) - truth).norm(dim=2).mean(dim=0)
