"""What the guide and the cure put in the place of ``as_found.py``: keys that are read, a true data time."""

import time

import as_found
from config import ConfigError

CROP = "DATA.TRAIN_CROP_SIZE"
#: What helps where a batch does not fit, and where torch.compile fails.
SMALLER = (
    "a smaller TRAIN.BATCH_SIZE or DATA.TRAIN_CROP_SIZE; MODEL.USE_CHECKPOINT_ATTN and "
    "MODEL.USE_CHECKPOINT_FFN; TRAIN.GRADIENT_ACCUMULATION_STEPS for the same effective batch"
)
UNCOMPILED = "TRAIN.COMPILE_MODEL=false trains without it"


def model_settings(config):
    depths = config.counts("MODEL.VRT_DEPTHS", as_found.DEPTHS)
    if len(depths) < 8:
        raise ConfigError(
            f"{config.path}: MODEL.VRT_DEPTHS has {len(depths)} entries: stages 1-7, then Stage 8"
        )
    return {
        "depths": depths,
        "window": config.count("MODEL.WINDOW_SIZE", as_found.WINDOW_SIZE),
        "checkpoint_attn": config.switch("MODEL.USE_CHECKPOINT_ATTN", True),
        "checkpoint_ffn": config.switch("MODEL.USE_CHECKPOINT_FFN", True),
    }


def training_settings(config, device):
    """Whether to train in half precision, the scale of the loss at first, and what to compile."""
    return {
        "amp": config.switch("TRAIN.AMP_ENABLED", True) and device.type == "cuda",
        "init_scale": config.number("TRAIN.AMP_INIT_SCALE", 2.0**16, 1.0),
        "compile": config.choice("TRAIN.COMPILE_MODEL", False, (False, True, "blocks")),
    }


def accumulation(config):
    """Batches an update."""
    return config.count("TRAIN.GRADIENT_ACCUMULATION_STEPS", 1)


def crop_schedule(config):
    """[(first epoch, crop size)], the first from epoch 0."""
    size = config.count("DATA.TRAIN_CROP_SIZE", 256)
    steps = config.get("DATA.CROP_SCHEDULE") or [[0, size]]
    good = isinstance(steps, list) and all(
        isinstance(step, list) and len(step) == 2 and all(type(n) is int and n >= 0 for n in step)
        for step in steps
    )
    if not good or steps[0][0] != 0 or steps != sorted(steps):
        raise ConfigError(
            f"{config.path}: DATA.CROP_SCHEDULE is {steps!r}: expected [[0, 128], [40, 256]], epochs rising"
        )
    return [tuple(step) for step in steps]


def train_epoch(trainer, loader, val_loader):
    """Train on every clip once; the data time is from asking for a batch to having it."""
    trainer.begin()
    asked = time.time()
    for batch in trainer.progress(loader):
        trainer.log.mark("data_wait")
        trainer.data_time += time.time() - asked
        trainer.train_step(trainer.to_device(batch), len(loader), val_loader)
        asked = time.time()
    return float(trainer.total) / len(loader)
