"""Progress bars of tqdm, and of everything built on it: Lightning, Ultralytics, Hugging Face."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Final

import numpy as np

from hotloop.logs.clocks import duration_s
from hotloop.logs.meanings import evaluating
from hotloop.logs.templates import Floats, Rows, number, numbers, thinned

#: Description, counts, elapsed, rate with its unit: ``Epoch 3:  45%|##  | 450/1000 [00:45<00:55, 10.0it/s``.
_TOTAL: Final = re.compile(
    rb"\n([^|\n]*+)\|[^|\n]*+\| *+([\d.]++[kMGT]?+)/([\d.]++[kMGT]?+) ++\[([\d:]++)<[^,\n\]]*+,? *+"
    rb"(?:([\d.?]++)([^,\]\s]*+))?+"
    rb"(?:, ([^\]\n]*+))?+"
)
#: The same without a bar, as in notebooks: ``Epoch 0: 100% 638/638 [24:00<00:00, 2.26s/it``.
_BARE: Final = re.compile(rb"\n([^|\n\[]*?\d%) +" + _TOTAL.pattern.split(rb"\| *+", 1)[1])
_OPEN: Final = re.compile(
    rb"\n([^|\n\[]*?)(?<![\d.])([\d.]++[kMGT]?)(?:it|ba|[a-z]{2,8}) "
    rb"\[([\d:]+), *([\d.?]+)([^,\]\s]*)(?:, ([^\]\n]*))?"
)
#: The loss of each of many postfixes, a line each; empty where a line has none.
_LOSS: Final = re.compile(rb"\n(?:[^\n]*?(?<![a-z])(?:train[_/])?loss(?:_step)?=([^,\s]+))?[^\n]*")
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
    """Whether it is worth looking for bars here; every bar with a total says what is left after a ``<``."""
    return (b"<" in body and (b"%|" in body or b"s/it" in body or b"it/s" in body)) or b"it [" in body


def take(body: bytes, stride: int = 1) -> list[Bar]:
    """All bars of a chunk, each with its updates in order; one update of every ``stride``."""
    matches = list(_thinned(stride).finditer(body))
    ends = np.fromiter(map(re.Match.end, matches), np.int64, len(matches)) if stride > 1 else None
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
    starts = np.fromiter(map(re.Match.start, matches), np.int64, len(matches))
    columns = list(zip(*groups, strict=True))
    heads = {prefix: _head(prefix) for prefix in dict.fromkeys(columns[0])}
    described = {head: _described(head) for head in dict.fromkeys(heads.values())}
    numbered = {name: i for i, name in enumerate(dict.fromkeys(name for name, _ in described.values()))}
    names = _looked_up({prefix: numbered[described[head][0]] for prefix, head in heads.items()}, columns[0])
    epochs = _looked_up({prefix: described[head][1] for prefix, head in heads.items()}, columns[0])
    everything = _columns(columns[1:], epochs)
    out = []
    for name, i in numbered.items():
        own = names == i
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
    return re.compile(thinned(_TOTAL.pattern, rb"\n[^|\n]*+\|[^|\n]*+\|", stride)) if stride > 1 else _TOTAL


def _head(prefix: bytes) -> bytes:
    """A description without its percentage."""
    return prefix.removesuffix(b"%").rstrip(b"0123456789").rstrip(b" \t\r\f\v:")


def _described(head: bytes) -> tuple[str, float]:
    """A description without its numbers, and its epoch where it tells one."""
    text = head.decode("utf-8", "replace")
    match = _EPOCH.search(text)
    epoch = float(match[1] or match[2]) if match else float("nan")
    return _NUMBER.sub("#", text).strip()[:80], epoch


def _counted(unit: bytes) -> str:
    text = unit.decode("utf-8", "replace")
    name = text.removesuffix("/s").removeprefix("s/")
    return name.lstrip("kMGT") or "it"


def _columns(groups: list[tuple[bytes, ...]], epochs: Floats) -> dict[str, Floats]:
    steps, totals, elapsed, rates, units, postfix = groups
    printed = _scaled(rates)
    inverse = _looked_up({unit: float(unit.startswith(b"s/")) for unit in set(units)}, units) > 0
    with np.errstate(divide="ignore", invalid="ignore"):
        printed = np.where(inverse, 1.0 / printed, printed)
    printed *= _looked_up({unit: _factor(unit) for unit in set(units)}, units)
    columns = {
        "step": _scaled(steps),
        "total": _scaled(totals),
        "elapsed": _looked_up({text: duration_s(text) for text in set(elapsed)}, elapsed),
        "epoch": epochs,
        "bar_rate": printed,
    }
    if any(b"loss" in text for text in postfix[:1000]):
        found = _LOSS.findall(b"\n" + b"\n".join(postfix))
        columns["has_loss"] = np.fromiter(map(bool, found), np.float64, len(found))
        columns["loss"] = numbers([text or b"nan" for text in found])
    return columns


def _looked_up(known: Mapping[bytes, float], texts: tuple[bytes, ...]) -> Floats:
    return np.fromiter(map(known.__getitem__, texts), np.float64, len(texts))


def _factor(unit: bytes) -> float:
    return _SCALE.get(unit[0], 1.0) if unit[1:2].isalpha() and unit else 1.0


def _scaled(texts: tuple[bytes, ...]) -> Floats:
    try:
        return np.fromiter(map(float, texts), np.float64, len(texts))
    except ValueError:
        return np.array(
            [number(t[:-1]) * _SCALE.get(t[-1], 1.0) if t and t[-1] in _SCALE else number(t) for t in texts]
        )
