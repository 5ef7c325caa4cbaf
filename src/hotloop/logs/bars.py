"""Progress bars of tqdm, and of everything built on it: Lightning, Ultralytics, Hugging Face."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

import numpy as np

from hotloop.logs.clocks import duration_s
from hotloop.logs.meanings import evaluating
from hotloop.logs.templates import Floats, Rows, number, numbers

#: Description, counts, elapsed, and the rate with its unit: ``Epoch 3:  45%|####5     | 450/1000 [00:45<00:55, 10.0it/s``.
_TOTAL: Final = re.compile(
    rb"\n([^|\n]*)\|[^|\n]*\| *([\d.]+[kMGT]?)/([\d.]+[kMGT]?) +\[([\d:]+)<[^,\n\]]*,? *(?:([\d.?]+)([^,\]\s]*))?"
    rb"(?:, ([^\]\n]*))?"
)
_OPEN: Final = re.compile(
    rb"\n([^|\n\[]*?)([\d.]+[kMGT]?)(?:it|ba|[a-z]{2,8}) \[([\d:]+), *([\d.?]+)([^,\]\s]*)(?:, ([^\]\n]*))?"
)
_LOSS: Final = re.compile(rb"(?<![a-z])(?:train[_/])?loss(?:_step)?=([^,\s]+)")
_PERCENT: Final = re.compile(rb"[\s:]*\d*%?$")
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?(?:e[-+]\d+)?[KMGT]?")
_EPOCH: Final = re.compile(r"(?i)(?:epoch|ep)\D{0,3}(\d+)|^\s*(\d+)/\d+\s")
_SCALE: Final = {ord("k"): 1e3, ord("M"): 1e6, ord("G"): 1e9, ord("T"): 1e12}


#: Where an update starts, and its groups: description, count, total, elapsed, rate, unit, postfix.
_Row = tuple[int, tuple[bytes, ...]]


@dataclass(frozen=True, kw_only=True)
class Bar:
    """Updates of one bar in a chunk, by its description without numbers. ``unit`` is what it counts."""

    name: str
    mode: str
    unit: str
    rows: Rows


def has_bars(body: bytes) -> bool:
    """Whether it is worth looking for bars here."""
    return b"%|" in body or b"it [" in body or b"s/it]" in body


def take(body: bytes) -> list[Bar]:
    """All bars of a chunk, each with its updates in order."""
    found: list[_Row] = [(m.start(), m.groups(b"")) for m in _TOTAL.finditer(body)]
    found += [(m.start(), (m[1], m[2], b"", *m.groups(b"")[2:])) for m in _OPEN.finditer(body)]
    if not found:
        return []
    named: dict[bytes, tuple[str, float]] = {}
    bars: dict[str, list[_Row]] = {}
    units: dict[str, str] = {}
    epochs: dict[str, list[float]] = {}
    for row in found:
        prefix, unit = row[1][0], row[1][5]
        name, epoch = named.get(prefix) or named.setdefault(prefix, _described(prefix))
        bars.setdefault(name, []).append(row)
        epochs.setdefault(name, []).append(epoch)
        if unit and name not in units:
            units[name] = _counted(unit)
    return [_bar(name, rows, epochs[name], units.get(name, "it")) for name, rows in bars.items()]


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


def _bar(name: str, rows: list[_Row], epochs: list[float], unit: str) -> Bar:
    starts = [start for start, _ in rows]
    _, steps, totals, elapsed, rates, units, postfix = zip(*(groups for _, groups in rows), strict=True)
    seconds: dict[bytes, float] = {}
    columns: dict[str, Floats] = {
        "step": _scaled(steps),
        "total": _scaled(totals),
        "elapsed": np.array([seconds.get(t) or seconds.setdefault(t, duration_s(t)) for t in elapsed]),
        "epoch": np.array(epochs),
    }
    printed = np.array([number(text) for text in rates])
    inverse = np.array([text.startswith(b"s/") for text in units])
    with np.errstate(divide="ignore", invalid="ignore"):
        printed = np.where(inverse, 1.0 / printed, printed)
    for letter, factor in ((b"k", 1e3), (b"M", 1e6)):
        printed = np.where(
            [text[:1] == letter and text[1:2].isalpha() for text in units], printed * factor, printed
        )
    columns["bar_rate"] = printed
    if any(b"loss" in text for text in postfix):
        columns["loss"] = numbers([m[1] if (m := _LOSS.search(text)) else b"" for text in postfix])
        columns["has_loss"] = np.array([1.0 if b"loss" in text else 0.0 for text in postfix])
    words = f"{name} "
    return Bar(
        name=name,
        mode="evaluation" if evaluating(words) else "train",
        unit=unit,
        rows=Rows(starts=np.array(starts, dtype=np.int64), columns=columns),
    )


def _scaled(texts: tuple[bytes, ...]) -> Floats:
    try:
        return np.array([float(text or b"nan") for text in texts])
    except ValueError:
        return np.array(
            [number(t[:-1]) * _SCALE.get(t[-1], 1.0) if t and t[-1] in _SCALE else number(t) for t in texts]
        )
