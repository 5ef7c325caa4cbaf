"""From files to batches on the device: torch's loader as found, hotloop.feed in cured."""

import copy
import os
from itertools import count
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Sampler, Subset

from config import ConfigError
from data import HIDDEN_BIT, NUM_CLASSES, CompactDataset, DataError, PipelineDataset


class Shuffled(Sampler):
    """This rank's share of an epoch's order, from any place on: what a resumed run has left."""

    def __init__(self, length, seed):
        self.length, self.seed, self.epoch, self.start = length, seed, 0, 0
        self.rank, self.world_size = (
            (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
        )

    def __iter__(self):
        order = torch.randperm(self.length, generator=torch.Generator().manual_seed(self.seed + self.epoch))
        share = self.length // self.world_size * self.world_size
        yield from order[self.rank : share : self.world_size][self.start :].tolist()

    def __len__(self):
        return self.length // self.world_size - self.start


def make_loaders(args, config, root, device):
    """Return the training loader, the validation loader and the intrinsics of all cameras (N, 3, 3)."""
    batch_size, num_workers = config.count("data.samples_per_gpu"), config.count("data.workers_per_gpu", 0)
    scale = config["data.img_scale"]
    if not (
        isinstance(scale, (tuple, list))
        and len(scale) == 2
        and all(type(s) is int and s >= 32 for s in scale)
    ):
        raise ConfigError(
            f"{config.path}: data.img_scale is {scale!r}: expected (width, height), both from 32"
        )
    mean, std = colour(config, "data.mean"), colour(config, "data.std", positive=True)
    jitter = config.number("data.brightness_delta"), config.number("data.contrast")
    pin_memory = device.type == "cuda"
    if "compact" in args.parts:
        files = [CompactDataset(root, mode, scale) for mode in ("train", "val")]
        train_set, val_set = (
            baked(dataset, Path(root), mode) for dataset, mode in zip(files, ("train", "val"), strict=True)
        )
    else:
        files = train_set, val_set = (
            PipelineDataset(root, "train", scale, mean, std, *jitter),
            PipelineDataset(root, "val", scale, mean, std),
        )
    sampler = Shuffled(len(train_set), args.seed)
    if len(sampler) < batch_size:
        raise ConfigError(
            f"{config.path}: data.samples_per_gpu is {batch_size}: a rank has {len(sampler)} training samples"
        )
    val_set = Subset(val_set, range(sampler.rank, len(val_set), sampler.world_size))
    options = {"batch_size": batch_size, "sampler": sampler, "drop_last": True}
    if "live_keys" in args.parts:
        options["pin_memory"] = bool(config.get("data.pin_memory", True)) and pin_memory
        persistent, prefetch = (
            config.get("data.persistent_workers", True),
            config.count("data.prefetch_factor", 1, 2),
        )
        if num_workers:
            options.update(persistent_workers=bool(persistent), prefetch_factor=prefetch)
    else:
        num_workers = min(num_workers, len(os.sched_getaffinity(0)))  # the guide: not more than cores
        options.update(pin_memory=pin_memory, persistent_workers=num_workers > 0)
    if "compact" not in args.parts:
        loader = DataLoader(train_set, num_workers=num_workers, **options)
        return loader, DataLoader(val_set, batch_size=1, num_workers=1), files[0].calibs
    from hotloop.feed import DevicePrefetcher, Loader

    expand = Expand(mean, std, *jitter, device)
    train_loader = Loader(train_set, num_workers=num_workers, **options)
    val_loader = Loader(val_set, batch_size=batch_size, num_workers=0, pin_memory=pin_memory)
    return (
        DevicePrefetcher(train_loader, device, transform=expand),
        DevicePrefetcher(val_loader, device, transform=expand.without_jitter(len(files[0].calibs))),
        torch.cat([dataset.calibs for dataset in files]),
    )


def colour(config, key, positive=False):
    """Three numbers, one for each of red, green and blue."""
    try:
        values = np.array(config[key], np.float64)
    except (ValueError, TypeError):
        values = np.empty(0)
    if values.shape != (3,) or not np.isfinite(values).all() or (positive and (values <= 0).any()):
        what = "three numbers above 0" if positive else "three numbers"
        raise ConfigError(f"{config.path}: {key} is {config[key]!r}: expected {what}")
    return values


def baked(dataset, root, mode):
    """The samples resized and packed, made once beside the files and mapped into memory."""
    from hotloop.feed import FeedError, StaleBakeError, bake

    width, height = dataset.img_scale
    out = root / f"{mode}-{width}x{height}.baked"
    try:
        try:
            return bake(dataset, out, num_workers=0)
        except StaleBakeError:
            return bake(dataset, out, num_workers=0, overwrite=True)
    except FeedError as error:
        raise DataError(str(error)) from None


class Expand:
    """On the device: normalise the bytes of a picture, and unfold the bits of its labels."""

    def __init__(self, mean, std, brightness_delta, contrast, device, first_camera=0):
        self.mean, self.std = (
            torch.tensor(v, dtype=torch.float32, device=device)[:, None, None] for v in (mean, std)
        )
        self.jitter, self.first_camera = (brightness_delta, contrast), first_camera
        self.bits = torch.arange(NUM_CLASSES, device=device, dtype=torch.int16)[:, None, None]

    def without_jitter(self, first_camera):
        other = copy.copy(self)
        other.jitter, other.first_camera = (0.0, 0.0), first_camera
        return other

    def __call__(self, batch):
        image = batch["image"].float()
        if any(self.jitter):
            delta, contrast = (
                (torch.rand(len(image), 1, 1, 1, device=image.device) * 2 - 1) * size for size in self.jitter
            )
            image = (image + delta) * (1 + contrast)
        labels = batch["labels"]
        return {
            "image": ((image - self.mean) / self.std),
            "labels": ((labels[:, None] >> self.bits) & 1).float(),
            "valid": 1.0 - ((labels >> HIDDEN_BIT) & 1).float(),
            "cameras": batch["cameras"] + self.first_camera,
        }


def batches(loader, start):
    """All batches from an iteration on, epoch after epoch."""
    loader.sampler.start = 0
    per_epoch = len(loader)
    for epoch in count(start // per_epoch):
        loader.sampler.epoch = epoch
        loader.sampler.start = (start % per_epoch) * loader.batch_size
        start = 0
        yield from loader


def to_device(args, batch, device):
    if "compact" in args.parts:  # there already
        return batch
    return {name: value.to(device) for name, value in batch.items()}
