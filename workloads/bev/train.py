"""Train the segmentation of streets from above.

    python train.py --variant as_found --scale cpu
    python train.py configs/baseline/lss_swin_nuscenes_optimized.py --variant guide --work-dir runs/test \\
        --gpu-ids 0 --options runner.max_iters=100
    torchrun --nproc_per_node 2 train.py --variant cured --scale cpu

``as_found`` is the project as it was, ``guide`` the same code with the configurations of its optimisation guide,
``cured`` what measuring it proposes. Without ``--data`` synthetic data is made once and used again.
"""

import argparse
import contextlib
import json
import os
import textwrap
import time
from itertools import count
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Sampler, Subset
from tqdm import tqdm

from config import Config, ConfigError
from data import CLASSES, HIDDEN_BIT, NUM_CLASSES, CompactDataset, DataError, PipelineDataset, make_data
from model import BevNet

HERE = Path(__file__).parent
#: More kinds of intrinsics than this and their geometry is not kept.
MOST_CAMERAS = 256

#: What a variant changes about the code as it was found. ``--ablate NAME`` leaves one of them out.
GUIDE = ("compile",)
CURE = (
    "live_keys", "compact", "cached_index", "foreach_check", "bf16", "channels_last", "fused_optimizer",
    "device_metrics",
)  # fmt: skip
PARTS = {"as_found": (), "guide": GUIDE, "cured": GUIDE + CURE}
CONFIGS = {
    "as_found": "lss_swin_nuscenes",
    "guide": "lss_swin_nuscenes_optimized",
    "cured": "lss_swin_nuscenes_cured",
}
#: Keys that the project had, or its guide added, and that nothing reads as long as ``live_keys`` is left out.
DEAD = (
    "data.pin_memory", "data.persistent_workers", "data.prefetch_factor", "runner.accumulative_counts",
    "evaluation.efficient_test", "evaluation.pre_eval",
)  # fmt: skip
#: Small scales change the sizes in a configuration and divide its counts of iterations.
SCALES = {
    "tiny": (
        10_000,
        "model.embed_dim=24 model.depths=(1,1,2,1) model.num_heads=(1,2,4,8) model.lift_channels=16 "
        "model.topdown_width=16 model.topdown_layers=(1,1) data.img_scale=(128,96) log_config.interval=4",
    ),
    "cpu": (
        1000,
        "model.embed_dim=48 model.depths=(2,2,2,2) model.lift_channels=32 model.topdown_width=32 "
        "model.topdown_layers=(1,1) data.img_scale=(256,192) log_config.interval=10",
    ),
    "full": (1, ""),
}
COUNTS = (
    "runner.max_iters", "evaluation.interval", "checkpoint_config.interval", "lr_config.warmup_iters",
    "finite_check.interval",
)  # fmt: skip


def parse_args(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "config", nargs="?", help="a Python file (default: the one of the variant, in configs/baseline)"
    )
    parser.add_argument("--variant", choices=tuple(PARTS), default="as_found")
    parser.add_argument(
        "--scale", choices=tuple(SCALES), help="default: full with a configuration, otherwise cpu"
    )
    parser.add_argument("--data", help="a folder that holds img_dir/, ann_bev_dir/ and calib.json")
    parser.add_argument(
        "--work-dir", "--out", dest="out", default=str(HERE / "out"), help="where checkpoints go"
    )
    parser.add_argument(
        "--gpu-ids", type=int, nargs="+", help="the first is used (torchrun chooses by itself)"
    )
    parser.add_argument(
        "--options", nargs="+", default=[], metavar="KEY=VALUE", help="change the configuration"
    )
    parser.add_argument("--epochs", type=int, help="instead of runner.max_iters")
    parser.add_argument("--sweep", help="batch sizes, as 1,2,4,8: time a few steps of each and stop")
    parser.add_argument("--ablate", action="append", default=[], help="leave out one part of the variant")
    parser.add_argument("--resume", help="a checkpoint to go on from")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step_log", help="write one JSON object per step to this file")
    parser.add_argument("--tensorboard", action="store_true", help="write scalars to OUT/tensorboard")
    args = parser.parse_args(argv)
    if unknown := set(args.ablate) - set(PARTS[args.variant]):
        known = ", ".join(PARTS[args.variant]) or "none"
        parser.error(f"--ablate {unknown.pop()}: the parts of {args.variant} are {known}")
    args.parts = set(PARTS[args.variant]) - set(args.ablate)
    args.scale = args.scale or ("full" if args.config else "cpu")
    return args


