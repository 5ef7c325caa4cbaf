"""A line of a log as its numbers, each with what its surroundings say it is."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Literal

from hotloop.logs.meanings import evaluating, normal, role_of

#: A time of day, behind its date where it has one.
CLOCK: Final = rb"(?:\d{4}[-/]\d\d[-/]\d\d[ T_]|\d\d[-/]\d\d |[IWE]\d{4} )?\d\d:\d\d:\d\d(?:[.,]\d+)?"
_CLOCK: Final = re.compile(CLOCK)
_TIME: Final = re.compile(rb"(\d\d):(\d\d):([\d.,]+)$")
_DURATION: Final = re.compile(rb"(?:(\d{1,5}) ?(?:days?|d),? ?)?(?:(\d{1,6}):)?(\d{1,9}):(\d\d(?:\.\d+)?)$")
_DIGITS: Final = re.compile(rb"\d+")


def moment(text: bytes) -> float:
    """Seconds since 1970, or since an unknown midnight, of the first clock in a text; NaN without one."""
    found = _CLOCK.search(text)
    time = _TIME.search(found[0]) if found else None
    if found is None or time is None:
        return float("nan")
    hours, minutes, seconds = int(time[1]), int(time[2]), float(time[3].replace(b",", b"."))
    if hours > 23 or minutes > 59:
        return float("nan")
    return _midnight(found[0][: time.start()]) + hours * 3600 + minutes * 60 + seconds


@lru_cache(maxsize=4096)
def _midnight(day: bytes) -> float:
    """Of ``2026-11-21 ``, ``11-21 ``, ``I1121 `` or of no day at all; NaN of no date (13th month)."""
    parts = [int(part) for part in _DIGITS.findall(day)]
    if day[:1] in b"IWE" and len(parts) == 1:
        parts = [2000, parts[0] // 100, parts[0] % 100]
    elif len(parts) == 2:
        parts = [2000, *parts]
    elif not parts:
        parts = [2000, 1, 1]
    try:
        return datetime(*parts, tzinfo=UTC).timestamp()  # type: ignore[misc,arg-type]
    except (ValueError, TypeError):
        return float("nan")


def duration_s(text: bytes) -> float:
    """``1 day, 0:12:33`` or ``00:45`` in seconds, NaN for anything else."""
    match = _DURATION.match(text.strip())
    if not match:
        return float("nan")
    days, hours, minutes, seconds = match.groups()
    return int(days or 0) * 86400.0 + int(hours or 0) * 3600.0 + int(minutes) * 60.0 + float(seconds)


Kind = Literal["clock", "duration", "pair", "number", "inverse"]
_KINDS: Final[tuple[Kind, ...]] = ("clock", "duration", "pair", "number")

_NUM: Final = (
    rb"[-+]?(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:[eE][-+]?\d+)?|[-+]?(?:nan|inf|NaN|Inf|NAN|INF|infinity)\b"
)
_TOKEN: Final = re.compile(
    rb"(?<![\w.@])(?:(?P<clock>" + CLOCK + rb")"
    rb"|(?P<duration>(?:\d+ days?,? *)?\d{1,4}:\d\d(?::\d\d)?(?:\.\d+)?)(?![\d:])"
    rb"|(?P<pair>(?P<left>" + _NUM + rb") */ *(?P<right>" + _NUM + rb"))"
    rb"|(?P<number>" + _NUM + rb"))"
)  # fmt: skip
_UNIT: Final = re.compile(
    rb" ?(%|(?:[mun]?s|secs?)/[a-z]+|(?:[a-zA-Z]{2,8})?/(?:sec|second|s)|ms|msec|us|ns|secs?|seconds?|s|min|"
    rb"[KMGT]i?[Bb]|[kmgt]b|\xe6\xaf\xab\xe7\xa7\x92|\xe7\xa7\x92)(?![\w/])|([KMGT])(?![\w/])"
)
_SEPARATORS: Final = re.compile(r"[|,;\t{}()\[\]<>]|  +| [-–—] |: (?=\S*[:=])")
_STRONG: Final = re.compile(r"[|,;\t\[\]{}]|  +|(?:INFO|DEBUG|WARNING)\W+| [-–—] ")
_UNIT_IN_KEY: Final = re.compile(r"(?i)[ (\[]\(?(ms|s|sec|us|MB|GB|MiB|GiB)[)\]](?=[\s:=]*$)")
_STAGE: Final = re.compile(r"(?i)\bstage[ _-]?\d+")
#: A counter of training right before words of evaluation: ``[ITER 6000] Evaluating test: L1 0.05``.
_EVALUATED: Final = re.compile(rb"(?i)[\])]?:? *(?:evaluat|validat|(?:val|eval|test)\b)")
_COUNTER: Final = re.compile(
    r"(?i)(epoch|\bep\b|iter(?:ation)?|step|batch|update)s?\W*(?:\((?:train|val|test|eval)\))?[^\w(]*\W?$"
)
_HEADER: Final = re.compile(r"(?i)\b(?:train|test|val|training)\b[\s:]*\[?\s*$")
#: What launchers put before each line: ``[rank3]:``, ``[default0]:``.
_RANK: Final = re.compile(rb"\s*\[?(?:default|rank|worker|gpu|local_rank)[ =:_]?(\d{1,4})\]?[: ]")


@dataclass(frozen=True, kw_only=True)
class Token:
    """A number in a line. ``roles`` has (role, factor) per captured group; empty where nothing is known."""

    start: int
    end: int
    kind: Kind
    roles: tuple[tuple[str, float], ...] = ()
    unit_end: int = 0


@dataclass(frozen=True, kw_only=True)
class ReadLine:
    """A line's tokens; ``mode`` is ``train`` or ``evaluation``. A progress bar has a name and a unit."""

    line: bytes
    tokens: tuple[Token, ...]
    mode: str
    name: str = ""
    unit: str = ""

    @property
    def roles(self) -> tuple[str, ...]:
        """The roles of the line in order."""
        return tuple(role for token in self.tokens for role, _ in token.roles)


