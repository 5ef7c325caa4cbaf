"""Train the segmentation of streets from above.

    python train.py --variant as_found --scale cpu
    python train.py configs/baseline/lss_swin_nuscenes_optimized.py --variant guide --work-dir runs/test \\
        --gpu-ids 0 --options runner.max_iters=100
    torchrun --nproc_per_node 2 train.py --variant cured --scale cpu

``as_found`` is the project as it was, ``guide`` the same code with the configurations of its optimisation
guide, ``cured`` what measuring it proposes. Without ``--data`` synthetic data is made once and used again.
"""

import argparse
import contextlib
import json
import os
import re
import sys
import textwrap
import time
from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

from config import Config, ConfigError
from data import CLASSES, NUM_CLASSES, DataError, make_data
from data import SCALES as DATA_SCALES
from loaders import batches, make_loaders, to_device
from model import BevNet
from steps import CuredStep, Step

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
#: Small scales change the sizes in a configuration and divide its counts of iterations.
SCALES = {
    "tiny": (
        10_000,
        "model.embed_dim=24 model.depths=(1,1,2,1) model.num_heads=(1,2,4,8) model.lift_channels=16 "
        "model.topdown_width=16 model.topdown_layers=(1,1) data.img_scale=(128,96) "
        "lr_config.warmup_iters=1 log_config.interval=4",
    ),
    "cpu": (
        1000,
        "model.embed_dim=48 model.depths=(2,2,2,2) model.lift_channels=32 model.topdown_width=32 "
        "model.topdown_layers=(1,1) data.img_scale=(256,192) "
        "lr_config.warmup_iters=2 log_config.interval=10",
    ),
    "full": (1, ""),
}
COUNTS = ("runner.max_iters", "evaluation.interval", "checkpoint_config.interval")


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
    parser.add_argument("--options", nargs="+", default=[], metavar="KEY=VALUE", help="change a key each")
    parser.add_argument("--epochs", type=int, help="instead of runner.max_iters")
    parser.add_argument("--sweep", help="batch sizes, as 1,2,4,8: time a few steps of each and stop")
    parser.add_argument("--ablate", action="append", default=[], help="leave out one part of the variant")
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


def require_live_keys(args, config):
    """Stop for a key that nothing reads; as found, those of the project's own files are only named."""
    files = [] if "live_keys" in args.parts else sorted((HERE / "configs" / "baseline").glob("*.py"))
    known = {name for path in files for name in re.findall(r"(\w+)=", path.read_text())}
    dead = config.require_read(known)
    if dead and is_first_rank():
        print(f"{config.path}: read by nothing: {', '.join(dead)}", file=sys.stderr)


def is_first_rank():
    return not dist.is_initialized() or dist.get_rank() == 0


# -- loss, metric -------------------------------------------------------------------------------------------


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

    def write(self, step, num_samples, loss):
        if not self.path:
            return
        row = {"step": step, **dict.fromkeys(self.PHASES, 0.0)}
        for (_, before), (name, after) in zip(self.marks, self.marks[1:], strict=False):
            row[name] += after - before
        seconds = self.marks[-1][1] - self.marks[0][1]
        row.update(samples_per_s=num_samples / seconds, loss=float(loss))
        with open(self.path, "a") as file:
            file.write(json.dumps(row) + "\n")


def make_model(args, config, calibs, device):
    """Return the model to train and the same without wrappers."""
    try:
        plain = BevNet(image_size=config["data.img_scale"], **config["model"]).to(device)
    except (TypeError, ValueError, RuntimeError) as error:
        raise ConfigError(f"{config.path}: model: {error}") from None
    if "channels_last" in args.parts:
        plain.to(memory_format=torch.channels_last)
    if "compact" in args.parts:
        sort_once = "cached_index" in args.parts and len(calibs) <= MOST_CAMERAS
        plain.remember(calibs.to(device), sort_once)
    model = plain
    if dist.is_initialized():
        devices = [device.index] if device.type == "cuda" else None
        model = DistributedDataParallel(plain, device_ids=devices, broadcast_buffers=False)
    if "compile" in args.parts and device.type == "cuda":  # on a CPU it takes minutes to start
        model = torch.compile(model, mode="reduce-overhead")
    return model, plain


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


def choose_device(args):
    if not torch.cuda.is_available():
        return torch.device("cpu")
    index = int(os.environ["LOCAL_RANK"]) if "LOCAL_RANK" in os.environ else (args.gpu_ids or [0])[0]
    torch.cuda.set_device(index)
    return torch.device("cuda", index)


def prepare(args, config, device):
    """Return the two loaders, the model without wrappers, and the step."""
    root = args.data or config.get("data.data_root")
    if root is None:
        if is_first_rank():
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
    return train_loader, val_loader, plain, step


