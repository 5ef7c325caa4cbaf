"""A loader's settings from a training configuration, under the names that guides and frameworks give them.

A key that nobody reads is the commonest mistake in such files: what is not known here is refused by name.
"""

from __future__ import annotations

import difflib
import fnmatch
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

from hotloop.feed import budget
from hotloop.feed.errors import FeedError

_WORKERS: Final = "a whole number, 0 or more, 'auto', or a share of the cores as 'cpu*0.6'"
_SIZE: Final = "a size such as '50GB', a share such as 0.4 or '40%', or 'auto'"


class WrongValueError(ValueError):
    """What was expected of a value, in words."""


class Setting(NamedTuple):
    """A meaning: the argument it becomes, the names it goes by, what it does in words, and its reader."""

    argument: str
    names: tuple[str, ...]
    says: str
    read: Callable[[Any], Any]


def _is_int(value: Any, least: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)


def _checked(
    is_right: Callable[[Any], bool], expected: str, made: Callable[[Any], Any] = lambda value: value
) -> Callable[[Any], Any]:
    def read(value: Any) -> Any:
        if not is_right(value):
            raise WrongValueError(expected)
        return made(value)

    return read


def _workers(value: Any) -> int | str:
    """Workers of one process."""
    if value == "auto" or _is_int(value, 0):
        return value  # type: ignore[no-any-return]
    share = re.fullmatch(r"cpu\s*\*\s*(\d*\.?\d+)", value) if isinstance(value, str) else None
    if share is None:
        raise WrongValueError(_WORKERS)
    return max(1, int(budget.usable_cores() * float(share[1])))


