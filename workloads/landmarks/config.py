"""A configuration: a YAML file with every key that is known, and no other."""

import difflib

import numpy as np
import yaml


class ConfigError(ValueError):
    """The configuration has a key nobody knows, or a value that cannot be meant."""


#: Sections and keys of a configuration.
KEYS = {
    "data": ("root", "num_workers", "prefetch_factor"),
    "model": ("channels", "modules", "pyramid"),
    "training": (
        "epochs", "lr", "weight_decay", "restart_epochs", "ema_decay", "clip_grad_norm", "offset_weight",
        "amp", "cudnn_benchmark", "gradient_accumulation_steps",
    ),
}  # fmt: skip
#: Whole numbers from 1.
COUNTS = ("prefetch_factor", "epochs", "restart_epochs", "gradient_accumulation_steps")
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
        for key, value in config[section].items():
            if key in COUNTS and (type(value) is not int or value < 1):
                raise ConfigError(f"{path}: {section}.{key} is {value!r}: expected a whole number from 1")
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
