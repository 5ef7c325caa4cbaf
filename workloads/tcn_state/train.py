"""Train the state predictor.

    python train.py --variant as_found --scale cpu
    python train.py --variant guide --data_dir "data_simulation_*" --epochs 100 --batch_size 512 --lr 1e-3 \\
        --lambda_physics 0.5 --num_workers 8 --prefetch_factor 8 --use_amp --cache_data --use_torch_compile
    torchrun --nproc_per_node 2 train.py --variant cured --scale cpu

``as_found`` is the project as it was, ``guide`` adds what its optimisation guide proposes, ``cured`` what
measuring it proposes. Without ``--data`` or ``--data_dir`` synthetic data is made once and used again.
"""

import argparse
import difflib
import json
import math
import os
import sys
import time
from pathlib import Path
from pickle import UnpicklingError

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.functional import mse_loss
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, Subset
from tqdm import tqdm

from data import (
    PRED_LEN,
    QUALITY,
    SEQ_LEN,
    STRIDE,
    DataError,
    GatheredDataset,
    PrenormalisedDataset,
    PrinterDataset,
    find_files,
    fit_scaler,
    make_data,
)
from data import SCALES as DATA_SCALES
from model import ImplicitStateTCN

SMALL = {"channels": (8, 8, 16), "time_stride": 8}
SCALES = {
    "tiny": {**SMALL, "hidden": 32, "epochs": 2, "batch_size": 32, "num_workers": 0},
    "cpu": {**SMALL, "hidden": 64, "epochs": 18, "batch_size": 256, "num_workers": 0},
    "full": {
        "channels": (128, 128, 256), "time_stride": 1, "hidden": 256,
        "epochs": 100, "batch_size": 512, "num_workers": 4,
    },
}  # fmt: skip


#: What a variant changes about the project as it was found. ``--ablate NAME`` leaves one of them out.
PARTS = {
    "as_found": (),
    "guide": ("prenormalise", "loader_settings", "non_blocking", "compile", "epoch_throughput"),
    "cured": (
        "prenormalise", "gather", "non_blocking", "compile", "branchless_loss", "device_sums",
        "epoch_throughput",
    ),
}  # fmt: skip
COMPILE_MODES = ("reduce-overhead", "max-autotune", "default")


class SettingsError(ValueError):
    """A flag has a value that cannot be meant here, or a checkpoint is of something else."""


def boolean(text):
    """``--flag``, ``--flag=True`` and ``--flag=False`` all mean what they say."""
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise argparse.ArgumentTypeError(f"expected true or false, got {text!r}")


