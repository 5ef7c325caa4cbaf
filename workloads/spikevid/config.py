"""The guide's YAML keys, with a record of which of them the training reads.

A key that nobody knows is an error that names the nearest. A known key that the chosen variant does not read
is dead: ``dead_keys`` lists what the file sets for nothing.
"""

import difflib
import os

import yaml

FAMILIES = ("HEADS", "ADAPTIVE_CHUNK", "MAX_BATCH_TOKENS", "CHUNK_SIZE", "CHUNK_SHAPE")
#: Sections and their keys.
KEYS = """
DATA: ROOT CLIP_LEN CROP_SIZE TRAIN_CROP_SIZE CROP_SCHEDULE SPIKE_SHAPE USE_PRECOMPUTED_VOXELS USE_RAM_CACHE
    CACHE_SIZE_GB CACHE_POLICY GROUP_SEQUENCES CROPS_PER_CLIP
DATALOADER: TOTAL_WORKERS TRAIN_WORKERS VAL_WORKERS TRAIN_PREFETCH_FACTOR VAL_PREFETCH_FACTOR PIN_MEMORY
    PERSISTENT_WORKERS DROP_LAST
MODEL: EMBED_DIM NUM_HEADS VRT_DEPTHS DEPTH_DIVISOR WINDOW_SIZE USE_CHECKPOINT_ATTN USE_CHECKPOINT_FFN
TRAIN: EPOCHS BATCH_SIZE AMP_ENABLED AMP_OPT_LEVEL AMP_INIT_SCALE COMPILE_MODEL MAX_GRAD_NORM
    GRADIENT_ACCUMULATION_STEPS DISTILL_WEIGHT PERCEPTUAL_WEIGHT PERCEPTUAL_CHANNELS VAL_EVERY_STEPS
OPTIM: TYPE LR
LOG: ENABLE_TIMING_LOG TIMING_CONSOLE_INTERVAL TIMING_FILE_INTERVAL
"""
KNOWN = tuple(
    f"{section}.{key}" for section, keys in yaml.safe_load(KEYS).items() for key in keys.split()
) + tuple(f"MODEL.{part}.{key}" for part in ("FUSE", "SPIKE_TSA") for key in FAMILIES)


class ConfigError(ValueError):
    """The configuration has a key nobody knows, or a value that cannot be meant."""


class Config:
    """Values by dotted key: files, ``KEY=VALUE`` options, what is set ``instead``; the later one wins."""

    def __init__(self, paths, options=(), instead=()):
        self.path, self.asked, self.values = str(paths[0]), set(), {}
        for path in paths:
            self.values.update(read_yaml(path))
        self.written = set(read_yaml(paths[0]))
        for option in options:
            key, equals, text = option.partition("=")
            if not equals:
                raise ConfigError(f"--options {option}: expected KEY=VALUE")
            try:
                value = yaml.safe_load(text)
            except yaml.YAMLError as error:
                problem = str(error).splitlines()[0]
                raise ConfigError(f"--options {option}: {text!r} is no YAML value: {problem}") from None
            values = flat(f"--options {option}", "", nested(key, value))
            self.values.update(values)
            self.written.update(values)
        self.values.update(instead)

    def get(self, key, default=None):
        assert key in KNOWN, key
        self.asked.add(key)
        return self.values.get(key, default)

    def count(self, key, default, least=1):
        """A whole number, at least ``least``."""
        value = self.get(key, default)
        if type(value) is not int or value < least:
            raise ConfigError(f"{self.path}: {key} is {value!r}: expected a whole number from {least}")
        return value

    def number(self, key, default, least=0.0):
        value = self.get(key, default)
        if type(value) not in (int, float) or not value >= least:
            raise ConfigError(f"{self.path}: {key} is {value!r}: expected a number from {least:g}")
        return value

    def switch(self, key, default):
        value = self.get(key, default)
        if type(value) is not bool:
            raise ConfigError(f"{self.path}: {key} is {value!r}: expected true or false")
        return value

    def counts(self, key, default, length=None):
        """A list of whole numbers from 1, of a length if one is given."""
        value = self.get(key, default)
        good = isinstance(value, list) and all(type(one) is int and one > 0 for one in value)
        if not good or (length and len(value) != length):
            number = f"{length} " if length else ""
            raise ConfigError(f"{self.path}: {key} is {value!r}: expected a list of {number}whole numbers")
        return value

    def choice(self, key, default, known):
        value = self.get(key, default)
        if value not in known:
            raise ConfigError(
                f"{self.path}: {key} is {value!r}: expected one of {', '.join(map(str, known))}"
            )
        return value

    def workers(self, key, default, world_size=1):
        """``TOTAL_WORKERS`` per rank: a number, "auto" (80 % of the cores, at least 4), "cpu*0.6"."""
        value = self.get(key, default)
        cores = os.cpu_count() or 1
        if value == "auto":
            return max(4, int(cores * 0.8) // world_size)
        if isinstance(value, str) and value.startswith("cpu*"):
            try:
                return int(cores * float(value[4:])) // world_size
            except ValueError:
                pass
        if type(value) is not int or value < 0:
            raise ConfigError(f'{self.path}: {key} is {value!r}: expected a number, "auto" or "cpu*0.6"')
        return value // world_size

    def dead_keys(self):
        """Keys of the first file and of the options which nothing read."""
        return sorted(self.written - self.asked)


def nested(key, value):
    for part in reversed(key.split(".")):
        value = {part: value}
    return value


def read_yaml(path):
    try:
        with open(path) as file:
            return flat(path, "", yaml.safe_load(file))
    except (OSError, yaml.YAMLError) as error:
        raise ConfigError(f"{path}: {error}") from None


def flat(path, before, found):
    """Nested mappings as {dotted key: value}; a key that nobody knows is an error."""
    if not isinstance(found, dict):
        raise ConfigError(f"{path}: {before.rstrip('.') or 'the file'} holds no keys")
    values = {}
    for name, value in found.items():
        key = f"{before}{name}"
        if key in KNOWN:
            values[key] = value
        elif any(known.startswith(f"{key}.") for known in KNOWN):
            values.update(flat(path, f"{key}.", value))
        else:
            near = difflib.get_close_matches(key, KNOWN, n=1)
            siblings = ", ".join(known for known in KNOWN if known.startswith(before))
            hint = f"did you mean {near[0]}?" if near else f"known: {siblings}"
            raise ConfigError(f"{path}: unknown key {key}: {hint}")
    return values
