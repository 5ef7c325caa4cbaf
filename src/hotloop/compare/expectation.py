"""The checklist file: limits on what a run must show, in TOML or YAML; unknown keys are refused by name."""

from __future__ import annotations

import difflib
import operator
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from hotloop import foreign
from hotloop.errors import UsageError

Kind = Literal["number", "ratio", "share", "duration", "size", "yes"]

#: Item -> what kind of number it is, and how a bare number is meant.
ITEMS: Final[dict[str, tuple[Kind, str]]] = {
    "loss_converges": ("yes", ""), "finite_loss": ("yes", ""), "checkpoint_loads": ("yes", ""),
    "samples_per_s": ("number", ">="), "steps_per_s": ("number", ">="), "speedup": ("ratio", ">="),
    "gpu_utilization": ("share", ">="), "data_wait": ("duration", "<="), "cache_hit_rate": ("share", ">="),
    "device_memory": ("size", "<="), "host_memory": ("size", "<="), "host_memory_stable": ("yes", ""),
    "cpu": ("share", "<="), "disk_busy": ("share", "<="), "cpu_main": ("share", "<="),
    "cpu_worker": ("share", "<="), "gpu_memory": ("share", "<="), "gpu_power": ("share", ">="),
    "gpu_temperature": ("number", "<"),
}  # fmt: skip
_SETTINGS: Final = ("effect", "metrics")
_EFFECTS: Final = ("exact", "numeric", "semantic")

_UNITS: Final[dict[Kind, dict[str, float]]] = {
    "number": {"": 1.0},
    "ratio": {"": 1.0, "x": 1.0},
    "share": {"": 1.0, "%": 0.01},
    "duration": {"us": 1e-6, "ms": 1e-3, "s": 1.0},
    "size": {"b": 1.0, "kb": 1e3, "mb": 1e6, "gb": 1e9, "tb": 1e12,
             "kib": 2.0**10, "mib": 2.0**20, "gib": 2.0**30, "tib": 2.0**40},
}  # fmt: skip
_EXAMPLES: Final[dict[Kind, str]] = {
    "number": '">= 120"', "ratio": '">= 1.2x"', "share": '"> 90%"', "duration": '"< 10 ms"',
    "size": '"<= 20 GiB"',
}  # fmt: skip
_SIGNS: Final = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_BAND: Final = re.compile(r"\s*(\d+\.?\d*)\s*-\s*(\d+\.?\d*)\s*([a-z%]*)\s*", re.I)
_LIMIT: Final = re.compile(r"\s*(<=|>=|<|>|)\s*([-+]?(?:\d+\.?\d*|\.\d+)(?:e[-+]?\d+)?)\s*([a-z%]*)\s*", re.I)


@dataclass(frozen=True, kw_only=True)
class Limit:
    """``words`` as it was written: a value has this ``sign`` to the ``edge``, or lies from it to ``top``."""

    words: str
    sign: str = ""
    edge: float = 0.0
    top: float | None = None

    def holds(self, value: float) -> bool:
        """Whether a value is within."""
        if self.top is not None:
            return self.edge <= value <= self.top
        return bool(_SIGNS[self.sign](value, self.edge))


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What a file asks for; ``metrics`` are named values that the script logs."""

    items: Mapping[str, Limit] = field(default_factory=dict)
    metrics: Mapping[str, Limit] = field(default_factory=dict)
    effect: Literal["exact", "numeric", "semantic"] | None = None


def read(path: Path) -> Expectation:
    """Read a checklist file. Raises UsageError with the key that is wrong and the nearest known one."""
    try:
        text = foreign.read(path).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        words = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be read: {words}", hint="give a TOML or YAML file") from error
    try:
        is_yaml = path.suffix in (".yaml", ".yml")
        data = foreign.yaml_value(text, yaml.SafeLoader) if is_yaml else tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise UsageError(f"{path}: {error}", hint='a line is: data_wait = "< 10 ms"') from error
    return parse(data, str(path))


def parse(data: Any, source: str = "expect") -> Expectation:
    """The expectation in a mapping. Raises UsageError."""
    if not isinstance(data, Mapping):
        raise UsageError(f"{source} holds no keys", hint='a line is: data_wait = "< 10 ms"')
    for key in data:
        if key not in ITEMS and key not in _SETTINGS:
            known = [*ITEMS, *_SETTINGS]
            near = difflib.get_close_matches(str(key), known, n=1, cutoff=0.4)
            hint = f"did you mean {near[0]}?" if near else f"there are: {', '.join(known)}"
            if isinstance(data[key], int | float | str):
                hint += " Values the script logs by name stand under [metrics]."
            raise UsageError(f"{source}: {key!r} is no item of a checklist", hint=hint)
    effect = data.get("effect")
    if effect is not None and effect not in _EFFECTS:
        raise UsageError(f"{source}: effect = {effect!r}", hint=f"one of {', '.join(_EFFECTS)}")
    metrics = data.get("metrics", {})
    if not isinstance(metrics, Mapping):
        raise UsageError(f"{source}: metrics is a table of names", hint='[metrics]\n      psnr = ">= 28.5"')
    return Expectation(
        items={
            name: _limit(f"{source}: {name}", value, *ITEMS[name])
            for name, value in data.items()
            if name in ITEMS and value is not False
        },
        metrics={
            str(name): _limit(f"{source}: metrics.{name}", v, "number", "") for name, v in metrics.items()
        },
        effect=effect,
    )


def _limit(where: str, value: Any, kind: Kind, sign: str) -> Limit:
    """``sign`` is how a bare number is meant, "" where that has to be said."""
    if kind == "yes":
        if value is not True:
            raise UsageError(f"{where} = {value!r}", hint="true, or leave it out")
        return Limit(words="yes")
    if (band := _BAND.fullmatch(str(value))) and (factor := _UNITS[kind].get(band[3].lower())) is not None:
        words = f"{band[1]} to {band[2]}{'' if band[3] in ('', '%', 'x') else ' '}{band[3]}"
        return Limit(words=words, edge=float(band[1]) * factor, top=float(band[2]) * factor)
    found = _LIMIT.fullmatch(str(value))
    if found is None:
        raise UsageError(f"{where} = {value!r} is no limit", hint=f"write {_EXAMPLES[kind]}")
    given, number, unit = found.groups()
    factor = _UNITS[kind].get(unit.lower())
    if factor is None:
        raise UsageError(f"{where} = {value!r} has no fitting unit", hint=_EXAMPLES[kind])
    sign = given or sign
    if not sign:
        raise UsageError(f"{where} = {value!r}: from above or from below?", hint='write ">= 28.5"')
    words = f"{sign} {number}{'' if unit in ('', '%', 'x') else ' '}{unit}"
    return Limit(words=words, sign=sign, edge=float(number) * factor)
