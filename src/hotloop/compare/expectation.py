"""The checklist file: limits on what a run must show, in TOML or YAML; unknown keys are refused by name."""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Any, Final, Literal

import yaml

from hotloop.errors import UsageError

Kind = Literal["number", "ratio", "share", "duration", "size", "yes"]

#: Item -> what kind of number it is, and which way a bare number is meant.
ITEMS: Final[dict[str, tuple[Kind, Literal["min", "max"]]]] = {
    "loss_converges": ("yes", "min"),
    "finite_loss": ("yes", "min"),
    "checkpoint_loads": ("yes", "min"),
    "samples_per_s": ("number", "min"),
    "steps_per_s": ("number", "min"),
    "speedup": ("ratio", "min"),
    "gpu_utilization": ("share", "min"),
    "data_wait": ("duration", "max"),
    "cache_hit_rate": ("share", "min"),
    "device_memory": ("size", "max"),
    "host_memory": ("size", "max"),
    "host_memory_stable": ("yes", "min"),
    "cpu": ("share", "max"),
    "disk_busy": ("share", "max"),
}
_SETTINGS: Final = ("effect", "metrics")
_EFFECTS: Final = ("exact", "numeric", "semantic")

_UNITS: Final[dict[str, tuple[Kind, float]]] = {
    "%": ("share", 0.01),
    "us": ("duration", 1e-6), "ms": ("duration", 1e-3), "s": ("duration", 1.0),
    "b": ("size", 1.0), "kb": ("size", 1e3), "mb": ("size", 1e6), "gb": ("size", 1e9), "tb": ("size", 1e12),
    "kib": ("size", 2.0**10), "mib": ("size", 2.0**20), "gib": ("size", 2.0**30), "tib": ("size", 2.0**40),
    "x": ("ratio", 1.0), "": ("number", 1.0),
}  # fmt: skip
_LIMIT: Final = re.compile(r"\s*(<=|>=|<|>|)\s*([-+]?[\d.]+(?:e[-+]?\d+)?)\s*([a-z%]*)\s*", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class Limit:
    """``low <= value <= high``; ``words`` as it was written. ``strict`` leaves the edges out."""

    words: str
    low: float | None = None
    high: float | None = None
    strict: bool = False

    def holds(self, value: float) -> bool:
        """Whether a value is within."""
        if self.strict:
            return (self.low is None or value > self.low) and (self.high is None or value < self.high)
        return (self.low is None or value >= self.low) and (self.high is None or value <= self.high)


@dataclass(frozen=True, kw_only=True)
class Expectation:
    """What a file asks for; ``metrics`` are named values that the script logs."""

    items: Mapping[str, Limit] = field(default_factory=dict)
    metrics: Mapping[str, Limit] = field(default_factory=dict)
    effect: Literal["exact", "numeric", "semantic"] | None = None


def read(path: Path) -> Expectation:
    """Read a checklist file. Raises UsageError with the key that is wrong and the nearest known one."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        words = getattr(error, "strerror", None) or error
        raise UsageError(f"{path} cannot be read: {words}", hint="give a TOML or YAML file") from error
    try:
        data = yaml.safe_load(text) if path.suffix in (".yaml", ".yml") else tomllib.loads(text)
    except (tomllib.TOMLDecodeError, yaml.YAMLError) as error:
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
            str(name): _limit(f"{source}: metrics.{name}", v, "number", None) for name, v in metrics.items()
        },
        effect=effect,
    )


def _limit(where: str, value: Any, kind: Kind, direction: str | None) -> Limit:
    if kind == "yes":
        if value is not True:
            raise UsageError(f"{where} = {value!r}", hint="true, or leave it out")
        return Limit(words="yes")
    if isinstance(value, Mapping):
        return _range(where, value, kind)
    found = None if isinstance(value, bool) else _LIMIT.fullmatch(str(value))
    if found is None:
        raise UsageError(f"{where} = {value!r} is no limit", hint=f"write {_example(kind)}")
    sign, number, unit = found.groups()
    number_in = _in_unit(where, number, unit, kind)
    if not sign:
        if direction is None:
            raise UsageError(f"{where} = {value!r}: from above or from below?", hint='write ">= 28.5"')
        sign = ">=" if direction == "min" else "<="
    words = f"{sign} {number}{'' if unit in ('', '%', 'x') else ' '}{unit}"
    edge = {"low": number_in} if sign[0] == ">" else {"high": number_in}
    return Limit(words=words, strict=len(sign) == 1, **edge)


def _range(where: str, value: Mapping[str, Any], kind: Kind) -> Limit:
    unknown = [key for key in value if key not in ("min", "max")]
    if unknown or not value:
        raise UsageError(f"{where}: {unknown or 'nothing'} given", hint="{ min = 0.85, max = 1.0 }")
    edges: dict[str, float] = {}
    for key, edge in value.items():
        found = None if isinstance(edge, bool) else _LIMIT.fullmatch(str(edge))
        if found is None or found[1]:
            raise UsageError(f"{where}.{key} = {edge!r} is no number", hint=f"{key} = 0.85")
        edges[key] = _in_unit(f"{where}.{key}", found[2], found[3], kind)
    if edges.get("min", -inf) > edges.get("max", inf):
        raise UsageError(f"{where}: nothing is between {value['min']} and {value['max']}", hint="min <= max")
    words = " and ".join(f"{'>=' if key == 'min' else '<='} {value[key]}" for key in value)
    return Limit(words=words, low=edges.get("min"), high=edges.get("max"))


def _in_unit(where: str, number: str, unit: str, kind: Kind) -> float:
    known = _UNITS.get(unit.lower())
    bare = unit == "" and kind in ("number", "ratio", "share")
    if known is None or not (known[0] == kind or bare):
        raise UsageError(f"{where}: {number} {unit}".rstrip() + " has no fitting unit", hint=_example(kind))
    try:
        return float(number) * known[1]
    except ValueError:
        raise UsageError(f"{where}: {number!r} is no number", hint=_example(kind)) from None


def _example(kind: Kind) -> str:
    return {
        "number": '">= 120"', "ratio": '">= 1.2x"', "share": '"> 90%"', "duration": '"< 10 ms"',
        "size": '"<= 20 GiB"', "yes": "true",
    }[kind]  # fmt: skip