def load_config(args):
    """The configuration of the variant, at the scale asked for, with ``--options`` put in last."""
    config = Config.fromfile(args.config or HERE / "configs" / "baseline" / f"{CONFIGS[args.variant]}.py")
    divisor, sizes = SCALES[args.scale]
    for key in COUNTS:
        if divisor > 1 and isinstance(value := config.get(key), int):
            config.set(key, max(1, round(value / divisor)))
    config.asked.clear()
    config.merge(sizes.split())
    config.merge(args.options)
    return config


# -- data ---------------------------------------------------------------------------------------------------


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
    mean, std = (np.array(config[f"data.{key}"], np.float64) for key in ("mean", "std"))
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
            f"{config.path}: data.samples_per_gpu is {batch_size}: there are {len(sampler)} training samples a rank"
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
        other = object.__new__(Expand)
        other.__dict__.update(self.__dict__, jitter=(0.0, 0.0), first_camera=first_camera)
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


# -- loss, metric -------------------------------------------------------------------------------------------


class BevLoss:
    """Cross-entropy of visible cells, rare classes weighing more, and a nudge to the priors in hidden ones."""

    def __init__(self, config, device):
        self.priors = torch.tensor(config["loss.priors"], dtype=torch.float32, device=device)
        if self.priors.shape != (NUM_CLASSES,) or not bool(((self.priors > 0) & (self.priors < 1)).all()):
            raise ConfigError(f"{config.path}: loss.priors: expected {NUM_CLASSES} shares between 0 and 1")
        self.priors = self.priors[:, None, None]
        self.uncertainty_weight = config.number("loss.uncertainty_weight")

    def __call__(self, logits, labels, valid):
        weight = self.priors.rsqrt()
        xent = functional.binary_cross_entropy_with_logits(
            logits, labels, pos_weight=weight, reduction="none"
        )
        prior = functional.binary_cross_entropy_with_logits(
            logits, self.priors.expand_as(logits), reduction="none"
        )
        visible = valid[:, None]
        return (xent * visible).mean() + self.uncertainty_weight * (prior * (1 - visible)).mean()


@torch.no_grad()
def evaluate(args, model, loader, device):
    """Intersection over union (14,) of each class over the visible cells; nan for a class nobody has."""
    model.eval()
    on_device = "device_metrics" in args.parts
    counts = torch.zeros(2, NUM_CLASSES, device=device, dtype=torch.float64)
    for batch in tqdm(loader, desc="validation", leave=False, disable=None):
        batch = to_device(args, batch, device)
        found = (model(batch["image"], batch["cameras"]) > 0) & (batch["valid"][:, None] > 0)
        truth = (batch["labels"] > 0) & (batch["valid"][:, None] > 0)
        if on_device:
            counts += torch.stack([(found & truth).sum(dim=(0, 2, 3)), (found | truth).sum(dim=(0, 2, 3))])
            continue
        found, truth = found.cpu().numpy(), truth.cpu().numpy()
        for k in range(NUM_CLASSES):
            counts[0, k] += np.logical_and(found[:, k], truth[:, k]).sum()
            counts[1, k] += np.logical_or(found[:, k], truth[:, k]).sum()
    model.train()
    if dist.is_initialized():
        dist.all_reduce(counts)
    return (counts[0] / counts[1]).tolist()


def say_iou(iteration, iou):
    values = [value for value in iou if value == value]
    mean = sum(values) / max(1, len(values))
    each = ", ".join(
        f"{name} {value:.3f}" for name, value in zip(CLASSES, iou, strict=True) if value == value
    )
    tqdm.write(
        "\n".join(textwrap.wrap(f"Iter {iteration} mIoU {mean:.4f} ({each})", 80, subsequent_indent="  "))
    )
    return mean