def _total_workers(value: Any) -> int | str:
    """Workers of one process, where the value is for all processes of this machine."""
    workers = _workers(value)
    if isinstance(value, str) or not workers:
        return workers
    return max(1, value // budget.local_world_size())  # type: ignore[no-any-return]


def _size(value: Any) -> Any:
    try:
        budget.memory_budget(value)
    except (ValueError, TypeError):
        raise WrongValueError(_SIZE) from None
    return value


_flag = _checked(lambda value: isinstance(value, bool), "true or false")
_positive = _checked(lambda value: _is_int(value, 1), "a whole number, 1 or more")
_seconds = _checked(lambda value: _is_number(value) and value >= 0, "a number of seconds", float)
_gib = _checked(
    lambda value: value == "auto" or (_is_number(value) and value > 0),
    "a number of GiB above 0, or 'auto'",
    lambda value: value if value == "auto" else int(value * 2**30),
)

#: Argument, names (the first is its own), meaning, reader; those of ``Loader`` first.
_TABLE: Final = (
    ("num_workers", "num_workers workers n_workers num_data_workers workers_per_gpu",
     "workers of each process; 'auto' measures", _workers),
    ("num_workers", "total_workers",
     "workers of all processes of this machine together, divided among them (LOCAL_WORLD_SIZE)",
     _total_workers),
    ("prefetch_factor", "prefetch_factor prefetch", "batches each worker makes ahead", _positive),
    ("pin_memory", "pin_memory", "batches in page-locked memory, so that copies overlap", _flag),
    ("persistent_workers", "persistent_workers", "workers stay from epoch to epoch", _flag),
    ("batch_size", "batch_size samples_per_gpu imgs_per_gpu batch_size_per_gpu",
     "samples of a batch of one process", _positive),
    ("drop_last", "drop_last",
     "leave out a last, smaller batch; of training, unless written under validation", _flag),
    ("shuffle", "shuffle", "a new order every epoch; of training, unless written under validation", _flag),
    ("timeout", "timeout", "seconds to wait for a batch, 0 for ever", _seconds),
    ("in_order", "in_order", "batches in the order of the sampler", _flag),
    ("seed_by", "seed_by", "what a sample's random numbers depend on",
     _checked(lambda value: value in ("worker", "sample"), "'worker' or 'sample'")),
    ("cache", "use_ram_cache cache_data use_cache ram_cache",
     "keep samples in memory: one cache for all workers and processes of the machine", _flag),
    ("max_bytes", "cache_size_gb max_memory_gb",
     "the most the cache may take in GiB (2^30 bytes), in all and not per process; or 'auto'", _gib),
    ("max_bytes", "cache_bytes max_bytes",
     "the most the cache may take: '50GB', 0.4, '40%', 'auto'", _size),
    ("accumulation_steps",
     "gradient_accumulation_steps accumulation_steps accumulative_counts accumulate_grad_batches",
     "micro-batches per optimizer step", _positive),
)  # fmt: skip

SETTINGS: Final = tuple(
    Setting(argument, tuple(names.split()), says, read) for argument, names, says, read in _TABLE
)
BY_NAME: Final = {name: setting for setting in SETTINGS for name in setting.names}
#: Arguments that are no loader's.
CACHE: Final = frozenset({"cache", "max_bytes"})
ACCUMULATION: Final = "accumulation_steps"
LOADER: Final = tuple(
    dict.fromkeys(s.argument for s in SETTINGS if s.argument not in CACHE and s.argument != ACCUMULATION)
)


TRAIN, VAL = "train", "val"
_SPLITS: Final = {
    **dict.fromkeys(("train", "training"), TRAIN),
    **dict.fromkeys(("val", "valid", "validation", "eval", "evaluation"), VAL),
}
#: Words of section names and of prefixes that say nothing more.
_PLAIN: Final = frozenset(
    {"data", "dataset", "datasets", "dataloader", "dataloaders", "loader", "cache", "feed", "cfg", "runner"}
)
_TRAIN_ONLY: Final = frozenset({"drop_last", "shuffle"})
_NEED_WORKERS: Final = ("prefetch_factor", "persistent_workers", "timeout")


class ConfigError(FeedError, ValueError):
    """A configuration has keys nobody reads, or values that cannot be meant; the message names each."""


@dataclass(frozen=True, kw_only=True)
class Key:
    """A key that was read: as written, where (``file:line`` if known), what it means, for which loader."""

    name: str
    place: str
    setting: Setting
    split: str | None
    written: Any
    value: Any

    def __str__(self) -> str:
        of = f"{self.split} " if self.split else ""
        where = f" ({self.place})" if self.place else ""
        becomes = f"{of}{self.setting.argument}={self.value!r}"
        return f"{self.name}: {self.written!r}{where} -> {becomes}: {self.setting.says}"


@dataclass(frozen=True, kw_only=True)
class FeedConfig:
    """What a configuration says about feeding; ``print`` it to see what each key means.

    ``train`` and ``val`` are arguments of ``Loader`` (and of torch's DataLoader, where nothing is
    ``"auto"``); ``cache`` the arguments of ``cached``, or None where no cache is asked for;
    ``accumulation_steps`` is ``Accumulation``'s ``steps``.
    """

    train: Mapping[str, Any]
    val: Mapping[str, Any]
    cache: Mapping[str, Any] | None = None
    accumulation_steps: int = 1
    keys: Sequence[Key] = ()
    notes: Sequence[str] = ()

    @classmethod
    def from_mapping(
        cls, mapping: Mapping[str, Any], *, path: str | Path | None = None, ignore: Sequence[str] = ()
    ) -> FeedConfig:
        """Read a configuration, nested or flat, in upper or lower case, with ``-`` or ``_``.

        Sections such as ``DATALOADER``, ``DATA`` and ``train_dataloader`` are looked into. ``TRAIN_`` or
        ``VAL_`` before a key, or such a section around it, say which loader it is for; without, it is both.

        Args:
            mapping: what ``yaml.safe_load``, ``json.load`` or ``vars(parser.parse_args())`` gave.
            path: the file it was read from: messages then name file and line.
            ignore: dotted keys and sections that are none of the loader's, as patterns in any case:
                ``"MODEL"``, ``"DATA.ROOT"``, ``"DATA.*_DIR"``.

        Raises:
            ConfigError: keys that nothing reads and ``ignore`` does not name, values of a wrong type, two
                keys that contradict each other. All of them are named at once.
        """
        keys: list[Key] = []
        problems: list[str] = []
        unknown: list[str] = []
        for parts, value in _leaves(mapping, [_plain(pattern) for pattern in ignore]):
            place, name = _place(path, parts), ".".join(parts)
            found = _meaning(parts)
            if found is None:
                unknown.append(name)
                problems.append(_at(place, _unknown(parts)))
            elif value is not None:  # null: as if it were not there
                setting, split = found
                try:
                    read = setting.read(value)
                except WrongValueError as wrong:
                    what = f"{name} must be {wrong}, not {value!r} ({type(value).__name__})"
                    problems.append(_at(place, what))
                    continue
                keys.append(
                    Key(name=name, place=place, setting=setting, split=split, written=value, value=read)
                )
        problems += _contradictions(keys)
        if problems:
            hint = f"correct them, or say what is not the loader's: ignore={unknown}" if unknown else None
            raise ConfigError("\n".join(problems), hint=hint)
        return _assembled(keys)

    def __str__(self) -> str:
        return "\n".join([*map(str, self.keys), *self.notes])


def _leaves(
    mapping: Mapping[str, Any], ignore: Sequence[str], above: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Keys with the sections above them, and values; sections that are none of ours are keys too."""
    for name, value in mapping.items():
        parts = (*above, str(name))
        dotted = ".".join(map(_plain, parts))
        if any(fnmatch.fnmatchcase(dotted, pattern) for pattern in ignore):
            continue
        words = _plain(str(name)).split("_")
        if isinstance(value, Mapping) and all(word in _PLAIN or word in _SPLITS for word in words):
            yield from _leaves(value, ignore, parts)
        else:
            yield parts, value


def _plain(name: str) -> str:
    """A name in lower case, words joined by ``_``."""
    name = name.strip().lstrip("-").replace("-", "_")
    if not (name.islower() or name.isupper()):
        name = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name)
    return name.lower()


def _meaning(parts: tuple[str, ...]) -> tuple[Setting, str | None] | None:
    """What a key means, and for which loader (None: both, or it is no loader's); None if it is unknown."""
    splits = [_SPLITS[w] for part in parts[:-1] for w in _plain(part).split("_") if w in _SPLITS]
    name = _plain(parts[-1])
    while name not in BY_NAME:
        word, _, name = name.partition("_")
        if not name or (word not in _SPLITS and word not in _PLAIN):
            return None
        splits += [_SPLITS[word]] if word in _SPLITS else []
    setting, split = BY_NAME[name], splits[-1] if splits else None
    if setting.argument in LOADER:
        return setting, split
    return (setting, None) if split != VAL else None


def _unknown(parts: tuple[str, ...]) -> str:
    name = _plain(parts[-1])
    sections = [*_PLAIN, *_SPLITS]
    names = [*BY_NAME, *sections, *(f"{split}_{one}" for split in (TRAIN, VAL) for one in BY_NAME)]
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.7)
    says = f"{'.'.join(parts)} is no setting of feeding"
    if not close or close[0] == name:
        return says
    return f"{says}; did you mean {close[0].upper() if parts[-1].isupper() else close[0]}?"


def _at(place: str, text: str) -> str:
    return f"{place}: {text}" if place else text


def _place(path: str | Path | None, parts: tuple[str, ...]) -> str:
    """``file:line`` of a key: the first line with it, from its section's on."""
    if path is None:
        return ""
    try:
        lines = Path(path).read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return str(path)
    number = 0
    for part in parts:
        key = re.escape(part)
        written = re.compile(rf"(^|[\s\"'\[{{(,.-]){key}[\"'\]]?\s*[:=]|^\s*\[[^\]]*\b{key}\b[^\]]*\]")
        found = (n for n in range(number, len(lines)) if written.search(lines[n].partition("#")[0]))
        line = next(found, None)
        if line is None:
            return str(path)
        number = line
    return f"{path}:{number + 1}"


def _contradictions(keys: Sequence[Key]) -> list[str]:
    """Keys for the same argument of the same loader with another value than one before."""
    problems = []
    seen: dict[tuple[str, str | None], Key] = {}
    for key in keys:
        before = seen.setdefault((key.setting.argument, key.split), key)
        if before.value != key.value:
            what = f"{key.name}: {key.written!r} contradicts {before.name}: {before.written!r}"
            problems.append(_at(key.place, what))
    return problems


def _assembled(keys: Sequence[Key]) -> FeedConfig:
    given = {(key.setting.argument, key.split): key.value for key in keys}
    notes: list[str] = []
    wants_cache = given.get(("cache", None), ("max_bytes", None) in given)
    cache = {name: given[name, None] for name in sorted(CACHE - {"cache"}) if (name, None) in given}
    return FeedConfig(
        train=_loader(TRAIN, given, notes),
        val=_loader(VAL, given, notes),
        cache={"max_bytes": "auto", **cache} if wants_cache else None,
        accumulation_steps=given.get((ACCUMULATION, None), 1),
        keys=tuple(keys),
        notes=tuple(notes),
    )


def _loader(split: str, given: Mapping[tuple[str, str | None], Any], notes: list[str]) -> dict[str, Any]:
    """One loader's arguments: what is for it comes before what is for both."""
    arguments: dict[str, Any] = {}
    for name in LOADER:
        if (name, split) in given:
            arguments[name] = given[name, split]
        elif (name, None) in given and (split == TRAIN or name not in _TRAIN_ONLY):
            arguments[name] = given[name, None]
    if arguments.get("num_workers") == 0:  # not given: it may be an argument of the script
        for name in _NEED_WORKERS:
            if arguments.pop(name, None):
                notes.append(f"{split}: {name} means nothing without workers: left out")
    return arguments