def read_line(line: bytes) -> ReadLine:
    """The numbers of one line; every role at most once, the first wins."""
    rank = _RANK.match(line)
    matches = list(_TOKEN.finditer(line, rank.end() if rank else 0))
    seen: set[str] = set()
    tokens: list[Token] = []
    for i, match in enumerate(matches):
        token = _token(line, match, tokens, matches[i + 1] if i + 1 < len(matches) else None)
        fresh = tuple(role for role in token.roles if role[0] not in seen)
        if len(fresh) != len(token.roles):
            token = replace(token, roles=())
        seen.update(role for role, _ in fresh)
        tokens.append(token)
    mode = _mode(line, tokens)
    if tokens and tokens[0].roles == (("step", 1.0),) and _EVALUATED.match(line, tokens[0].end):
        mode, tokens[0] = "evaluation", replace(tokens[0], roles=(("evaluated", 1.0),))
    if rank is not None:
        start, end = rank.span(1)
        tokens.append(Token(start=start, end=end, kind="number", roles=(("rank", 1.0),)))
    return ReadLine(line=line, tokens=tuple(tokens), mode=mode)


def _token(line: bytes, match: re.Match[bytes], earlier: list[Token], after: re.Match[bytes] | None) -> Token:
    kind = next(name for name in _KINDS if match[name] is not None)
    start, end = match.span()
    last = earlier[-1] if earlier else None
    before = line[last.unit_end if last else 0 : start].decode("utf-8", "replace")
    unit_match = _UNIT.match(line, end)
    if unit_match and after is not None and _next_name(before, unit_match, line[: after.start()]):
        unit_match = None
    unit = (unit_match[1] or unit_match[2]).decode("utf-8", "replace") if unit_match else ""
    if line[end : end + 1].isalpha() and not unit_match:
        roles: tuple[tuple[str, float], ...] = ()
    elif kind == "clock":
        roles = (("clock", 1.0),) if start < 60 else ()
    elif kind == "duration":
        roles = _duration_roles(before, line)
    elif kind == "pair":
        roles = _pair_roles(before, unit, after, line, end)
    elif last and last.roles[:1] and unit == "%" and before.strip() == "(":  # ``Stage 8 586.90ms (32.8%)``
        stage = last.roles[0][0]
        roles = ((stage.replace("stage:", "share:"), 0.01),) if stage.startswith("stage:") else ()
    else:
        roles = _number_roles(before, unit, after)
        if not roles and unit in ("ms", "us", "s", "sec"):
            measured = next((token.unit_end for token in reversed(earlier) if token.unit_end > token.end), 0)
            prefix = line[measured:start].decode("utf-8", "replace")
            roles = _stage_role(prefix, unit, named=bool(re.search(r"\w", before)))
    return Token(
        start=start,
        end=end,
        kind=kind,
        roles=roles,
        unit_end=unit_match.end() if unit_match else end,
    )


def _next_name(before: str, unit: re.Match[bytes], line: bytes) -> bool:
    """Whether what looks like a unit is the next number's name: ``loss 2.31 tok/s 152000``."""
    between = line[unit.end() :].strip()
    if b"/" not in unit[0] or not unit[0].startswith(b" ") or between not in (b"", b":", b"="):
        return False
    known, with_unit = (role_of(_key(before), text) for text in ("", unit[1].decode("utf-8", "replace")))
    return bool(between) or (known is not None and (with_unit is None or with_unit[0] != known[0]))


def _key(before: str) -> str:
    pieces = _SEPARATORS.split(_UNIT_IN_KEY.sub(r" \1", before.rstrip()))
    return pieces[-1] or (pieces[-2] if len(pieces) > 1 and before.rstrip().endswith(("[", "(")) else "")