# -- running ------------------------------------------------------------------------------------------------


class StepLog:
    """One JSON object per step: seconds by phase, samples per second, loss."""

    PHASES = ("data_wait", "h2d", "fwd", "bwd", "opt", "other")

    def __init__(self, path):
        self.path, self.marks = path, []
        if path:
            Path(path).write_text("")

    def start(self):
        self.marks = [("start", time.perf_counter())]

    def mark(self, name):
        self.marks.append((name, time.perf_counter()))

    def seconds(self):
        return self.marks[-1][1] - self.marks[0][1]

    def write(self, step, num_samples, loss):
        if not self.path:
            return
        row = {"step": step, **dict.fromkeys(self.PHASES, 0.0)}
        for (_, before), (name, after) in zip(self.marks, self.marks[1:], strict=False):
            row[name] += after - before
        row.update(samples_per_s=num_samples / self.seconds(), loss=float(loss))
        with open(self.path, "a") as file:
            file.write(json.dumps(row) + "\n")


def to_device(args, batch, device):
    if "compact" in args.parts:  # there already
        return batch
    return {name: value.to(device) for name, value in batch.items()}


def make_scheduler(config, optimizer):
    """The learning rate per iteration: a warm-up, then ``fixed`` or ``poly``."""
    policy, power = config["lr_config.policy"], config.number("lr_config.power", 1.0)
    min_lr, ratio = config.number("lr_config.min_lr", 0.0), config.number("lr_config.warmup_ratio", 0.1)
    warmup = config.get("lr_config.warmup")
    warmup_iters, max_iters = config.count("lr_config.warmup_iters", 0, 0), config.count("runner.max_iters")
    if policy not in ("poly", "fixed") or warmup not in ("linear", None):
        raise ConfigError(
            f"{config.path}: lr_config knows policy='poly' and 'fixed', warmup='linear' and None: "
            f"found {policy!r}, {warmup!r}"
        )
    if policy == "fixed":
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    base = optimizer.param_groups[0]["lr"]

    def factor(iteration):
        rate = max(0.0, 1 - iteration / max_iters) ** power * (1 - min_lr / base) + min_lr / base
        if warmup and iteration < warmup_iters:
            rate *= 1 - (1 - iteration / warmup_iters) * (1 - ratio)
        return rate

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


class Step:
    """One iteration as found: FP16 if asked for, every gradient looked at, clip, update."""

    def __init__(self, args, config, model, device):
        self.args, self.model, self.device = args, model, device
        self.loss = BevLoss(config, device)
        if (kind := config["optimizer.type"]) != "AdamW":
            raise ConfigError(f"{config.path}: optimizer.type is {kind!r}: only 'AdamW' is known")
        self.optimizer = torch.optim.AdamW(
            model.parameters(), lr=config.number("optimizer.lr"), weight_decay=config.number("optimizer.weight_decay"),
            fused=True if "fused_optimizer" in args.parts else None,
        )  # fmt: skip
        self.max_norm = config.number("optimizer_config.grad_clip.max_norm")
        self.prepare(config)

    def prepare(self, config):
        self.lr_config = config.get("lr_config")  # TODO: apply
        loss_scale = config.get("fp16.loss_scale")
        self.use_fp16 = loss_scale is not None and self.device.type == "cuda"
        self.scaler = torch.amp.GradScaler(
            self.device.type, init_scale=float(loss_scale or 1), growth_interval=2**30, enabled=self.use_fp16
        )
        if loss_scale is not None:
            try:
                print(f"FP16 mixed precision enabled (loss_scale={loss_scale})")
            except ValueError:
                print("FP16 is not available")
            else:
                print("GradScaler is not available, will use FP32")

    def __call__(self, batch, log):
        batch = to_device(self.args, batch, self.device)
        log.mark("h2d")
        with torch.autocast(self.device.type, torch.float16, enabled=self.use_fp16):
            logits = self.model(batch["image"], batch["cameras"])
        loss = self.loss(logits, batch["labels"], batch["valid"])
        value = loss.item()
        log.mark("fwd")
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        log.mark("bwd")
        self.scaler.unscale_(self.optimizer)
        for name, parameter in self.model.named_parameters():
            if parameter.grad is None:
                continue
            if parameter.grad.isnan().any().item() or parameter.grad.isinf().any().item():
                raise FloatingPointError(f"gradient of {name} is not finite: raise fp16.loss_scale")
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        log.mark("opt")
        return value

    def check(self):
        """Nothing: every iteration was looked at."""

    def state_dict(self):
        return {"optimizer": self.optimizer.state_dict(), "scaler": self.scaler.state_dict()}

    def load_state_dict(self, state):
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])


