"""Progress bars of tqdm, and of everything built on it: Lightning, Ultralytics, Hugging Face."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from hotloop.logs.clocks import duration_s
from hotloop.logs.meanings import evaluating
from hotloop.logs.templates import Floats, Rows, number, numbers, thinned

#: Description, counts, elapsed, rate with its unit: ``Epoch 3:  45%|##  | 450/1000 [00:45<00:55, 10.0it/s``.
_TOTAL: Final = re.compile(
    rb"\n([^|\n]*)\|[^|\n]*\| *([\d.]+[kMGT]?)/([\d.]+[kMGT]?) +\[([\d:]+)<[^,\n\]]*,? *"
    rb"(?:([\d.?]+)([^,\]\s]*))?"
    rb"(?:, ([^\]\n]*))?"
)
#: The same without a bar, as in notebooks: ``Epoch 0: 100% 638/638 [24:00<00:00, 2.26s/it``.
_BARE: Final = re.compile(rb"\n([^|\n\[]*?\d%) +" + _TOTAL.pattern.split(rb"\| *", 1)[1])
_OPEN: Final = re.compile(
    rb"\n([^|\n\[]*?)(?<![\d.])([\d.]++[kMGT]?)(?:it|ba|[a-z]{2,8}) "
    rb"\[([\d:]+), *([\d.?]+)([^,\]\s]*)(?:, ([^\]\n]*))?"
)
_LOSS: Final = re.compile(rb"(?<![a-z])(?:train[_/])?loss(?:_step)?=([^,\s]+)")
_PERCENT: Final = re.compile(rb"[\s:]*\d*%?$")
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?(?:e[-+]\d+)?[KMGT]?")
_EPOCH: Final = re.compile(r"(?i)(?:epoch|ep)\D{0,3}(\d+)|^\s*(\d+)/\d+\s")
_SCALE: Final = {ord("k"): 1e3, ord("M"): 1e6, ord("G"): 1e9, ord("T"): 1e12}


@dataclass(frozen=True, kw_only=True)
class Bar:
    """Updates of one bar in a chunk, by its description without numbers. ``unit`` is what it counts."""

    name: str
    mode: str
    unit: str
    rows: Rows


def has_bars(body: bytes) -> bool:
    """Whether it is worth looking for bars here."""
    return b"%|" in body or b"it [" in body or b"s/it" in body or b"it/s" in body


def take(body: bytes, stride: int = 1) -> list[Bar]:
    """All bars of a chunk, each with its updates in order; one update of every ``stride``."""
    matches = list(_thinned(stride).finditer(body))
    ends = np.fromiter((match.end() for match in matches), np.int64, len(matches)) if stride > 1 else None
    groups = [match.groups(b"") for match in matches]
    if b"% " in body and (bare := list(_BARE.finditer(body))):
        matches += bare
        ends = None
        groups += [match.groups(b"") for match in bare]
    if b"it [" in body:
        uncounted = list(_OPEN.finditer(body))
        matches += uncounted
        ends = None if uncounted else ends
        groups += [(m[1], m[2], b"", *m.groups(b"")[2:]) for m in uncounted]
    if not matches:
        return []
    starts = np.fromiter((match.start() for match in matches), np.int64, len(matches))
    columns = list(zip(*groups, strict=True))
    described = {prefix: _described(prefix) for prefix in set(columns[0])}
    names = np.array([described[prefix][0] for prefix in columns[0]])
    epochs = np.array([described[prefix][1] for prefix in columns[0]])
    everything = _columns(columns[1:], epochs)
    out = []
    for name in dict.fromkeys(names.tolist()):
        own = names == name
        rows = Rows(starts=starts, columns=everything, stride=stride, ends=ends).only(own)
        unit = next((unit for unit, mine in zip(columns[5], own, strict=True) if mine and unit), b"it")
        out.append(
            Bar(
                name=name,
                mode="evaluation" if evaluating(f"{name} ") else "train",
                unit=_counted(unit),
                rows=rows,
            )
        )
    return out


@cache
def _thinned(stride: int) -> re.Pattern[bytes]:
    return re.compile(thinned(_TOTAL.pattern, rb"\n[^|\n]*\|[^|\n]*\|", stride)) if stride > 1 else _TOTAL


def _described(prefix: bytes) -> tuple[str, float]:
    """A description without its percentage and numbers, and its epoch where it tells one."""
    text = _PERCENT.sub(b"", prefix).decode("utf-8", "replace")
    match = _EPOCH.search(text)
    epoch = float(match[1] or match[2]) if match else float("nan")
    return _NUMBER.sub("#", text).strip()[:80], epoch


def _counted(unit: bytes) -> str:
    text = unit.decode("utf-8", "replace")
    name = text.removesuffix("/s").removeprefix("s/")
    return name.lstrip("kMGT") or "it"


def _columns(groups: list[tuple[bytes, ...]], epochs: Floats) -> dict[str, Floats]:
    steps, totals, elapsed, rates, units, postfix = groups
    seconds = {text: duration_s(text) for text in set(elapsed)}
    factors = {unit: _factor(unit) for unit in set(units)}
    printed = _scaled(rates)
    inverse = np.array([unit.startswith(b"s/") for unit in units])
    with np.errstate(divide="ignore", invalid="ignore"):
        printed = np.where(inverse, 1.0 / printed, printed) * [factors[unit] for unit in units]
    columns = {
        "step": _scaled(steps),
        "total": _scaled(totals),
        "elapsed": np.array([seconds[text] for text in elapsed]),
        "epoch": epochs,
        "bar_rate": printed,
    }
    if any(b"loss" in text for text in postfix[:1000]):
        found = [_LOSS.search(text) for text in postfix]
        columns["loss"] = numbers([match[1] if match else b"nan" for match in found])
        columns["has_loss"] = np.array([1.0 if match else 0.0 for match in found])
    return columns


def _factor(unit: bytes) -> float:
    return _SCALE.get(unit[0], 1.0) if unit[1:2].isalpha() and unit else 1.0


def _scaled(texts: tuple[bytes, ...]) -> Floats:
    try:
        return np.fromiter(map(float, texts), np.float64, len(texts))
    except ValueError:
        return np.array(
            [number(t[:-1]) * _SCALE.get(t[-1], 1.0) if t and t[-1] in _SCALE else number(t) for t in texts]
        )