def train(args):
    config = load_config(args)
    device = choose_device(args)
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    for key, known in (("runner.type", "IterBasedRunner"), ("evaluation.metric", "mIoU")):
        if config[key] != known:
            raise ConfigError(f"{config.path}: {key} is {config[key]!r}: only {known!r} is known")
    evaluate_every, log_every = config.count("evaluation.interval"), config.count("log_config.interval")
    save_every = config.count("checkpoint_config.interval")
    max_iters = config.count("runner.max_iters")
    if args.sweep:
        sweep(args, config, device)
        return
    train_loader, val_loader, plain, step = prepare(args, config, device)
    require_live_keys(args, config)
    if args.epochs:
        max_iters = args.epochs * len(train_loader)
    begin, best = resume(args.resume, plain, step, device) if args.resume else (0, -1.0)
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    first_rank = is_first_rank()
    log, writer = StepLog(args.step_log if first_rank else None), tensorboard(args) if first_rank else None
    if first_rank:
        num_params = sum(p.numel() for p in plain.parameters())
        print(f"{args.variant} on {device}: {len(train_loader)} batches an epoch, {num_params:,} parameters")

    speed = Speed("samples" if "live_keys" in args.parts else "iter")
    stream = batches(train_loader, begin)
    bar = tqdm(range(begin + 1, max_iters + 1), disable=None if first_rank else True)
    with contextlib.closing(stream):
        for iteration in bar:
            log.start()
            batch = next(stream)
            log.mark("data_wait")
            loss = step(batch, log)
            log.mark("other")
            log.write(iteration - 1, len(batch["image"]), loss)
            speed.count(len(batch["image"]))
            if first_rank and iteration % log_every == 0:
                lr = step.optimizer.param_groups[0]["lr"]
                tqdm.write(f"Iter [{iteration}/{max_iters}] lr: {lr:.3e}, loss: {float(loss):.4f}, {speed}")
                write_scalars(writer, iteration, loss=float(loss), lr=lr)
                speed.restart()
            if iteration % evaluate_every == 0 or iteration == max_iters:
                iou = evaluate(args, plain, val_loader, device)  # ranks may have unequal shares
                if first_rank:
                    mean = say_iou(iteration, iou)
                    write_scalars(writer, iteration, mIoU=mean)
                    if mean > best:
                        best = mean
                        step.check()
                        save_checkpoint(out / "best.pt", model=plain.state_dict(), config=config.values)
                speed.restart()
            if first_rank and (iteration % save_every == 0 or iteration == max_iters):
                step.check()
                state = {"model": plain.state_dict(), "step": step.state_dict()}
                save_checkpoint(out / "last.pt", iteration=iteration, best=best, **state)
    if writer:
        writer.close()
    if first_rank:
        print(f"best mIoU {best:.4f}, checkpoints in {out}")


class Speed:
    """As found, iterations a second, whatever is in one; cured, samples a second."""

    def __init__(self, unit):
        self.unit = unit
        self.restart()

    def restart(self):
        self.begun, self.number = time.perf_counter(), 0

    def count(self, num_samples):
        self.number += 1 if self.unit == "iter" else num_samples

    def __str__(self):
        return f"{self.number / (time.perf_counter() - self.begun):.2f} {self.unit}/s"


def write_scalars(writer, iteration, **scalars):
    for name, value in scalars.items() if writer else ():
        writer.add_scalar(name, value, iteration)


def resume(path, plain, step, device):
    """Load a checkpoint; return the iteration and the best mIoU so far."""
    try:
        state = torch.load(path, map_location=device, weights_only=True)
        plain.load_state_dict(state["model"])
        step.load_state_dict(state["step"])
        return state["iteration"], state["best"]
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except (KeyError, RuntimeError, ValueError, TypeError, EOFError, UnpicklingError) as error:
        raise DataError(
            f"{path} is no last.pt of this variant and scale: {str(error).splitlines()[0]}"
        ) from None


def sweep(args, config, device, num_steps=5, num_rounds=3):
    """Time batch sizes in turns: iterations a second fall with the batch whatever is gained."""
    try:
        sizes = [int(size) for size in args.sweep.split(",")]
    except ValueError:
        raise ConfigError(f"--sweep {args.sweep}: expected batch sizes, as 1,2,4,8") from None
    made = {}
    for size in sizes:
        config.set("data.samples_per_gpu", size)
        loader, _, _, step = prepare(args, config, device)
        made[size] = (batches(loader, 0), step, [])
    require_live_keys(args, config)
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


def dry(args):
    """Few pictures, one of them in the batch."""
    sys.path.append(str(Path(__file__).parents[1]))
    from dry_run import dry_run

    *_, width, height, suffix, _ = DATA_SCALES[args.scale]
    whole = load_config(args).count("data.samples_per_gpu")
    args.options = [*args.options, "data.samples_per_gpu=1", "data.workers_per_gpu=0"]

    def begin(folder):
        args.data = make_data(args.scale, args.seed, folder, (2, 1, width, height, suffix, 500))
        args.out = folder / "out"
        train(args)

    dry_run(f"bev, {args.variant}, {args.scale} scale", begin, f"1 of {whole} pictures", 1 / whole)


def main(argv=None):
    args = parse_args(argv)
    try:
        (dry if args.dry_run else train)(args)
    except (ConfigError, DataError, FloatingPointError, OSError) as error:
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