class CuredStep(Step):
    """One iteration cured: bfloat16, the schedule applied, gradients looked at on the device."""

    def prepare(self, config):
        from hotloop.feed import Accumulation

        self.scheduler = make_scheduler(config, self.optimizer)
        self.use_bf16 = bool(config.get("bf16")) and "bf16" in self.args.parts and self.device.type == "cuda"
        self.accumulation = Accumulation(
            self.optimizer,
            steps=config.count("runner.accumulative_counts", 1, 1),
            model=self.model,
            clip=self.clip,
        )
        self.interval = config.count("finite_check.interval", 1, 50)
        self.not_finite = torch.zeros((), device=self.device)
        self.unchecked = 0

    def clip(self):
        self.log.mark("bwd")
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        if "foreach_check" in self.args.parts:
            norm = torch.nn.utils.clip_grad_norm_(parameters, self.max_norm, foreach=True)
            self.not_finite += ~norm.isfinite()
            return
        for parameter in parameters:
            self.not_finite += (parameter.grad.isnan().any() | parameter.grad.isinf().any()).item()
        torch.nn.utils.clip_grad_norm_(parameters, self.max_norm)

    def check(self):
        """Raise FloatingPointError if a gradient was not finite since the last time; waits for the device."""
        if self.not_finite.item():
            raise FloatingPointError(
                f"a gradient was not finite in the last {self.unchecked} iterations: go on from the last checkpoint "
                "with a smaller optimizer.lr (with FP16: a smaller loss_scale, if it overflowed)"
            )
        self.unchecked = 0

    def __call__(self, batch, log):
        self.log = log
        log.mark("h2d")
        with self.accumulation.micro_batch():
            image = batch["image"]
            if "channels_last" in self.args.parts:
                image = image.contiguous(memory_format=torch.channels_last)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.use_bf16):
                logits = self.model(image, batch["cameras"])
            loss = self.loss(logits, batch["labels"], batch["valid"])
            log.mark("fwd")
            if self.accumulation.backward(loss, len(image)):
                self.optimizer.zero_grad()
                log.mark("opt")
            else:
                log.mark("bwd")
        self.scheduler.step()
        self.unchecked += 1
        if self.unchecked == self.interval:
            self.check()
        return loss.detach()

    def state_dict(self):
        return {
            "optimizer": self.optimizer.state_dict(), "scheduler": self.scheduler.state_dict(),
            "accumulation": self.accumulation.state_dict(),
        }  # fmt: skip

    def load_state_dict(self, state):
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.accumulation.load_state_dict(state["accumulation"])


