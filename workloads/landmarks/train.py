"""Train the landmark detector.

    python train.py --variant as_found --scale cpu
    torchrun --nproc_per_node 2 train.py --variant cured --scale cpu

``as_found`` is the project as it was, ``guide`` has the six fixes of its optimisation guide, ``cured`` what
measuring it proposes. Without ``--data`` synthetic data is made once and used again.
"""

import argparse
import copy
import difflib
import json
import os
import sys
import time
from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import torch
import torch.distributed as dist
import yaml
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, RandomSampler, Subset
from tqdm import tqdm

from data import RADIUS, SCALES, SIGMA, STRIDE, CompactBatches, DataError, NpyBatches, make_data
from model import LandmarkNet, decode_predictions, gather_offsets, to_pixels

HERE = Path(__file__).parent
#: A landmark counts as found within this share of the picture's height.
PCK_RATIO = 0.05

#: What a variant changes about the project as it was found. ``--ablate NAME`` leaves one of them out.
GUIDE = ("precomputed_targets", "configured_loader", "fast_flags", "accumulation", "non_blocking", "compile")
CURE = ("compact", "bf16", "branchless_loss", "device_metrics", "foreach_ema", "fused_optimizer")
PARTS = {"as_found": (), "guide": GUIDE, "cured": GUIDE + CURE}


class ConfigError(ValueError):
    """The configuration has a key nobody knows, or a value that cannot be meant."""


