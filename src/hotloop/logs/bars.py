"""Progress bars of tqdm, and of everything built on it: Lightning, Ultralytics, Hugging Face."""

from __future__ import annotations

import re
from typing import Final

from hotloop.logs.meanings import evaluating
from hotloop.logs.tokens import Kind, ReadLine, Token

#: Description, counts, elapsed, rate with its unit: ``Epoch 3:  45%|##  | 450/1000 [00:45<00:55, 10.0it/s``,
#: without the bar in notebooks; ``450it [00:45, 10.0it/s`` where the total is not known.
_BAR: Final = re.compile(
    rb"(?P<head>[^|]*?)(?:\|[^|]*\| *|(?<=%) +|(?= ?\d))(?<![\d.])(?P<step>[\d.]+)(?P<scale>[kMGT]?)"
    rb"(?:/(?P<total>[\d.]+)(?P<scales>[kMGT]?)| ?[a-z]{2,8})"
    rb" +\[(?P<elapsed>[\d:]+)(?P<left><[^,\]]*)?"
    rb"(?:, *(?:\?|(?P<rate>[\d.]+)) ?(?P<unit>[^,\]\s]*))?(?P<postfix>.*)"
)
_LOSS: Final = re.compile(rb"(?<![a-z])(?:train[_/])?loss(?:_step)?=(?P<loss>[^,\s\]]+)")
_NUMBER: Final = re.compile(r"\d+(?:\.\d+)?(?:e[-+]\d+)?[KMGT]?")
_EPOCH: Final = re.compile(rb"(?i)(?:epoch|ep)\D{0,3}(?P<epoch>\d+)|^\s*(?P<first>\d+)/\d+\s")
_SCALE: Final = {b"": 1.0, b"k": 1e3, b"M": 1e6, b"G": 1e9, b"T": 1e12}


def read_bar(line: bytes) -> ReadLine | None:
    """The numbers of an update of a bar, None for any other line."""
    bar = _BAR.match(line)
    if bar is None or not (bar["left"] or b"/" in (bar["unit"] or b"")):
        return None
    unit = bar["unit"] or b""
    inverse = unit.startswith(b"s/")
    scaled = unit[:1] if unit[:1] in _SCALE and unit[1:2].isalpha() else b""
    tokens = [
        _token(bar, "step", factor=_SCALE[bar["scale"]]),
        _token(bar, "total", factor=_SCALE[bar["scales"] or b""]),
        _token(bar, "elapsed", kind="duration"),
        _token(bar, "rate", "bar_rate", factor=_SCALE[scaled], kind="inverse" if inverse else "number"),
    ]
    epoch = _EPOCH.search(bar["head"])
    if epoch is not None:
        tokens.append(_token(epoch, "epoch" if epoch["epoch"] else "first", "epoch"))
    loss = _LOSS.search(line, bar.start("postfix"))
    if loss is not None and re.fullmatch(rb"[-+]?[\d.,]+(?:e[-+]?\d+)?|[-+]?(?:nan|inf)", loss["loss"]):
        tokens.append(_token(loss, "loss"))
    name = _description(bar["head"])
    return ReadLine(
        line=line,
        tokens=tuple(token for token in tokens if token is not None),
        mode="evaluation" if evaluating(f"{name} ") else "train",
        name=name,
        unit=_counted(unit),
    )


def _token(
    match: re.Match[bytes], group: str, role: str = "", *, factor: float = 1.0, kind: Kind = "number"
) -> Token | None:
    if match[group] is None:
        return None
    start, end = match.span(group)
    return Token(start=start, end=end, kind=kind, roles=((role or group, factor),))


def _description(head: bytes) -> str:
    """A description without its percentage and its numbers."""
    own = head.removesuffix(b"%").rstrip(b"0123456789").rstrip(b" \t\r\f\v:")
    return _NUMBER.sub("#", own.decode("utf-8", "replace")).strip()[:80]


def _counted(unit: bytes) -> str:
    text = unit.decode("utf-8", "replace")
    return text.removesuffix("/s").removeprefix("s/").lstrip("kMGT") or "it"
