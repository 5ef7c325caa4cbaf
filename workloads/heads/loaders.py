"""From frames to steps: one camera after the other as found, batches of bytes in cured."""

from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch.utils.data import ConcatDataset, DataLoader, Sampler

from data import SPLITS, Heads
from raster import Views


class SetupError(ValueError):
    """What was asked for cannot be done here; the message says what can."""


@dataclass(frozen=True, kw_only=True)
class Batch:
    """What a step sees: pictures (C, 3, H, W) in 0..1 of one timestep, on the device, and their numbers."""

    images: torch.Tensor
    views: Views
    timestep: int
    numbers: list


# -- order --------------------------------------------------------------------------------------------------


class Steps(Sampler):
    """This rank's steps of an epoch as lists of item numbers; the cameras of a step share a timestep.

    ``epoch`` and ``skip`` (steps left out at its beginning) are set from outside. Without ``seed`` in order.
    """

    def __init__(self, timesteps, cameras_per_step, seed=None):
        self.timesteps, self.cameras_per_step, self.seed = timesteps, cameras_per_step, seed
        self.epoch = self.skip = 0
        ranked = dist.is_initialized() and seed is not None
        self.rank, self.world_size = (dist.get_rank(), dist.get_world_size()) if ranked else (0, 1)

    def order(self):
        shuffled, generator = range(len(self.timesteps)), torch.Generator()
        if self.seed is not None:
            generator.manual_seed(self.seed + self.epoch)
            shuffled = torch.randperm(len(self.timesteps), generator=generator).tolist()
        size, groups = self.cameras_per_step, {}
        for number in shuffled:
            groups.setdefault(self.timesteps[number] if size > 1 else number, []).append(number)
        steps = [group[at : at + size] for group in groups.values() for at in range(0, len(group), size)]
        if self.seed is None or size == 1:
            return steps
        return [steps[at] for at in torch.randperm(len(steps), generator=generator).tolist()]

    def __iter__(self):
        steps = self.order()
        whole = len(steps) // self.world_size * self.world_size
        yield from steps[self.rank : whole : self.world_size][self.skip :]

    def __len__(self):
        return len(self.order()) // self.world_size - self.skip


class Items(Sampler):
    """The same order, item by item."""

    def __init__(self, steps):
        self.steps = steps

    def __iter__(self):
        for step in self.steps:
            yield from step


# -- feeds --------------------------------------------------------------------------------------------------


class Feed:
    """The batches of a data set; ``mark(phase)`` is told when one has come and when it is on the device."""

    def __init__(self, frames, size, steps, device):
        self.frames, self.size, self.steps, self.device = frames, size, steps, device

    def batch(self, images, world_to_camera, intrinsics, numbers):
        height, width = self.size
        views = Views(world_to_camera=world_to_camera, intrinsics=intrinsics, height=height, width=width)
        timestep = self.frames[numbers[0]].timestep
        return Batch(images=images, views=views, timestep=timestep, numbers=numbers)


class Modules(Feed):
    """As found: Camera modules, one by one, whose pictures are copied when the step wants them."""

    def __init__(self, dataset, *common, **options):
        super().__init__(*common)
        # Asked for, and without effect: what is no tensor, dictionary or list is handed through as it is.
        pin_memory = self.device.type == "cuda"
        items = Items(self.steps)
        self.loader = DataLoader(dataset, batch_size=None, sampler=items, pin_memory=pin_memory, **options)

    def batches(self, mark):
        cameras = iter(self.loader)
        for numbers in self.steps:
            taken = [next(cameras) for _ in numbers]
            mark("data_wait")
            images = torch.stack([camera.original_image.to(self.device) for camera in taken])
            views = [
                torch.stack([getattr(camera, name).to(self.device) for camera in taken])
                for name in ("world_to_camera", "intrinsics")
            ]
            mark("h2d")
            yield self.batch(images, *views, numbers)


class Bytes(Feed):
    """Cured: dictionaries of tensors, decoded once, page-locked, copied ahead; floats on the device."""

    def __init__(self, dataset, *common, non_blocking, **options):
        super().__init__(*common)
        try:
            from hotloop.feed import DevicePrefetcher, FeedError, Loader, cached
        except ImportError:
            raise SetupError(
                "byte_cache needs hotloop.feed: pip install hotloop, or --ablate byte_cache"
            ) from None
        try:
            kept = cached(dataset)
        except FeedError as error:
            raise SetupError(f"the cache of pictures: {error}") from None
        pin_memory = self.device.type == "cuda"
        self.loader = Loader(kept, batch_sampler=self.steps, pin_memory=pin_memory, **options)
        if non_blocking:
            self.loader = DevicePrefetcher(self.loader, self.device)

    def batches(self, mark):
        for numbers, batch in zip(self.steps, self.loader, strict=True):
            mark("data_wait")
            images, *views = (
                batch[key].to(self.device) for key in ("image", "world_to_camera", "intrinsics")
            )
            images = images.float().div_(255)
            mark("h2d")
            yield self.batch(images, *views, numbers)


# -- what a variant feeds -----------------------------------------------------------------------------------


def make_feed(args, folder, splits, device, training):
    """The feed of some splits: shuffled steps of this rank for training, else all in order."""
    style = "cured" if "byte_cache" in args.parts else "as_found"
    first = Heads(folder, splits[0])
    size = [max(1, round(side / args.resolution)) for side in (first.height, first.width)]
    parts = [Heads(folder, split, *size, style, args.white_background) for split in splits]
    frames = [frame for part in parts for frame in part.frames]
    steps = Steps([f.timestep for f in frames], args.cameras_per_step, args.seed if training else None)
    dataset = parts[0] if len(parts) == 1 else ConcatDataset(parts)
    # Of its own: what loaders draw when they begin would change what densification draws.
    options = {"num_workers": args.dataloader_workers, "generator": torch.Generator()}
    if "byte_cache" in args.parts:
        # Few pictures are decoded twice: workers are for the first epoch of training.
        if not training:
            options["num_workers"] = 0
        options["non_blocking"] = "non_blocking" in args.parts
    if options["num_workers"] not in (0, "auto"):
        options.update(prefetch_factor=args.prefetch_factor, persistent_workers=training)
    kind = Bytes if "byte_cache" in args.parts else Modules
    return kind(dataset, frames, size, steps, device, **options)


def training_splits(args):
    return SPLITS[:1] if args.eval else SPLITS
