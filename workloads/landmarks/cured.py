"""What the guide and the cure put in the place of ``as_found.py``; ``args.parts`` says which of it is in."""

import os
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional
from torch.utils.data import DataLoader
from tqdm import tqdm

import as_found
from config import ConfigError
from data import STRIDE, CompactBatches, DataError, NpyBatches, in_order
from model import gather_offsets


def set_flags(args, config):
    if "fast_flags" not in args.parts:
        as_found.set_flags(args, config)
        return
    torch.backends.cudnn.deterministic = False
    torch.backends.cudnn.benchmark = config["training"]["cudnn_benchmark"]
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.allow_tf32 = True


def make_loaders(args, config, device):
    """Return the training loader and the validation loader; an item of either is a whole file."""
    pin_memory, settings, root = device.type == "cuda", config["data"], config["data"]["root"]
    ahead = settings["prefetch_factor"] if settings["num_workers"] else None
    options = {"num_workers": settings["num_workers"], "prefetch_factor": ahead, "pin_memory": pin_memory}
    if "compact" in args.parts:
        train_set, val_set = compact(root, "train"), compact(root, "val")
        from hotloop.feed import DevicePrefetcher, Loader

        sampler, val_set = in_order(train_set, val_set, args.seed)
        train_loader = Loader(train_set, batch_size=1, sampler=sampler, **options)
        val_loader = Loader(val_set, batch_size=1, num_workers=0, pin_memory=pin_memory)
        return tuple(
            DevicePrefetcher(loader, device, transform=expand) for loader in (train_loader, val_loader)
        )
    if "configured_loader" not in args.parts:
        return as_found.make_loaders(args, config, device)
    mask_pool = args.regression == "mask_pool"
    train_set, val_set = (NpyBatches(root, mode, mask_pool) for mode in ("train", "val"))
    sampler, val_set = in_order(train_set, val_set, args.seed)
    if settings["num_workers"] == "auto":  # hotloop.feed's; torch's loader wants a number
        options["num_workers"] = len(os.sched_getaffinity(0))
    train_loader = DataLoader(train_set, batch_size=1, sampler=sampler, **options)
    return train_loader, DataLoader(val_set, batch_size=1, **options)


def compact(root, mode):
    """The files of a mode in a quarter of their bytes, made once beside them and mapped into memory."""
    try:
        from hotloop.feed import FeedError, StaleBakeError, bake
    except ImportError:
        raise ConfigError("compact needs hotloop.feed: pip install hotloop, or --ablate compact") from None

    dataset = CompactBatches(root, mode)
    out = Path(root, f"{mode}.baked")
    options = {"source": [Path(root, "images", mode), Path(root, "labels", mode)], "num_workers": 0}
    try:
        try:
            return bake(dataset, out, **options)
        except StaleBakeError:
            return bake(dataset, out, **options, overwrite=True)
    except FeedError as error:
        raise DataError(str(error)) from None


def expand(batch):
    """On the device: pictures as float, and the weights pooled from their padding channel."""
    batch = {name: value.squeeze(0) for name, value in batch.items()}
    images = batch["images"].permute(0, 3, 1, 2)  # channels last in memory
    weights = functional.avg_pool2d(images[:, 3].float().div_(255), STRIDE)
    return {**batch, "images": images.float().div_(255), "weights": weights}


def to_device(batch, device, non_blocking):
    """Move what a file held; the loader's own batch dimension goes."""
    if batch["images"].dim() == 4:  # compact: expanded on the device already
        return batch
    batch = {name: value.to(device, non_blocking=non_blocking).squeeze(0) for name, value in batch.items()}
    batch["images"] = batch["images"].to(memory_format=torch.channels_last)
    return batch


def heatmap_loss(predicted, target, weights):
    """As found, without a question that the device has to answer first."""
    predicted = predicted.clamp(1e-4, 1 - 1e-4)
    positive = target.eq(1).float()
    weights = weights[:, None]
    near = (torch.log(predicted) * (1 - predicted) ** 2 * positive * weights).sum()
    far = (torch.log(1 - predicted) * predicted**2 * (1 - target) ** 4 * weights).sum()
    return -(near + far) / positive.sum().clamp(min=1)


def compute_loss(args, config, outputs, batch):
    """Return the loss and its two parts, on the targets that the files have."""
    cells, offsets = batch["cells"], batch["cell_offsets"]
    if "precomputed_targets" in args.parts:
        heatmaps = batch["heatmaps"]
    else:
        grid = outputs["heatmaps"].shape[-2:]
        heatmaps, maps = as_found.generate_targets(cells, offsets, grid, args.identical_targets)
        offsets = gather_offsets(maps, cells)
    loss = heatmap_loss if "branchless_loss" in args.parts else as_found.heatmap_loss
    heat = loss(outputs["heatmaps"], heatmaps, batch["weights"])
    offset = functional.l1_loss(gather_offsets(outputs["offsets"], cells), offsets)
    return heat + config["training"]["offset_weight"] * offset, heat, offset


@torch.no_grad()
def update_average(average, model, decay):
    """The running average, all parameters in three calls."""
    means, values = list(average.parameters()), list(model.parameters())
    torch._foreach_mul_(means, decay)
    torch._foreach_add_(means, values, alpha=1 - decay)
    torch._foreach_copy_(list(average.buffers()), list(model.buffers()))


def train_epoch(args, config, model, average, loader, optimizer, device, log, epoch):
    """Train on every file once; return the mean of loss, its two parts and the two errors in pixels."""
    model.train()
    settings, parts = config["training"], args.parts
    group = settings["gradient_accumulation_steps"] if "accumulation" in parts else 1
    use_bf16 = settings["amp"] == "bf16"
    if "bf16" in parts:
        use_bf16 = settings["amp"] in (True, "bf16") and device.type == "cuda"
    update = update_average if "foreach_ema" in parts else as_found.update_average
    on_device = "device_metrics" in parts
    totals = torch.zeros(5, device=device) if on_device else np.zeros(5)
    log.start()
    for step, batch in enumerate(tqdm(loader, desc=f"epoch {epoch + 1}", leave=False, disable=None)):
        log.mark("data_wait")
        batch = to_device(batch, device, "non_blocking" in parts)
        log.mark("h2d")
        outputs, errors = as_found.forward(model, batch, use_bf16)
        loss, heat, offset = compute_loss(args, config, outputs, batch)
        row = loss.detach(), heat.detach(), offset.detach(), *errors
        totals += torch.stack(row) if on_device else [value.item() for value in row]
        log.mark("fwd")
        (loss / group).backward()
        log.mark("bwd")
        if (step + 1) % group == 0 or step + 1 == len(loader):
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip_grad_norm"])
            optimizer.step()
            optimizer.zero_grad()
            log.mark("opt")
            update(average, getattr(model, "module", model), settings["ema_decay"])
        log.mark("other")
        log.write(epoch * len(loader) + step, len(batch["images"]), loss.detach())
        log.start()
    return (totals / len(loader)).tolist()