def _duration_roles(before: str, line: bytes) -> tuple[tuple[str, float], ...]:
    name = normal(_key(before))
    if name.endswith("total time") and evaluating(line[:80].decode("utf-8", "replace")):
        return (("evaluation", 1.0),)
    return (("elapsed", 1.0),) if name in ("elapsed", "time elapsed", "elapsed time") else ()


def _pair_roles(
    before: str, unit: str, after: re.Match[bytes] | None, line: bytes, end: int
) -> tuple[tuple[str, float], ...]:
    counter = _COUNTER.search(before)
    if counter:
        epoch = counter[1].lower().startswith("ep")
        return (("epoch", 1.0), ("epochs", 1.0)) if epoch else (("step", 1.0), ("total", 1.0))
    found = role_of(_key(before), unit)
    if found is not None and found[0].endswith("_bytes") and normal(_key(before)) != "memory":
        return (found, (found[0].replace("_bytes", "_limit"), found[1]))
    if (unit or normal(_key(before))) and not _HEADER.search(before):
        return ()
    adjacent = (
        after is not None
        and after["pair"] is not None
        and line[end : after.start()].strip() in (b"][", b"] [")
    )
    return (("epoch", 1.0), ("epochs", 1.0)) if adjacent else (("step", 1.0), ("total", 1.0))


def _number_roles(before: str, unit: str, after: re.Match[bytes] | None) -> tuple[tuple[str, float], ...]:
    if unit == "/s" and not normal(_key(before)):
        return (("sample_rate", 1.0),)
    if before.rstrip().endswith(("<", ">", "≤", "≥", "~", "≈")):  # a bound or a goal, nothing measured
        return ()
    key = _key(before)
    counter = _COUNTER.search(before)
    if counter and not unit:
        epoch = counter[1].lower().startswith("ep")
        return (("epoch" if epoch else "step", 1.0),)
    if not unit and _HEADER.search(before) and after is not None and after["pair"] is not None:
        return (("epoch", 1.0),)
    found = role_of(key, unit)
    if found is not None and not found[0].startswith("stage:"):
        return (found,)
    if before.strip() == "|" and unit in ("ms", "s"):  # a column without a name
        return (("time", 0.001 if unit == "ms" else 1.0),)
    return ()


def _stage_role(prefix: str, unit: str, *, named: bool) -> tuple[tuple[str, float], ...]:
    """A duration under a name of the file's own, numbers in the name included: ``Stage 8 (...): 586.9ms``."""
    if match := _STAGE.search(prefix):
        name = re.sub(r"[ _-]?(\d+)", r" \1", match[0].lower())
    elif not named:  # in brackets behind another number: a mean, a repetition
        return ()
    else:
        name = _STRONG.split(prefix.rstrip(" (:="))[-1]
    found = role_of(name, unit)
    return (found,) if found is not None and found[0].startswith("stage:") else ()


def _mode(line: bytes, tokens: list[Token]) -> str:
    """From the words right before the line's first counter or value."""
    first = next((token for token in tokens if token.roles and token.kind != "clock"), None)
    if first is None:
        return "train"
    words = line[max(0, first.start - 32) : first.start].decode("utf-8", "replace")
    return "evaluation" if evaluating(words) else "train"


# Progress bars of tqdm, and of what is built on it: Lightning, Ultralytics, Hugging Face


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
        _bar_token(bar, "step", factor=_SCALE[bar["scale"]]),
        _bar_token(bar, "total", factor=_SCALE[bar["scales"] or b""]),
        _bar_token(bar, "elapsed", kind="duration"),
        _bar_token(bar, "rate", "bar_rate", factor=_SCALE[scaled], kind="inverse" if inverse else "number"),
    ]
    epoch = _EPOCH.search(bar["head"])
    if epoch is not None:
        tokens.append(_bar_token(epoch, "epoch" if epoch["epoch"] else "first", "epoch"))
    loss = _LOSS.search(line, bar.start("postfix"))
    if loss is not None and re.fullmatch(rb"[-+]?[\d.,]+(?:e[-+]?\d+)?|[-+]?(?:nan|inf)", loss["loss"]):
        tokens.append(_bar_token(loss, "loss"))
    # The description without its percentage and its numbers.
    head = bar["head"].removesuffix(b"%").rstrip(b"0123456789").rstrip(b" \t\r\f\v:")
    name = _NUMBER.sub("#", head.decode("utf-8", "replace")).strip()[:80]
    return ReadLine(
        line=line,
        tokens=tuple(token for token in tokens if token is not None),
        mode="evaluation" if evaluating(f"{name} ") else "train",
        name=name,
        unit=unit.decode("utf-8", "replace").removesuffix("/s").removeprefix("s/").lstrip("kMGT") or "it",
    )


def _bar_token(
    match: re.Match[bytes], group: str, role: str = "", *, factor: float = 1.0, kind: Kind = "number"
) -> Token | None:
    if match[group] is None:
        return None
    start, end = match.span(group)
    return Token(start=start, end=end, kind=kind, roles=((role or group, factor),))
