"""Train the spike-guided video restoration transformer.

    python train.py --variant as_found --scale cpu
    python train.py --variant guide --config configs/deblur/vrt_spike_fast.yaml --scale full
    torchrun --nproc_per_node 2 train.py --variant cured --scale cpu

``as_found`` is the project as it was, ``guide`` has the fixes of its optimisation guide, ``cured`` what
measuring it proposes: see ``as_found.py`` and ``cured.py``. Without data of one's own synthetic data is made
once and used again.
"""

import argparse
import contextlib
import io
import json
import os
import sys
import time
from contextlib import nullcontext
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from tqdm import tqdm

import as_found
import cured
from config import FAMILIES, Config, ConfigError
from data import SCALES, DataError, make_data
from loaders import make_loaders
from model import Block, SpikeVRT
from perceptual import PerceptualLoss
from steps import DeviceTimer, StageTimer, StepLog, charbonnier, memory_line, psnr, ssim, timing_line

HERE = Path(__file__).parent
PLANS = {"as_found": "baseline", "guide": "opt", "cured": "cured"}

#: What a variant changes about the project as it was found. ``--ablate NAME`` leaves one of them out.
GUIDE = ("live_keys", "accumulation", "non_blocking", "honest_data_time")
CURE = (
    "shared_bytes", "grouped", "device_timers", "kept_allocator", "amp_validation", "device_loss",
    "kept_features",
)  # fmt: skip
PARTS = {"as_found": (), "guide": GUIDE, "cured": GUIDE + CURE}

MEMORY_EVERY = 100
#: Pixels of a dry run's crop, what else it sets, and the keys that are not read because of that.
DRY_CROP = 32
INSTEAD = {
    "TRAIN.BATCH_SIZE": 1, "DATA.USE_RAM_CACHE": False, "DATA.CROP_SCHEDULE": None,
    "DATALOADER.TOTAL_WORKERS": 0, "DATALOADER.TRAIN_WORKERS": None, "DATALOADER.VAL_WORKERS": None,
}  # fmt: skip
UNREAD = {
    "DATA.CACHE_SIZE_GB", "DATA.CACHE_POLICY", "DATALOADER.TRAIN_PREFETCH_FACTOR",
    "DATALOADER.VAL_PREFETCH_FACTOR",
}  # fmt: skip


def parse_args(argv=None):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--variant", choices=tuple(PARTS), default="as_found")
    parser.add_argument("--scale", choices=tuple(SCALES), default="cpu")
    parser.add_argument("--config", help="a YAML file (default: the variant's plan, in configs/deblur/)")
    parser.add_argument("--options", action="append", default=[], help="SECTION.KEY=VALUE, after all files")
    parser.add_argument("--data", help="a folder that holds train/ and val/")
    parser.add_argument("--out", default=str(HERE / "out"), help="where checkpoints and logs go")
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--ablate", action="append", default=[], help="leave out one part of the variant")
    parser.add_argument(
        "--student", metavar="TEACHER", help="train half the depths on a checkpoint's outputs"
    )
    parser.add_argument("--resume", help="a checkpoint to go on from")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--step_log", help="write one JSON object per step to this file")
    parser.add_argument("--tensorboard", action="store_true", help="write scalars to OUT/tensorboard")
    parser.add_argument("--dry-run", action="store_true", help="build it, count it, make one update and stop")
    args = parser.parse_args(argv)
    if unknown := set(args.ablate) - set(PARTS[args.variant]):
        known = ", ".join(PARTS[args.variant]) or "none"
        parser.error(f"--ablate {unknown.pop()}: the parts of {args.variant} are {known}")
    args.parts = set(PARTS[args.variant]) - set(args.ablate)
    args.instead = {}
    return args


def plans(args):
    """The files of the configuration: the variant's plan, and what the scale changes about it."""
    plan = args.config or HERE / "configs" / "deblur" / f"vrt_spike_{PLANS[args.variant]}.yaml"
    return plan, HERE / "configs" / "scales" / f"{args.scale}.yaml"


def keys(args):
    """Who says what the configuration is asked for."""
    return cured if "live_keys" in args.parts else as_found


# -- setting up ---------------------------------------------------------------------------------------------