def count(text):
    """A whole number from 1."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"expected a whole number from 1, got {text!r}")
    return int(text)


def parse_args(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    parser.add_argument("--variant", choices=("as_found", "guide", "cured"), default="as_found")
    parser.add_argument("--scale", choices=tuple(SCALES), help="default: full with --data_dir, otherwise cpu")
    parser.add_argument("--data", help="a folder that holds data_simulation_* folders")
    parser.add_argument("--data_dir", help="a glob of folders with .mat files: 'data_simulation_*'")
    parser.add_argument("--out", default=str(Path(__file__).parent / "out"), help="where checkpoints go")
    parser.add_argument("--epochs", type=count)
    parser.add_argument("--batch_size", type=count)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--lambda_physics", type=float, default=0.5)
    parser.add_argument("--num_workers", type=lambda text: 0 if text == "0" else count(text))
    parser.add_argument(
        "--prefetch_factor", type=count, help="default: torch's 2; guide: max(2, num_workers)"
    )
    flag = {"type": boolean, "nargs": "?", "const": True, "default": False}
    parser.add_argument("--cache_data", **flag)
    parser.add_argument("--use_amp", **flag)
    parser.add_argument(
        "--use_torch_compile", **{**flag, "default": None}, help="default: guide and cured, on a GPU"
    )
    parser.add_argument("--compile_mode", choices=COMPILE_MODES, default=COMPILE_MODES[0])
    parser.add_argument("--ablate", action="append", default=[], help="leave out one part of the variant")
    parser.add_argument("--resume", help="a checkpoint to go on from")
    parser.add_argument("--seed", type=lambda text: 0 if text == "0" else count(text), default=0)
    parser.add_argument("--step_log", help="write one JSON object per step to this file")
    parser.add_argument("--tensorboard", action="store_true", help="write scalars to OUT/tensorboard")
    parser.add_argument("--dry-run", action="store_true", help="build it, count it, make one update and stop")
    args, unknown = parser.parse_known_args(argv)
    for text in unknown:
        known = [flag for action in parser._actions for flag in action.option_strings]
        near = difflib.get_close_matches(text.partition("=")[0], known, n=1, cutoff=0.7)
        parser.error(f"unknown argument {text}: " + (f"did you mean {near[0]}?" if near else "see --help"))
    args.scale = args.scale or ("full" if args.data_dir else "cpu")
    scale = SCALES[args.scale]
    for name in ("epochs", "batch_size", "num_workers"):
        if getattr(args, name) is None:
            setattr(args, name, scale[name])
    if unknown := set(args.ablate) - set(PARTS[args.variant]):
        known = ", ".join(PARTS[args.variant]) or "none"
        parser.error(f"--ablate {unknown.pop()}: the parts of {args.variant} are {known}")
    args.parts = set(PARTS[args.variant]) - set(args.ablate)
    args.dead = dead_flags(args, sys.argv[1:] if argv is None else argv)
    if args.use_torch_compile is None:  # on a CPU it takes longer to start than it saves
        args.use_torch_compile = "compile" in args.parts and torch.cuda.is_available()
    return args


def dead_flags(args, argv):
    """Flags that were given and that nothing reads in this variant."""
    gathered = "gather" in args.parts
    dead = {
        "--cache_data": gathered or "prenormalise" not in args.parts,
        "--num_workers": gathered,
        "--prefetch_factor": gathered or not args.num_workers,
        "--compile_mode": args.use_torch_compile is False,
    }
    given = {word.partition("=")[0] for word in argv}
    return [flag for flag, is_dead in dead.items() if is_dead and flag in given]


# -- loss ---------------------------------------------------------------------------------------------------


def stack(outputs):
    return torch.stack([outputs[name] for name in QUALITY], dim=1)


def loss_as_found(outputs, targets, lambda_physics):
    """Five mean squared errors and the physics terms; each ``if`` on a tensor waits for the device."""
    loss = 0.0
    for i, name in enumerate(QUALITY):
        loss = loss + mse_loss(outputs[name], targets[:, i])
    physics = torch.zeros((), device=targets.device)
    below, above = torch.relu(-stack(outputs)), torch.relu(stack(outputs) - 1)
    if below.max() > 0:
        physics = physics + below.pow(2).mean()
    if above.max() > 0:
        physics = physics + above.pow(2).mean()
    spread = stack(outputs).std(dim=0).mean()
    if spread < 0.01:  # all windows predicted alike
        physics = physics + (0.01 - spread)
    mismatch = outputs["quality_score"] - 0.5 * outputs["adhesion_ratio"]
    if (mismatch < 0).any():
        physics = physics + torch.relu(-mismatch).mean()
    return loss + lambda_physics * physics, loss, physics


def loss_on_device(outputs, targets, lambda_physics):
    """The same sum without a branch: nothing has to leave the device."""
    predicted = stack(outputs)
    loss = (predicted - targets).pow(2).mean(dim=0).sum()
    bounds = torch.relu(-predicted).pow(2).mean() + torch.relu(predicted - 1).pow(2).mean()
    spread = predicted.std(dim=0).mean()
    collapse = torch.where(spread < 0.01, 0.01 - spread, torch.zeros_like(spread))
    mismatch = outputs["quality_score"] - 0.5 * outputs["adhesion_ratio"]
    physics = bounds + collapse + torch.relu(-mismatch).mean()
    return loss + lambda_physics * physics, loss, physics


# -- setting up ---------------------------------------------------------------------------------------------


def first(batch):
    """Collate for a dataset whose ``__getitems__`` made the batch already."""
    return batch


def make_loaders(args, device):
    """Return the training loader, the validation loader and the scaler of the inputs."""
    pattern = args.data_dir or Path(args.data or make_data(args.scale, args.seed)) / "data_simulation_*"
    files = find_files(pattern)
    num_val = max(1, len(files) // 10)
    train_files, val_files = files[num_val:], files[:num_val]
    if not train_files:
        raise DataError(f"{files[0]} is alone: training and validation need a layer file each")
    scaler = fit_scaler(train_files)
    options = {"batch_size": args.batch_size, "num_workers": args.num_workers}
    if args.num_workers and args.prefetch_factor:
        options.update(prefetch_factor=args.prefetch_factor)
    if "gather" in args.parts:
        train_set = GatheredDataset(train_files, scaler).to(device)
        val_set = GatheredDataset(val_files, scaler).to(device)
        options = {"batch_size": args.batch_size, "num_workers": 0, "collate_fn": first}
    elif "prenormalise" in args.parts:
        train_set = PrenormalisedDataset(train_files, scaler, args.cache_data)
        val_set = PrenormalisedDataset(val_files, scaler, args.cache_data)
    else:
        train_set, val_set = PrinterDataset(train_files, scaler), PrinterDataset(val_files, scaler)
    if "loader_settings" in args.parts:
        options.update(pin_memory=device.type == "cuda")
        if args.num_workers:
            prefetch = args.prefetch_factor or max(2, args.num_workers)
            options.update(persistent_workers=True, prefetch_factor=prefetch)
    order = {"shuffle": True, "generator": torch.Generator().manual_seed(args.seed)}
    if dist.is_initialized():
        order = {"sampler": DistributedSampler(train_set, seed=args.seed, drop_last=True)}
        val_set = Subset(val_set, range(dist.get_rank(), len(val_set), dist.get_world_size()))
    train_loader = DataLoader(train_set, drop_last=True, **order, **options)
    if not len(train_loader):
        raise SettingsError(
            f"--batch_size {args.batch_size}: a rank has {len(train_loader.sampler)} training windows"
        )
    return train_loader, DataLoader(val_set, shuffle=False, **options), scaler


def save_checkpoint(path, **state):
    torch.save(state, f"{path}.partial")
    os.replace(f"{path}.partial", path)


def resume(args, model, optimizer, scheduler, train_loader):
    """Load a checkpoint; return the epoch to go on with and the best validation loss so far."""
    try:
        state = torch.load(args.resume, map_location="cpu", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        if scheduler.T_max != args.epochs:  # as if so many had been asked for from the beginning
            scheduler.T_max = args.epochs
            part = (1 + math.cos(math.pi * scheduler.last_epoch / args.epochs)) / 2
            for group, rate in zip(optimizer.param_groups, scheduler.base_lrs, strict=True):
                group["lr"] = rate * part
        if train_loader.generator is not None and state["order"] is not None:
            train_loader.generator.set_state(state["order"])
        torch.set_rng_state(state["rng"])
        return state["epoch"] + 1, state["best_loss"]
    except FileNotFoundError:
        raise SettingsError(f"--resume {args.resume} is missing") from None
    except (KeyError, RuntimeError, ValueError, TypeError, EOFError, UnpicklingError) as error:
        reason = str(error).splitlines()[0]
        raise SettingsError(
            f"--resume {args.resume} is no last.pt of this variant and scale: {reason}"
        ) from None


def tensorboard(args):
    if not args.tensorboard:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise SettingsError("--tensorboard needs the package tensorboard: pip install tensorboard") from None
    return SummaryWriter(Path(args.out) / "tensorboard")


# -- running ------------------------------------------------------------------------------------------------


class StepLog:
    """One JSON object per step: seconds by phase, samples per second, loss."""

    def __init__(self, path):
        self.path = path
        self.marks = []
        if path:
            open(path, "w").close()

    def start(self):
        self.marks = [("start", time.perf_counter())]

    def mark(self, name):
        if self.path:
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


def train_epoch(args, model, loader, optimizer, scaler_amp, device, log, epoch):
    model.train()
    non_blocking, on_device = "non_blocking" in args.parts, "device_sums" in args.parts
    physics_loss = loss_on_device if "branchless_loss" in args.parts else loss_as_found
    totals = torch.zeros(3, device=device) if on_device else np.zeros(3)
    log.start()
    bar = tqdm(loader, desc=f"epoch {epoch + 1}", leave=False, disable=None if is_first_rank() else True)
    for step, batch in enumerate(bar):
        log.mark("data_wait")
        inputs = batch["input_features"].to(device, non_blocking=non_blocking)
        targets = batch["quality_targets"].to(device, non_blocking=non_blocking)
        log.mark("h2d")
        optimizer.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=args.use_amp):
            outputs = model(inputs)
            outputs = {name: value.float() for name, value in outputs.items()}
        loss, data_loss, physics = physics_loss(outputs, targets, args.lambda_physics)
        log.mark("fwd")
        scaler_amp.scale(loss).backward()
        log.mark("bwd")
        scaler_amp.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler_amp.step(optimizer)
        scaler_amp.update()
        log.mark("opt")
        if on_device:
            totals += torch.stack([loss.detach(), data_loss.detach(), physics.detach()])
        else:
            totals += [loss.item(), data_loss.item(), physics.item()]
            bar.set_postfix(loss=f"{totals[0] / (step + 1):.4f}")
        log.mark("other")
        log.write(epoch * len(loader) + step, len(targets), loss.detach())
        log.start()
    return [float(total) / max(1, len(loader)) for total in totals]


@torch.no_grad()
def evaluate(model, loader, device):
    """Return the mean squared error over all validation windows."""
    model.eval()
    sums = torch.zeros(2, device=device)
    for batch in loader:
        inputs = batch["input_features"].to(device)
        targets = batch["quality_targets"].to(device)
        error = mse_loss(stack(model(inputs)), targets) * len(targets)
        sums += torch.stack([error, torch.full_like(error, len(targets))])
    if dist.is_initialized():
        dist.all_reduce(sums)
    total, number = sums.tolist()
    return total / number


def is_first_rank():
    return not dist.is_initialized() or dist.get_rank() == 0


def choose_device():
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    torch.cuda.set_device(device)
    return device


def train(args):
    device = choose_device()
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    if args.scale != "full":
        torch.set_num_threads(1)  # small: a second thread gains little, and loses much on shared cores
    train_loader, val_loader, scaler = make_loaders(args, device)
    scale = SCALES[args.scale]
    model = ImplicitStateTCN(
        channels=scale["channels"], hidden=scale["hidden"], time_stride=scale["time_stride"]
    ).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=args.lr)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=max(1, args.epochs))
    out = Path(args.out)
    out.mkdir(parents=True, exist_ok=True)
    first_epoch, best_loss = 0, float("inf")
    if args.resume:
        first_epoch, best_loss = resume(args, model, optimizer, scheduler, train_loader)
    # bfloat16 needs no loss scaling: the scaler stays in the loop as the project has it, switched off.
    scaler_amp = torch.amp.GradScaler(device.type, enabled=False)
    step_model = DistributedDataParallel(model) if dist.is_initialized() else model
    if args.use_torch_compile:
        step_model = torch.compile(step_model, mode=args.compile_mode)
    if is_first_rank():
        num_params = sum(p.numel() for p in model.parameters())
        num_windows = len(train_loader.dataset)
        print(f"{args.variant} on {device}: {num_windows:,} windows, {num_params:,} parameters")
        for flag in args.dead:
            print(f"dead in {args.variant}: {flag} is set, and nothing reads it")
    log = StepLog(args.step_log if is_first_rank() else None)
    writer = tensorboard(args) if is_first_rank() else None
    training_start = time.time()
    for epoch in range(first_epoch, args.epochs):
        epoch_start = time.time()
        if isinstance(train_loader.sampler, DistributedSampler):
            train_loader.sampler.set_epoch(epoch)
        loss, data_loss, physics = train_epoch(
            args, step_model, train_loader, optimizer, scaler_amp, device, log, epoch
        )
        val_loss = evaluate(model, val_loader, device)
        if not np.isfinite(loss):
            raise SettingsError(f"the loss of epoch {epoch + 1} is {loss}: --resume it with a lower --lr")
        scheduler.step()
        if not is_first_rank():
            continue
        elapsed = time.time() - (epoch_start if "epoch_throughput" in args.parts else training_start)
        throughput = len(train_loader.dataset) / elapsed
        print(
            f"Epoch {epoch + 1}/{args.epochs} loss {loss:.4f} (data {data_loss:.4f}, physics {physics:.4f}) "
            f"val {val_loss:.4f} | Throughput: {throughput:.0f} samples/s"
        )
        scalars = {"loss": loss, "data_loss": data_loss, "physics": physics, "val_loss": val_loss}
        for name, value in scalars.items() if writer else ():
            writer.add_scalar(name, value, epoch)
        save_checkpoint(
            out / "last.pt",
            model=model.state_dict(),
            optimizer=optimizer.state_dict(),
            scheduler=scheduler.state_dict(),
            order=train_loader.generator.get_state() if train_loader.generator is not None else None,
            rng=torch.get_rng_state(),
            epoch=epoch,
            best_loss=min(best_loss, val_loss),
            scaler_mean=torch.from_numpy(scaler.mean_),
            scaler_scale=torch.from_numpy(scaler.scale_),
        )
        if val_loss < best_loss:
            best_loss = val_loss
            save_checkpoint(out / "best.pt", **model.state_dict())
    if writer:
        writer.close()
    if is_first_rank():
        print(f"best validation loss {best_loss:.4f}, checkpoints in {out}")


def dry(args):
    """Few files, one batch in full."""
    sys.path.append(str(Path(__file__).parents[1]))
    from dry_run import dry_run

    _, _, num_points = DATA_SCALES[args.scale]
    windows = (num_points - SEQ_LEN - PRED_LEN) // STRIDE + 1
    sizes = (1, 2 + args.batch_size // windows, num_points)
    args.num_workers = 0

    def begin(folder):
        args.data, args.data_dir = make_data(args.scale, args.seed, folder, sizes), None
        args.out = folder / "out"
        train(args)

    dry_run(f"tcn_state, {args.variant}, {args.scale} scale", begin, f"all of its {args.batch_size} windows")


def main(argv=None):
    args = parse_args(argv)
    try:
        (dry if args.dry_run else train)(args)
    except (DataError, SettingsError, OSError) as error:
        raise SystemExit(f"error: {error}") from None
    except RuntimeError as error:
        reason = str(error).strip().partition("\n")[0]
        if isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error):
            raise SystemExit(
                f"error: a batch does not fit: {reason}\nhint: a smaller --batch_size than {args.batch_size}"
            ) from None
        if args.use_torch_compile and type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise SystemExit(
                f"error: torch.compile failed (torch {torch.__version__}, 2.0 or later is needed): {reason}\n"
                "hint: --use_torch_compile=False trains without it"
            ) from None
        raise
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
