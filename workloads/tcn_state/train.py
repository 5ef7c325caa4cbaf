"""Train the state predictor.

    python train.py --variant as_found --scale cpu

``as_found`` is the project as it was, ``guide`` adds what its optimisation guide proposes, ``cured`` what
measuring it proposes. Without ``--data`` or ``--data_dir`` synthetic data is made once and used again.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn.functional import mse_loss
from torch.utils.data import DataLoader
from tqdm import tqdm

from data import (
    QUALITY,
    GatheredDataset,
    PrenormalisedDataset,
    PrinterDataset,
    find_files,
    fit_scaler,
    make_data,
)
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
    "guide": ("prenormalise", "loader_settings", "non_blocking", "epoch_throughput"),
    "cured": ("prenormalise", "gather", "non_blocking", "branchless_loss", "device_sums", "epoch_throughput"),
}


def boolean(text):
    """``--flag``, ``--flag=True`` and ``--flag=False`` all mean what they say."""
    if text.lower() in ("1", "true", "yes", "on"):
        return True
    if text.lower() in ("0", "false", "no", "off"):
        return False
    raise argparse.ArgumentTypeError(f"expected true or false, got {text!r}")


def parse_args(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--variant", choices=("as_found", "guide", "cured"), default="as_found")
    parser.add_argument("--scale", choices=tuple(SCALES), default="cpu")
    parser.add_argument("--data", help="a folder that holds data_simulation_* folders")
    parser.add_argument("--data_dir", help="a glob of folders with .mat files: 'data_simulation_*'")
    parser.add_argument("--out", default=str(Path(__file__).parent / "out"), help="where checkpoints go")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--batch_size", type=int)
    parser.add_argument("--lr", type=float, default=1e-3)
    parser.add_argument("--lambda_physics", type=float, default=0.5)
    parser.add_argument("--num_workers", type=int)
    parser.add_argument("--prefetch_factor", type=int)
    flag = {"type": boolean, "nargs": "?", "const": True, "default": False}
    parser.add_argument("--cache_data", **flag)
    parser.add_argument("--use_amp", **flag)
    parser.add_argument("--use_torch_compile", **flag)
    parser.add_argument("--ablate", action="append", default=[], help="leave out one part of the variant")
    parser.add_argument("--resume", help="a checkpoint to go on from")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step_log", help="write one JSON object per step to this file")
    args = parser.parse_args(argv)
    scale = SCALES[args.scale]
    for name in ("epochs", "batch_size", "num_workers"):
        if getattr(args, name) is None:
            setattr(args, name, scale[name])
    if unknown := set(args.ablate) - set(PARTS[args.variant]):
        known = ", ".join(PARTS[args.variant]) or "none"
        parser.error(f"--ablate {unknown.pop()}: the parts of {args.variant} are {known}")
    args.parts = set(PARTS[args.variant]) - set(args.ablate)
    return args


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
    pattern = args.data_dir or Path(args.data or make_data(args.scale, args.seed)) / "data_simulation_*"
    files = find_files(pattern)
    num_val = max(1, len(files) // 10)
    train_files, val_files = files[num_val:], files[:num_val]
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
    order = torch.Generator().manual_seed(args.seed)
    train_loader = DataLoader(train_set, shuffle=True, drop_last=True, generator=order, **options)
    val_loader = DataLoader(val_set, shuffle=False, **options)
    return train_loader, val_loader, scaler


def save_checkpoint(path, model, optimizer, scheduler, train_loader, epoch, best_loss, scaler):
    state = {
        "model": model.state_dict(),
        "optimizer": optimizer.state_dict(),
        "scheduler": scheduler.state_dict(),
        "order": train_loader.generator.get_state(),
        "rng": torch.get_rng_state(),
        "epoch": epoch,
        "best_loss": best_loss,
        "scaler_mean": torch.from_numpy(scaler.mean_),
        "scaler_scale": torch.from_numpy(scaler.scale_),
    }
    torch.save(state, path)


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
    bar = tqdm(loader, desc=f"epoch {epoch + 1}", leave=False)
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
    model.eval()
    total, count = torch.zeros((), device=device), 0
    for batch in loader:
        inputs = batch["input_features"].to(device)
        targets = batch["quality_targets"].to(device)
        total += mse_loss(stack(model(inputs)), targets) * len(targets)
        count += len(targets)
    return float(total) / count


def main(argv=None):
    args = parse_args(argv)
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
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
        state = torch.load(args.resume, map_location="cpu", weights_only=True)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        scheduler.load_state_dict(state["scheduler"])
        train_loader.generator.set_state(state["order"])
        torch.set_rng_state(state["rng"])
        first_epoch, best_loss = state["epoch"] + 1, state["best_loss"]
    # bfloat16 needs no loss scaling: the scaler stays in the loop as the project has it, switched off.
    scaler_amp = torch.amp.GradScaler(device.type, enabled=False)
    step_model = torch.compile(model, mode="reduce-overhead") if args.use_torch_compile else model
    num_params = sum(p.numel() for p in model.parameters())
    print(f"{args.variant} on {device}: {len(train_loader.dataset):,} windows, {num_params:,} parameters")
    log = StepLog(args.step_log)
    training_start = time.time()
    for epoch in range(first_epoch, args.epochs):
        epoch_start = time.time()
        loss, data_loss, physics = train_epoch(
            args, step_model, train_loader, optimizer, scaler_amp, device, log, epoch
        )
        val_loss = evaluate(model, val_loader, device)
        scheduler.step()
        elapsed = time.time() - (epoch_start if "epoch_throughput" in args.parts else training_start)
        throughput = len(train_loader.dataset) / elapsed
        print(
            f"Epoch {epoch + 1}/{args.epochs} loss {loss:.4f} (data {data_loss:.4f}, physics {physics:.4f}) "
            f"val {val_loss:.4f} | Throughput: {throughput:.0f} samples/s"
        )
        save_checkpoint(
            out / "last.pt",
            model,
            optimizer,
            scheduler,
            train_loader,
            epoch,
            min(best_loss, val_loss),
            scaler,
        )
        if val_loss < best_loss:
            best_loss = val_loss
            torch.save(model.state_dict(), out / "best.pt")
    print(f"best validation loss {best_loss:.4f}, checkpoints in {out}")


if __name__ == "__main__":
    main()