def parse_args(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--variant", choices=tuple(PARTS), default="as_found")
    parser.add_argument("--scale", choices=tuple(SCALES), default="cpu")
    parser.add_argument("--config", help="a YAML file (default: the one of the scale, in configs/)")
    parser.add_argument("--data", help="a folder that holds images/ and labels/")
    parser.add_argument("--out", default=str(HERE / "out"), help="where checkpoints go")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--ablate", action="append", default=[], help="leave out one part of the variant")
    parser.add_argument("--regression", choices=("mask_pool",), help="a later change that undid the cure")
    parser.add_argument(
        "--identical_targets", action="store_true", help="as_found draws targets where the files have them"
    )
    parser.add_argument("--resume", help="a checkpoint to go on from")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step_log", help="write one JSON object per step to this file")
    parser.add_argument("--tensorboard", action="store_true", help="write scalars to OUT/tensorboard")
    parser.add_argument("--dry-run", action="store_true", help="build it, count it, make one update and stop")
    args = parser.parse_args(argv)
    if args.seed < 0 or (args.epochs is not None and args.epochs < 1):
        parser.error(f"--epochs {args.epochs} --seed {args.seed}: expected at least 1 and 0")
    if unknown := set(args.ablate) - set(PARTS[args.variant]):
        known = ", ".join(PARTS[args.variant]) or "none"
        parser.error(f"--ablate {unknown.pop()}: the parts of {args.variant} are {known}")
    args.parts = set(PARTS[args.variant]) - set(args.ablate)
    if args.regression:
        args.parts -= {"compact"}  # the loader was written anew: whole files again
    return args


#: Sections and keys of a configuration.
KEYS = {
    "data": ("root", "num_workers", "prefetch_factor"),
    "model": ("channels", "modules", "pyramid"),
    "training": (
        "epochs", "lr", "weight_decay", "restart_epochs", "ema_decay", "clip_grad_norm", "offset_weight",
        "amp", "cudnn_benchmark", "gradient_accumulation_steps",
    ),
}  # fmt: skip
#: The least that a count may be.
COUNTS = {
    "data": {"prefetch_factor": 1},
    "training": {"epochs": 1, "restart_epochs": 1, "gradient_accumulation_steps": 1},
}
NUMBERS = ("lr", "weight_decay", "ema_decay", "clip_grad_norm", "offset_weight")


def load_config(path):
    """Read a YAML file with the sections and keys of ``KEYS``; no other key, none missing."""
    try:
        with open(path) as file:
            config = yaml.safe_load(file)
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {error}") from None
    require_keys(path, "", config, KEYS)
    for section, keys in KEYS.items():
        require_keys(path, f"{section}.", config[section], keys)
        for key, least in COUNTS.get(section, {}).items():
            value = config[section][key]
            if type(value) is not int or value < least:
                raise ConfigError(
                    f"{path}: {section}.{key} is {value!r}: expected a whole number from {least}"
                )
    workers = config["data"]["num_workers"]
    if workers != "auto" and (type(workers) is not int or workers < 0):
        raise ConfigError(
            f'{path}: data.num_workers is {workers!r}: expected a whole number from 0 or "auto"'
        )
    for key in NUMBERS:
        if type(value := config["training"][key]) not in (int, float) or not np.isfinite(value):
            hint = " (YAML wants a point: 3.0e-4)" if "e" in str(value) else ""
            raise ConfigError(f"{path}: training.{key} is {value!r}: expected a number{hint}")
    return config


def default_config(args):
    """The file of the scale; cured has its own, as it asks for other workers."""
    return HERE / "configs" / f"{args.scale}{'_cured' if args.variant == 'cured' else ''}.yaml"


def require_keys(path, section, found, known):
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: {section or 'the file'} holds no keys")
    for key in found:
        if key not in known:
            near = difflib.get_close_matches(str(key), known, n=1)
            hint = f"did you mean {section}{near[0]}?" if near else f"known: {', '.join(known)}"
            raise ConfigError(f"{path}: unknown key {section}{key}: {hint}")
    if missing := [key for key in known if key not in found]:
        raise ConfigError(f"{path}: {section}{missing[0]} is missing")


def enabled(settings, key):
    """Whether a switch is on, by ``true`` or by the name of a precision."""
    return settings[key] in (True, "bf16")


# -- targets and loss ---------------------------------------------------------------------------------------


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


def heatmap_loss(predicted, target, weights, branchless):
    """Penalty-reduced focal loss: cells where the target is 1 are positive, those near them count less."""
    predicted = predicted.clamp(1e-4, 1 - 1e-4)
    positive = target.eq(1).float()
    weights = weights[:, None]
    near = (torch.log(predicted) * (1 - predicted) ** 2 * positive * weights).sum()
    far = (torch.log(1 - predicted) * predicted**2 * (1 - target) ** 4 * weights).sum()
    num_positive = positive.sum()
    if branchless:
        return -(near + far) / num_positive.clamp(min=1)
    if num_positive == 0:
        return -far
    return -(near + far) / num_positive


def compute_loss(args, config, outputs, batch):
    """Return the loss and its two parts."""
    cells, offsets = batch["cells"], batch["cell_offsets"]
    if "precomputed_targets" in args.parts:
        heatmaps = batch["heatmaps"]
    else:
        grid = outputs["heatmaps"].shape[-2:]
        heatmaps, maps = generate_targets(cells, offsets, grid, args.identical_targets)
        offsets = gather_offsets(maps, cells)
    heat = heatmap_loss(outputs["heatmaps"], heatmaps, batch["weights"], "branchless_loss" in args.parts)
    offset = functional.l1_loss(gather_offsets(outputs["offsets"], cells), offsets)
    return heat + config["training"]["offset_weight"] * offset, heat, offset


# -- setting up ---------------------------------------------------------------------------------------------


def set_flags(args, config):
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False
    if "fast_flags" in args.parts:
        torch.backends.cudnn.deterministic = False
        torch.backends.cudnn.benchmark = config["training"]["cudnn_benchmark"]
        torch.backends.cuda.matmul.allow_tf32 = True
        torch.backends.cudnn.allow_tf32 = True


def make_loaders(args, config, root, device):
    """Return the training loader and the validation loader; an item of either is a whole file."""
    if "compact" in args.parts:
        train_set, val_set = compact(root, "train"), compact(root, "val")
    else:
        mask_pool = args.regression == "mask_pool"
        train_set, val_set = (NpyBatches(root, mode, mask_pool) for mode in ("train", "val"))
    rank, world_size = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    if world_size > 1:
        sampler = DistributedSampler(train_set, seed=args.seed)
        val_set = Subset(val_set, range(rank, len(val_set), world_size))
    else:
        sampler = RandomSampler(train_set, generator=torch.Generator().manual_seed(args.seed))
    pin_memory = device.type == "cuda"
    num_workers = config["data"]["num_workers"]
    prefetch_factor = config["data"]["prefetch_factor"] if num_workers else None
    options = {"num_workers": num_workers, "prefetch_factor": prefetch_factor, "pin_memory": pin_memory}
    if "compact" in args.parts:
        from hotloop.feed import DevicePrefetcher, Loader

        train_loader = Loader(train_set, batch_size=1, sampler=sampler, **options)
        val_loader = Loader(val_set, batch_size=1, num_workers=0, pin_memory=pin_memory)
        return tuple(
            DevicePrefetcher(loader, device, transform=expand) for loader in (train_loader, val_loader)
        )
    if "configured_loader" in args.parts:
        if num_workers == "auto":  # hotloop.feed's; torch's loader wants a number
            options["num_workers"] = len(os.sched_getaffinity(0))
        train_loader = DataLoader(train_set, batch_size=1, sampler=sampler, **options)
        return train_loader, DataLoader(val_set, batch_size=1, **options)
    train_loader = DataLoader(train_set, batch_size=1, sampler=sampler, num_workers=2, pin_memory=pin_memory)
    val_loader = DataLoader(val_set, batch_size=1, shuffle=False, num_workers=2, pin_memory=pin_memory)
    return train_loader, val_loader


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


class EMA:
    """A running average of the model, evaluated instead of it."""

    def __init__(self, model, decay, foreach):
        self.model = copy.deepcopy(model).eval().requires_grad_(False)
        self.decay, self.foreach = decay, foreach

    @torch.no_grad()
    def update(self, model):
        if self.foreach:
            averages, values = list(self.model.parameters()), list(model.parameters())
            torch._foreach_mul_(averages, self.decay)
            torch._foreach_add_(averages, values, alpha=1 - self.decay)
            torch._foreach_copy_(list(self.model.buffers()), list(model.buffers()))
            return
        for average, value in zip(self.model.parameters(), model.parameters(), strict=True):
            average.mul_(self.decay).add_(value, alpha=1 - self.decay)
        for average, value in zip(self.model.buffers(), model.buffers(), strict=True):
            average.copy_(value)


# -- running ------------------------------------------------------------------------------------------------


class StepLog:
    """One JSON object per step: seconds by phase, samples per second, loss."""

    def __init__(self, path):
        self.path, self.marks = path, []
        if path:
            Path(path).write_text("")

    def start(self):
        self.marks = [("start", time.perf_counter())]

    def mark(self, name):
        self.marks.append((name, time.perf_counter()))

    def write(self, step, num_samples, loss):
        if not self.path:
            return
        row = {"step": step}
        for (_, before), (name, after) in zip(self.marks, self.marks[1:], strict=False):
            row[name] = after - before
        seconds = self.marks[-1][1] - self.marks[0][1]
        row.update(samples_per_s=num_samples / seconds, loss=float(loss))
        with open(self.path, "a") as file:
            file.write(json.dumps(row) + "\n")


def train_epoch(args, config, model, loader, optimizer, ema, device, log, epoch):
    """Train on every file once; return the mean of loss, its two parts and the two errors in pixels."""
    model.train()
    settings = config["training"]
    plain = model.module if isinstance(model, DistributedDataParallel) else model
    non_blocking, on_device = "non_blocking" in args.parts, "device_metrics" in args.parts
    group = settings["gradient_accumulation_steps"] if "accumulation" in args.parts else 1
    if "bf16" in args.parts:
        use_bf16 = enabled(settings, "amp") and device.type == "cuda"
    else:
        use_bf16 = settings["amp"] == "bf16"
    totals = torch.zeros(5, device=device) if on_device else np.zeros(5)
    log.start()
    bar = tqdm(loader, desc=f"epoch {epoch + 1}", leave=False, disable=None)
    for step, batch in enumerate(bar):
        log.mark("data_wait")
        batch = to_device(batch, device, non_blocking)
        log.mark("h2d")
        with torch.autocast(device.type, torch.bfloat16, enabled=use_bf16):
            outputs = model(batch["images"])
        loss, heat, offset = compute_loss(args, config, outputs, batch)
        with torch.no_grad():
            truth = to_pixels(batch["cells"], batch["cell_offsets"])
            errors = (decode_predictions(outputs) - truth).norm(dim=2).mean(dim=0)
        if on_device:
            totals += torch.stack([loss.detach(), heat.detach(), offset.detach(), *errors])
        else:
            totals += [loss.item(), heat.item(), offset.item(), errors[0].item(), errors[1].item()]
            bar.set_postfix(loss=f"{totals[0] / (step + 1):.4f}")
        log.mark("fwd")
        (loss / group).backward()
        log.mark("bwd")
        if (step + 1) % group == 0 or step + 1 == len(loader):
            torch.nn.utils.clip_grad_norm_(model.parameters(), settings["clip_grad_norm"])
            optimizer.step()
            optimizer.zero_grad()
            log.mark("opt")
            ema.update(plain)
        log.mark("other")
        log.write(epoch * len(loader) + step, len(batch["images"]), loss.detach())
        log.start()
    return (totals / len(loader)).tolist()


@torch.no_grad()
def evaluate(model, loader, device):
    """Return (mean error in pixels, share of landmarks within PCK_RATIO of the picture's height)."""
    sums = torch.zeros(3, device=device, dtype=torch.float64)
    for batch in loader:
        batch = to_device(batch, device, non_blocking=False)
        truth = to_pixels(batch["cells"], batch["cell_offsets"])
        errors = (decode_predictions(model(batch["images"])) - truth).norm(dim=2)
        close = errors <= PCK_RATIO * batch["images"].shape[2]
        sums += torch.stack([errors.sum(), close.sum(), torch.tensor(errors.numel(), device=device)])
    if dist.is_initialized():
        dist.all_reduce(sums)
    error, close, count = sums.tolist()
    return error / count, close / count


def save_checkpoint(path, **state):
    torch.save(state, f"{path}.partial")
    os.replace(f"{path}.partial", path)


def resume(path, parts, train_loader):
    """Load a checkpoint into what it was made of; return the next epoch and the best error so far."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
        for name, part in parts.items():
            part.load_state_dict(state[name])
        if getattr(train_loader.sampler, "generator", None):
            train_loader.sampler.generator.set_state(state["order"])
        return state["epoch"] + 1, state["best"]
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except (KeyError, RuntimeError, ValueError, TypeError, EOFError, UnpicklingError) as error:
        raise DataError(
            f"{path} is no last.pt of this variant and scale: {str(error).splitlines()[0]}"
        ) from None


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


def train(args):
    path = args.config or default_config(args)
    config = load_config(path)
    settings = config["training"]
    epochs = args.epochs or settings["epochs"]
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    first_rank = not dist.is_initialized() or dist.get_rank() == 0
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    set_flags(args, config)

    root = args.data or config["data"]["root"] or make_data(args.scale, args.seed)
    train_loader, val_loader = make_loaders(args, config, root, device)
    try:
        plain = LandmarkNet(**config["model"]).to(device, memory_format=torch.channels_last)
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise ConfigError(f"{path}: model: {error}") from None
    fused = {"fused": True} if "fused_optimizer" in args.parts else {}
    optimizer = torch.optim.AdamW(
        plain.parameters(), lr=settings["lr"], weight_decay=settings["weight_decay"], **fused
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, settings["restart_epochs"])
    ema = EMA(plain, settings["ema_decay"], "foreach_ema" in args.parts)
    parts = {"model": plain, "ema": ema.model, "optimizer": optimizer, "scheduler": scheduler}
    first_epoch, best = resume(args.resume, parts, train_loader) if args.resume else (0, float("inf"))
    model = DistributedDataParallel(plain) if dist.is_initialized() else plain
    if "compile" in args.parts and device.type == "cuda":  # on a CPU it takes minutes to start
        model = torch.compile(model, mode="max-autotune")

    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    if first_rank:
        num_params = sum(p.numel() for p in plain.parameters())
        print(f"{args.variant} on {device}: {len(train_loader)} files a rank, {num_params:,} parameters")
    log = StepLog(args.step_log if first_rank else None)
    writer = tensorboard(args) if first_rank else None
    for epoch in range(first_epoch, epochs):
        if isinstance(train_loader.sampler, DistributedSampler):
            train_loader.sampler.set_epoch(epoch)
        values = train_epoch(args, config, model, train_loader, optimizer, ema, device, log, epoch)
        scheduler.step()
        error, close = evaluate(ema.model, val_loader, device)
        if not np.isfinite(values[0]):
            raise ConfigError(
                f"{path}: the loss of epoch {epoch + 1} is {values[0]}: go on with --resume and a lower "
                "training.lr"
            )
        if not first_rank:
            continue
        scalars = dict(zip(("loss", "heat", "offset", "train_px_a", "train_px_b"), values, strict=True))
        scalars.update(val_px=error, val_pck=close)
        print(
            f"Epoch {epoch + 1}/{epochs} loss {values[0]:.4f} (heat {values[1]:.4f}, offset {values[2]:.4f}) "
            f"val {error:.2f} px, PCK {close:.1%}"
        )
        for name, value in scalars.items() if writer else ():
            writer.add_scalar(name, value, epoch)
        order = getattr(train_loader.sampler, "generator", None)
        state = {
            "model": plain.state_dict(),
            "ema": ema.model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "order": order.get_state() if order else None,
            "epoch": epoch,
            "best": min(best, error),
        }
        save_checkpoint(out / "last.pt", **state)
        if error < best:
            best = error
            save_checkpoint(out / "best.pt", ema=ema.model.state_dict(), model_settings=config["model"])
    if writer:
        writer.close()
    if first_rank:
        print(f"best validation error {best:.2f} px, checkpoints in {out}")


def dry(args):
    """A file of few pictures, as large as all."""
    sys.path.append(str(Path(__file__).parents[1]))
    from dry_run import dry_run

    _, _, num_samples, height, width = SCALES[args.scale]
    few = min(num_samples, 4)

    def begin(folder):
        args.data = make_data(args.scale, args.seed, folder, (1, 1, few, height, width))
        args.out = folder / "out"
        train(args)

    title = f"landmarks, {args.variant}, {args.scale} scale"
    dry_run(title, begin, f"{few} of {num_samples} pictures", few / num_samples)


def main(argv=None):
    args = parse_args(argv)
    try:
        (dry if args.dry_run else train)(args)
    except (ConfigError, DataError, OSError) as error:
        raise SystemExit(f"error: {error}") from None
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        raise SystemExit(
            f"error: a batch does not fit: {str(error).splitlines()[0]}\n"
            "hint: a batch is a whole file: write files of fewer samples, and raise "
            "training.gradient_accumulation_steps (guide, cured) to keep the effective batch"
        ) from None
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