def make_model(args, config, calibs, device):
    """Return the model to train and the same without wrappers."""
    settings = config["model"]
    try:
        plain = BevNet(image_size=config["data.img_scale"], **settings).to(device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{config.path}: model: {error}") from None
    if "channels_last" in args.parts:
        plain.to(memory_format=torch.channels_last)
    model = plain
    if "cached_index" in args.parts and "compact" in args.parts and len(calibs) <= MOST_CAMERAS:
        plain.remember(calibs.to(device))
    elif "compact" in args.parts:
        model = plain = WithIntrinsics(plain, calibs.to(device))
    if dist.is_initialized():
        model = DistributedDataParallel(plain, device_ids=[device.index] if device.type == "cuda" else None)
    if "compile" in args.parts and device.type == "cuda":  # on a CPU it takes minutes to start
        model = torch.compile(model, mode="reduce-overhead")
    return model, plain


class WithIntrinsics(torch.nn.Module):
    """A model that takes numbers of cameras and looks their intrinsics up."""

    def __init__(self, net, calibs):
        super().__init__()
        self.net, self.calibs = net, calibs

    def forward(self, images, cameras):
        return self.net(images, self.calibs[cameras])


def save_checkpoint(path, **state):
    torch.save(state, f"{path}.partial")
    os.replace(f"{path}.partial", path)


def tensorboard(args):
    if not args.tensorboard:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise SystemExit(
            "error: --tensorboard needs the package tensorboard: pip install tensorboard"
        ) from None
    return SummaryWriter(Path(args.out) / "tensorboard")


def batches(loader, start):
    """All batches from an iteration on, epoch after epoch."""
    loader.sampler.start = 0
    per_epoch = len(loader)
    for epoch in count(start // per_epoch):
        loader.sampler.epoch = epoch
        loader.sampler.start = (start % per_epoch) * loader.batch_size
        start = 0
        yield from loader


def choose_device(args):
    if not torch.cuda.is_available():
        return torch.device("cpu")
    index = int(os.environ["LOCAL_RANK"]) if "LOCAL_RANK" in os.environ else (args.gpu_ids or [0])[0]
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def prepare(args, config, device):
    """Return loaders, model, the same without wrappers, and the step."""
    root = args.data or config.get("data.data_root")
    if root is None:
        if not dist.is_initialized() or dist.get_rank() == 0:
            make_data(args.scale, args.seed)
        if dist.is_initialized():
            dist.barrier()
        root = make_data(args.scale, args.seed)
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    if dist.is_initialized() and dist.get_rank() > 0:
        dist.barrier()  # the first rank bakes
    train_loader, val_loader, calibs = make_loaders(args, config, root, device)
    if dist.is_initialized() and dist.get_rank() == 0:
        dist.barrier()
    model, plain = make_model(args, config, calibs, device)
    step = (CuredStep if "live_keys" in args.parts else Step)(args, config, model, device)
    return train_loader, val_loader, model, plain, step


def train(args):
    config = load_config(args)
    device = choose_device(args)
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    first_rank = not dist.is_initialized() or dist.get_rank() == 0
    if (kind := config["runner.type"]) != "IterBasedRunner":
        raise ConfigError(f"{config.path}: runner.type is {kind!r}: only 'IterBasedRunner' is known")
    if (metric := config["evaluation.metric"]) != "mIoU":
        raise ConfigError(f"{config.path}: evaluation.metric is {metric!r}: only 'mIoU' is known")
    intervals = {
        key: config.count(f"{key}.interval") for key in ("evaluation", "checkpoint_config", "log_config")
    }
    max_iters = config.count("runner.max_iters")
    if args.sweep:
        return sweep(args, config, device)
    train_loader, val_loader, model, plain, step = prepare(args, config, device)
    config.require_read(() if "live_keys" in args.parts else DEAD)
    if args.epochs:
        max_iters = args.epochs * len(train_loader)
    begin, best = 0, -1.0
    if args.resume:
        begin, best = resume(args.resume, plain, step, device)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    num_params = sum(p.numel() for p in plain.parameters())
    if first_rank:
        print(
            f"{args.variant} on {device}: {len(train_loader)} batches an epoch and rank, {num_params:,} parameters"
        )
    log = StepLog(args.step_log if first_rank else None)
    writer = tensorboard(args) if first_rank else None
    since, num_since = time.perf_counter(), 0
    source = contextlib.closing(batches(train_loader, begin))
    with source as stream, tqdm(total=max_iters, initial=begin, disable=None if first_rank else True) as bar:
        for iteration in range(begin + 1, max_iters + 1):
            log.start()
            batch = next(stream)
            log.mark("data_wait")
            loss = step(batch, log)
            bar.update()
            log.mark("other")
            log.write(iteration - 1, len(batch["image"]), loss)
            num_since += 1
            if iteration % intervals["log_config"] == 0:
                seconds = time.perf_counter() - since
                if first_rank:
                    tqdm.write(
                        speed_line(
                            args, step, iteration, max_iters, loss, num_since, len(batch["image"]), seconds
                        )
                    )
                if writer:
                    writer.add_scalar("loss", float(loss), iteration)
                since, num_since = time.perf_counter(), 0
            if iteration % intervals["evaluation"] == 0 or iteration == max_iters:
                iou = evaluate(args, model, val_loader, device)
                mean = say_iou(iteration, iou) if first_rank else 0.0
                if writer:
                    writer.add_scalar("mIoU", mean, iteration)
                if first_rank and mean > best:
                    step.check()
                    best = mean
                    save_checkpoint(out / "best.pt", model=plain.state_dict(), config=config.values)
                since, num_since = time.perf_counter(), 0
            if first_rank and (iteration % intervals["checkpoint_config"] == 0 or iteration == max_iters):
                step.check()
                save_checkpoint(
                    out / "last.pt",
                    model=plain.state_dict(),
                    step=step.state_dict(),
                    iteration=iteration,
                    best=best,
                )
    if writer:
        writer.close()
    if first_rank:
        print(f"best mIoU {best:.4f}, checkpoints in {out}")


def speed_line(args, step, iteration, max_iters, loss, num_iters, batch_size, seconds):
    """As found the speed is iterations a second, whatever is in one; cured it is samples."""
    lr = step.optimizer.param_groups[0]["lr"]
    rate = num_iters / seconds
    speed = f"{rate * batch_size:.2f} samples/s" if "live_keys" in args.parts else f"{rate:.2f} iter/s"
    return f"Iter [{iteration}/{max_iters}] lr: {lr:.3e}, loss: {float(loss):.4f}, {speed}"


def resume(path, plain, step, device):
    """Load a checkpoint; return the iteration and the best mIoU so far."""
    try:
        state = torch.load(path, map_location=device, weights_only=True)
        plain.load_state_dict(state["model"])
        step.load_state_dict(state["step"])
        return state["iteration"], state["best"]
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except (KeyError, RuntimeError, ValueError, EOFError) as error:
        raise DataError(
            f"{path} is no last.pt of this variant and scale: {str(error).splitlines()[0]}"
        ) from None


def sweep(args, config, device, num_steps=5, num_rounds=3):
    """Time batch sizes in turns; iterations a second fall with the batch, samples a second say what is gained."""
    try:
        sizes = [int(size) for size in args.sweep.split(",")]
    except ValueError:
        raise ConfigError(f"--sweep {args.sweep}: expected batch sizes, as 1,2,4,8") from None
    made = {}
    for size in sizes:
        config.set("data.samples_per_gpu", size)
        loader, _, _, _, step = prepare(args, config, device)
        made[size] = (batches(loader, 0), step, [])
    config.require_read(() if "live_keys" in args.parts else DEAD)
    log = StepLog(None)
    for _ in tqdm(range(num_rounds), desc="rounds", leave=False, disable=None):
        for stream, step, seconds in made.values():
            log.start()
            step(next(stream), log)  # not timed: workers, caches and tuning begin
            begun = time.perf_counter()
            for _ in range(num_steps):
                log.start()
                step(next(stream), log)
            if device.type == "cuda":
                torch.cuda.synchronize()
            seconds.append((time.perf_counter() - begun) / num_steps)
    print(f"{'batch':>5}{'iter/s':>10}{'samples/s':>12}{'iter/s':>10}{'samples/s':>12}")
    rates = {size: 1 / min(seconds) for size, (_, _, seconds) in made.items()}
    base = sizes[0]
    for size, rate in rates.items():
        print(
            f"{size:>5}{rate:>10.2f}{rate * size:>12.2f}{rate / rates[base] - 1:>+10.1%}"
            f"{rate * size / (rates[base] * base) - 1:>+12.1%}"
        )
    for stream, _, _ in made.values():
        stream.close()


def main(argv=None):
    args = parse_args(argv)
    try:
        train(args)
    except (ConfigError, DataError, FloatingPointError) as error:
        raise SystemExit(f"error: {error}") from None
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        raise SystemExit(
            f"error: a batch does not fit: {str(error).splitlines()[0]}\n"
            "hint: --options data.samples_per_gpu=N with a smaller N; cured: runner.accumulative_counts "
            "keeps the effective batch"
        ) from None
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