def model_settings(args, config):
    """Arguments of :class:`SpikeVRT` as the variant takes them."""
    own = keys(args).model_settings(config)
    divisor = config.count("MODEL.DEPTH_DIVISOR", 1) * (2 if args.student else 1)
    dim, heads = config.count("MODEL.EMBED_DIM", 96), config.count("MODEL.NUM_HEADS", 6)
    chunks = {part: chunk_settings(config, part) for part in ("FUSE", "SPIKE_TSA")}
    for key, number in (("NUM_HEADS", heads), *((f"{part}.HEADS", chunks[part]["heads"]) for part in chunks)):
        if dim % number:
            raise ConfigError(f"{config.path}: MODEL.{key} is {number}: MODEL.EMBED_DIM {dim} is no multiple")
    return {
        **own,
        "dim": dim,
        "heads": heads,
        "depths": [max(1, depth // divisor) for depth in own["depths"]],
        "fuse": chunks["FUSE"],
        "spike_tsa": chunks["SPIKE_TSA"],
    }


def chunk_settings(config, part):
    keys = {key: f"MODEL.{part}.{key}" for key in FAMILIES}
    return {
        "heads": config.count(keys["HEADS"], 4),
        "adaptive_chunk": config.switch(keys["ADAPTIVE_CHUNK"], True),
        "max_batch_tokens": config.count(keys["MAX_BATCH_TOKENS"], 49152),
        "chunk_size": config.count(keys["CHUNK_SIZE"], 64),
        "chunk_shape": config.choice(keys["CHUNK_SHAPE"], "square", ("square", "rows")),
    }


def make_optimizer(config, model):
    kind = config.choice("OPTIM.TYPE", "adamw", ("adamw", "adamw8bit"))
    rate = config.number("OPTIM.LR", 1e-4)
    if kind == "adamw":
        return torch.optim.AdamW(model.parameters(), lr=rate)
    try:
        from bitsandbytes.optim import AdamW8bit
    except ImportError:
        raise ConfigError(
            f"{config.path}: OPTIM.TYPE adamw8bit needs bitsandbytes: pip install bitsandbytes, or adamw"
        ) from None
    return AdamW8bit(model.parameters(), lr=rate)


def load_checkpoint(path, *parts):
    """What ``Trainer.save`` wrote, with at least these parts."""
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise ConfigError(f"{path} is missing") from None
    except Exception as error:
        raise ConfigError(f"{path} is no checkpoint: {repr(error).splitlines()[0]}") from None
    missing = [part for part in parts if not isinstance(state, dict) or part not in state]
    if missing:
        raise ConfigError(f"{path} has no {missing[0]}: last.pt of a training has all that is needed")
    return state


def save_checkpoint(path, **state):
    torch.save(state, f"{path}.partial")
    os.replace(f"{path}.partial", path)


def load_teacher(args, device):
    """The model whose outputs a student learns, None without one."""
    if not args.student:
        return None
    state = load_checkpoint(args.student, "model", "model_settings")
    teacher = SpikeVRT(**state["model_settings"])
    teacher.load_state_dict(state["model"])
    return teacher.to(device).eval().requires_grad_(False)


def tensorboard(args):
    if not args.tensorboard:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise ConfigError("--tensorboard needs the package tensorboard: pip install tensorboard") from None
    return SummaryWriter(Path(args.out) / "tensorboard")


# -- running ------------------------------------------------------------------------------------------------


class Trainer:
    """What the loop needs besides its loaders."""

    def __init__(self, args, config, device):
        self.args, self.config, self.device = args, config, device
        self.first_rank = not dist.is_initialized() or dist.get_rank() == 0
        own = keys(args).training_settings(config, device)
        self.amp, self.compile = own["amp"], own["compile"]
        self.settings = model_settings(args, config)
        self.plain = self.model = SpikeVRT(**self.settings).to(device)
        self.optimizer = make_optimizer(config, self.plain)
        self.scaler = torch.amp.GradScaler(device.type, own["init_scale"], enabled=self.amp)
        self.teacher = load_teacher(args, device)
        self.distill_weight = config.number("TRAIN.DISTILL_WEIGHT", 0.5) if args.student else 0.0
        self.perceptual_weight = config.number("TRAIN.PERCEPTUAL_WEIGHT", 0.0)
        self.perceptual = None
        if self.perceptual_weight:
            channels = config.count("TRAIN.PERCEPTUAL_CHANNELS", 64)
            self.perceptual = PerceptualLoss(channels, "kept_features" in args.parts).to(device)
        self.max_norm = config.number("TRAIN.MAX_GRAD_NORM", 1.0)
        self.group = cured.accumulation(config) if "accumulation" in args.parts else 1
        self.val_every = config.count("TRAIN.VAL_EVERY_STEPS", 1000)
        timing = config.switch("LOG.ENABLE_TIMING_LOG", True)
        events = "device_timers" in args.parts and device.type == "cuda"
        self.timer = (DeviceTimer() if events else StageTimer()) if timing else None
        self.console_every = config.count("LOG.TIMING_CONSOLE_INTERVAL", 10)
        self.file_every = config.count("LOG.TIMING_FILE_INTERVAL", 50)
        self.timing_log = Path(args.out) / "timing.jsonl"
        self.log_file = Path(args.out) / "logs" / f"train_{time.strftime('%Y%m%d_%H%M%S')}.log"
        self.log_file.parent.mkdir(parents=True, exist_ok=True)
        self.writer = tensorboard(args) if self.first_rank else None
        self.log = StepLog(args.step_log if self.first_rank else None)
        self.step = self.epoch = 0
        self.best = float("-inf")

    def resume(self):
        parts = "model", "model_settings", "optimizer", "scaler", "epoch", "step", "best"
        state = load_checkpoint(self.args.resume, *parts)
        if state["model_settings"] != self.settings:
            raise ConfigError(f"{self.args.resume} holds another model: {state['model_settings']}")
        for part in ("optimizer", "scaler"):
            getattr(self, part).load_state_dict(state[part])
        self.plain.load_state_dict(state["model"])
        self.epoch, self.step, self.best = state["epoch"] + 1, state["step"], state["best"]

    def wrap(self):
        if dist.is_initialized():
            self.model = DistributedDataParallel(self.plain)
        # Tries many kernels for each product: on a CPU minutes, for products that are no time there.
        mode = "max-autotune" if self.device.type == "cuda" else "default"
        if self.compile == "blocks":
            # Code for a block of each kind and size serves all like it: made in a fraction of the time. Of
            # more kinds than torch._dynamo.config.recompile_limit (8) the last ones run as they are.
            for block in self.plain.modules():
                if isinstance(block, Block):
                    block.compile(mode=mode, dynamic=False)
        elif self.compile:
            self.model = torch.compile(self.model, mode=mode)
            self.timer = None  # a stage has no time of its own in one graph

    def say(self, text):
        """Print, and write into the log file, what the first rank says."""
        if self.first_rank:
            tqdm.write(text)
            with open(self.log_file, "a") as file:
                file.write(f"{text}\n")

    def show(self, **scalars):
        for name, value in scalars.items() if self.writer else ():
            self.writer.add_scalar(name, value, self.step)

    def autocast(self, enabled=True):
        return torch.autocast(self.device.type, torch.float16, enabled=self.amp and enabled)

    def uncompiled(self):
        """Validation needs no code of its own: without gradients it would be other code."""
        return torch.compiler.set_stance("force_eager") if self.compile == "blocks" else nullcontext()

    def loss(self, batch):
        wanted = batch["sharp"]
        with self.autocast():
            arguments = (self.timer,) if self.timer else ()
            found = self.model(batch["blur"], batch["voxel"], *arguments)
            seen = self.perceptual(found, wanted, batch.get("clip")) if self.perceptual else 0.0
        loss = charbonnier(found.float(), wanted) + self.perceptual_weight * seen
        if self.teacher is None:
            return loss
        with torch.no_grad(), self.autocast():
            taught = self.teacher(batch["blur"], batch["voxel"])
        return loss + self.distill_weight * charbonnier(found.float(), taught.float())

    def begin(self):
        self.model.train()
        self.total = torch.zeros((), device=self.device) if "device_loss" in self.args.parts else 0.0
        self.number, self.data_time, self.window = 0, 0.0, 0
        self.log.start()

    def progress(self, loader):
        return tqdm(loader, desc=f"epoch {self.epoch + 1}", leave=False, disable=None)

    def to_device(self, batch):
        non_blocking = "non_blocking" in self.args.parts
        batch = {name: value.to(self.device, non_blocking=non_blocking) for name, value in batch.items()}
        self.log.mark("h2d")
        return batch

    def train_step(self, batch, num_batches, val_loader):
        self.number, self.window, self.step = self.number + 1, self.window + 1, self.step + 1
        loss = self.loss(batch)
        self.log.mark("fwd")
        self.scaler.scale(loss / self.group).backward()
        self.log.mark("bwd")
        if self.number % self.group == 0 or self.number == num_batches:
            self.scaler.unscale_(self.optimizer)
            torch.nn.utils.clip_grad_norm_(self.plain.parameters(), self.max_norm)
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad()
        self.log.mark("opt")
        self.total += loss.detach() if "device_loss" in self.args.parts else loss.item()
        self.housekeeping()
        self.log.mark("other")
        self.log.write(self.step - 1, len(batch["blur"]), loss.detach())
        if self.step % self.val_every == 0:
            self.validate(val_loader)
            self.model.train()
        self.log.start()

    def housekeeping(self):
        """Data and stage times, memory lines, and the emptied caches of the project as found."""
        if self.step % self.console_every == 0:
            self.say(f"[Step {self.step}] Avg data time: {self.data_time / self.window * 1000:.1f}ms")
            self.data_time, self.window = 0.0, 0
        if self.timer:
            self.timer.step()
            shown, filed = (self.step % every == 0 for every in (self.console_every, self.file_every))
            means = self.timer.table() if shown or filed else {}
            if shown:
                self.say(timing_line(self.step, means))
                self.show(**{f"ms/{name}": ms for name, ms in means.items()})
            if filed and self.first_rank:
                with open(self.timing_log, "a") as file:
                    file.write(json.dumps({"step": self.step, **means}) + "\n")
        if self.step % MEMORY_EVERY == 0:
            self.say(memory_line(f"Step {self.step}"))
        if "kept_allocator" not in self.args.parts and self.step % as_found.EMPTY_EVERY == 0:
            as_found.empty_caches(self.device)

    @torch.no_grad()
    def validate(self, loader):
        """Return (PSNR in dB, SSIM)."""
        self.model.eval()
        sums = torch.zeros(4, device=self.device, dtype=torch.float64)
        for number, batch in enumerate(loader):
            batch = {name: value.to(self.device) for name, value in batch.items()}
            with self.uncompiled(), self.autocast("amp_validation" in self.args.parts):
                found = self.plain(batch["blur"], batch["voxel"]).float()
            found, sharp, blur = (x.flatten(0, 1) for x in (found, batch["sharp"], batch["blur"]))
            scores = psnr(found, sharp), ssim(found, sharp), psnr(blur, sharp)
            sums += torch.stack([*scores, torch.ones((), device=self.device)])
            if "kept_allocator" not in self.args.parts and self.device.type == "cuda" and number % 5 == 4:
                torch.cuda.empty_cache()
        psnr_db, similarity, blurred_db = (sums[:3] / sums[3]).tolist()
        self.say(
            f"[Step {self.step}] val PSNR {psnr_db:.2f} dB (blurred {blurred_db:.2f} dB), "
            f"SSIM {similarity:.4f}"
        )
        self.show(psnr=psnr_db, ssim=similarity)
        return psnr_db, similarity

    def save(self, out, psnr_db):
        if not self.first_rank:
            return
        state = {
            "model": self.plain.state_dict(),
            "model_settings": self.settings,
            "optimizer": self.optimizer.state_dict(),
            "scaler": self.scaler.state_dict(),
            "epoch": self.epoch,
            "step": self.step,
            "best": max(self.best, psnr_db),
        }
        save_checkpoint(out / "last.pt", **state)
        if psnr_db > self.best:
            save_checkpoint(out / "best.pt", model=state["model"], model_settings=self.settings)
        self.best = state["best"]


def train(args):
    config = Config(plans(args), args.options, args.instead)
    epochs = config.count("TRAIN.EPOCHS", 80) if args.epochs is None else args.epochs
    config.asked |= {"TRAIN.EPOCHS", *(UNREAD if args.instead else ())}
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    if args.scale != "full":
        torch.set_num_threads(1)  # small: a second thread gains little, and loses much on shared cores
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    Path(args.out).mkdir(parents=True, exist_ok=True)

    trainer = Trainer(args, config, device)
    schedule = keys(args).crop_schedule(config)
    precomputed = "shared_bytes" not in args.parts and bool(config.get("DATA.USE_PRECOMPUTED_VOXELS"))
    own = config.get("DATA.ROOT")
    root = args.data or own or make_data(args.scale, args.seed, voxels=precomputed)
    if args.resume:
        trainer.resume()
    trainer.wrap()
    crop_size, stores = None, {}
    for epoch in range(trainer.epoch, epochs):
        trainer.epoch = epoch
        wanted = [size for first, size in schedule if first <= epoch][-1]
        if wanted != crop_size:
            crop_size = wanted
            train_loader, sampler, clips, val_loader = make_loaders(
                args, config, root, device, crop_size, stores
            )
            trainer.say(memory_line("After dataset creation"))
        if epoch == 0 or (args.resume and not sampler.epoch):
            announce(trainer, clips, crop_size)
        sampler.epoch = epoch
        variant = cured if "honest_data_time" in args.parts else as_found
        loss = variant.train_epoch(trainer, train_loader, val_loader)
        psnr_db, similarity = trainer.validate(val_loader)
        trainer.say(f"Epoch {epoch + 1}/{epochs} loss {loss:.5f} val {psnr_db:.2f} dB, SSIM {similarity:.4f}")
        trainer.show(loss=loss)
        with contextlib.redirect_stdout(io.StringIO()) as stats:
            clips.print_cache_stats()
        if stats.getvalue():
            trainer.say(stats.getvalue().rstrip())
        trainer.save(Path(args.out), psnr_db)
    if trainer.writer:
        trainer.writer.close()
    trainer.say(f"best validation PSNR {trainer.best:.2f} dB, checkpoints in {args.out}")


def announce(trainer, clips, crop_size):
    num_params = sum(p.numel() for p in trainer.plain.parameters())
    trainer.say(
        f"{trainer.args.variant} on {trainer.device}: {len(clips):,} clips of {clips.clip_len} frames, "
        f"crop {crop_size}, {num_params:,} parameters"
    )
    for key in trainer.config.dead_keys():
        trainer.say(f"dead in {trainer.args.variant}: {key} is set, and no code reads it")


def dry(args):
    """One clip, and of it a crop that a CPU can train on: at 256 its activations take tens of GB."""
    sys.path.append(str(Path(__file__).parents[1]))
    from dry_run import dry_run

    plan, key = Config(plans(args), args.options), keys(args).CROP
    whole, batch_size = plan.count(key, 256), plan.count("TRAIN.BATCH_SIZE", 1)
    crop, clip_len = min(whole, DRY_CROP), plan.count("DATA.CLIP_LEN", 5)
    args.instead = {**INSTEAD, key: crop}

    def begin(folder):
        sizes = (1, 1, clip_len, *SCALES[args.scale][3:])
        args.data = make_data(args.scale, args.seed, folder, sizes=sizes)
        args.out = folder / "out"
        train(args)

    share = (crop / whole) ** 2 / batch_size
    sample = f"1 of {batch_size} clips, a crop of {crop} of {whole}"
    dry_run(f"spikevid, {args.variant}, {args.scale} scale", begin, sample, share)


def main(argv=None):
    args = parse_args(argv)
    try:
        (dry if args.dry_run else train)(args)
    except (ConfigError, DataError, OSError) as error:
        raise SystemExit(f"error: {error}") from None
    except RuntimeError as error:
        if type(error).__module__.startswith(("torch._dynamo", "torch._inductor")):
            raise SystemExit(
                f"error: torch.compile failed (torch {torch.__version__}): {str(error).splitlines()[0]}\n"
                f"hint: {cured.UNCOMPILED}"
            ) from None
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        raise SystemExit(
            f"error: a batch does not fit: {str(error).splitlines()[0]}\nhint: {keys(args).SMALLER}"
        ) from None
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
