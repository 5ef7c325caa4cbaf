"""The project as it was found: what it has in its code where its configuration has keys, and its data time.

``cured.py`` has what the guide and the cure put in their place.
"""

import gc
import time

import torch

#: The key of the crop that it trains on.
CROP = "DATA.CROP_SIZE"
DEPTHS, WINDOW_SIZE = [8, 8, 8, 8, 4, 4, 4, 8], 8
#: What helps where a batch does not fit.
SMALLER = "a smaller TRAIN.BATCH_SIZE or DATA.CROP_SIZE"
#: Steps until caches are emptied.
EMPTY_EVERY = 200


def model_settings(config):
    """What ``MODEL`` has keys for, and the code decides."""
    return {"depths": DEPTHS, "window": WINDOW_SIZE, "checkpoint_attn": True, "checkpoint_ffn": True}


def training_settings(config, device):
    """Half precision wherever there is a GPU, the scale of the loss at first, and whether to compile."""
    return {"amp": device.type == "cuda", "init_scale": 2.0**16, "compile": False}


def crop_schedule(config):
    """[(first epoch, crop size)]"""
    return [(0, config.count("DATA.CROP_SIZE", 256))]


def empty_caches(device):
    """What torch has kept for tensors to come goes back to the device, and is asked for again."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def train_epoch(trainer, loader, val_loader):
    """Train on every clip once; the clock of the data time starts when the batch is there."""
    trainer.begin()
    for batch in trainer.progress(loader):
        trainer.log.mark("data_wait")
        start = time.time()
        batch = trainer.to_device(batch)
        trainer.data_time += time.time() - start
        trainer.train_step(batch, len(loader), val_loader)
    return float(trainer.total) / len(loader)
