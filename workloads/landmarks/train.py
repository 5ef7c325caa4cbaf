"""Train the landmark detector.

    python train.py --variant as_found --scale cpu
    torchrun --nproc_per_node 2 train.py --variant cured --scale cpu

``as_found`` is the project as it was, ``guide`` has the six fixes of its optimisation guide, ``cured`` what
measuring it proposes: ``as_found.py`` has the first, ``cured.py`` the other two. Without ``--data`` synthetic
data is made once and used again.
"""

import argparse
import copy
import json
import os
import sys
import time
from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DistributedSampler

import as_found
import cured
from config import ConfigError, load_config
from data import SCALES, DataError, make_data
from model import LandmarkNet, decode_predictions, to_pixels

HERE = Path(__file__).parent
#: A landmark counts as found within this share of the picture's height.
PCK_RATIO = 0.05

#: What a variant changes about the project as it was found. ``--ablate NAME`` leaves one of them out.
GUIDE = ("precomputed_targets", "configured_loader", "fast_flags", "accumulation", "non_blocking", "compile")
CURE = ("compact", "bf16", "branchless_loss", "device_metrics", "foreach_ema", "fused_optimizer")
PARTS = {"as_found": (), "guide": GUIDE, "cured": GUIDE + CURE}


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


def default_config(args):
    """The file of the scale; cured has its own, as it asks for other workers."""
    return HERE / "configs" / f"{args.scale}{'_cured' if args.variant == 'cured' else ''}.yaml"


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


@torch.no_grad()
def evaluate(model, loader, device):
    """Return (mean error in pixels, share of landmarks within PCK_RATIO of the picture's height)."""
    sums = torch.zeros(3, device=device, dtype=torch.float64)
    for batch in loader:
        if batch["images"].dim() == 5:  # whole files as found; compact ones come expanded on the device
            batch = as_found.to_device(batch, device)
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
    variant = as_found if args.variant == "as_found" else cured
    variant.set_flags(args, config)

    config["data"]["root"] = args.data or config["data"]["root"] or make_data(args.scale, args.seed)
    train_loader, val_loader = variant.make_loaders(args, config, device)
    try:
        plain = LandmarkNet(**config["model"]).to(device, memory_format=torch.channels_last)
    except (TypeError, ValueError, RuntimeError, IndexError) as error:
        raise ConfigError(f"{path}: model: {error}") from None
    fused = {"fused": True} if "fused_optimizer" in args.parts else {}
    optimizer = torch.optim.AdamW(
        plain.parameters(), lr=settings["lr"], weight_decay=settings["weight_decay"], **fused
    )
    scheduler = torch.optim.lr_scheduler.CosineAnnealingWarmRestarts(optimizer, settings["restart_epochs"])
    average = copy.deepcopy(plain).eval().requires_grad_(False)  # evaluated instead of the model
    parts = {"model": plain, "ema": average, "optimizer": optimizer, "scheduler": scheduler}
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
        values = variant.train_epoch(
            args, config, model, average, train_loader, optimizer, device, log, epoch
        )
        scheduler.step()
        error, close = evaluate(average, val_loader, device)
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
            "ema": average.state_dict(),
            "optimizer": optimizer.state_dict(),
            "scheduler": scheduler.state_dict(),
            "order": order.get_state() if order else None,
            "epoch": epoch,
            "best": min(best, error),
        }
        save_checkpoint(out / "last.pt", **state)
        if error < best:
            best = error
            save_checkpoint(out / "best.pt", ema=average.state_dict(), model_settings=config["model"])
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
