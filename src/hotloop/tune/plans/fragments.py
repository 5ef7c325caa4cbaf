"""A plan in the user's own words: the keys of the configuration read, else the DataLoader's arguments."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from hotloop.diagnose.costs import waited_for
from hotloop.measure.settings import plain_number
from hotloop.measure.steps import Configured, LoaderUse, Setting, Steps
from hotloop.remedy.catalogue import Applied
from hotloop.source.written import refused_beside
from hotloop.torch_facts import OF_WORKERS

_CODE: Final = "code"
#: Kinds of configuration that a plan can be spelled in.
_KINDS: Final = frozenset(["yaml", "json", "toml", "python", "hydra", "argparse"])
#: A loader's own.
_OF_LOADER: Final = ("num_workers", "prefetch_factor", "persistent_workers", "pin_memory", "batch_size")
#: A configured number of these is of all ranks together where it is that many times the one in effect.
_DIVIDED: Final = ("num_workers", "batch_size")


@dataclass(frozen=True, kw_only=True)
class Fragment:
    """Text to put into one place. ``format``: yaml, json, toml, python, hydra, argparse, code or words."""

    where: str
    format: str
    text: str


def fragments(settings: Mapping[str, Any], remedies: Iterable[Applied], steps: Steps) -> tuple[Fragment, ...]:
    """One fragment per place, in the order the settings are given."""
    waited = waited_for(steps)
    fed = waited or steps.train_loader()
    # What is configured is known of the driving loader; a plan is for the one that is waited for.
    known = {one.name: one for one in steps.settings if waited is None or one.name not in _OF_LOADER}
    places: dict[tuple[str, str], dict[str, Any]] = {}
    written: dict[tuple[str, str], set[str]] = {}  # names of arguments: a key may spell one otherwise
    words = []
    for name, value in settings.items():
        kind, where, key, spelled = _placed(known.get(name), name, value, fed)
        also = any("num_workers" in names for (other, _), names in written.items() if other == kind)
        if value and name in OF_WORKERS and fed is not None and _refused(name, kind, fed, steps, also=also):
            why, write = refused_beside(name, value)
            words.append(Fragment(where=where, format="words", text=f"{write}: {why}"))
            continue
        places.setdefault((kind, where), {})[key] = spelled
        written.setdefault((kind, where), set()).add(name)
    for one in remedies:
        switch = next((known[key] for key in one.remedy.config_keys if key in known), None)
        if switch is not None and (source := _source(switch)) is not None:
            value = True if isinstance(source.value, bool) else one.remedy.id.rpartition("-")[2]
            places.setdefault((source.source, _file(source)), {})[_key(source)] = value
        else:
            words.append(Fragment(where="", format="words", text=one.remedy.said(one.value)))
    return (
        *(
            Fragment(where=where, format=kind, text=_written(kind, keys))
            for (kind, where), keys in places.items()
        ),
        *words,
    )


def _placed(
    setting: Setting | None, name: str, value: Any, loader: LoaderUse | None
) -> tuple[str, str, str, Any]:
    """(format, place, key, value as that place means it)."""
    source = _source(setting) if setting is not None else None
    if setting is None or source is None:
        where = str(loader.where) if loader is not None and loader.where is not None else ""
        return _CODE, where, name, value
    said, effect = plain_number(source.value), plain_number(setting.in_effect)
    if name in _DIVIDED and isinstance(value, int) and said and effect and said % effect == 0:
        value = value * int(said / effect)
    return source.source, _file(source), _key(source), value


def _refused(name: str, kind: str, fed: LoaderUse, steps: Steps, *, also: bool) -> bool:
    """Whether what sets an argument for a loader sets it for one without workers, as far as is
    known: the same call in code, or the same value of a configuration. ``also``: the number of workers is
    set there with it, for those that had the same.
    """
    return any(
        not other.settings.get("num_workers")
        and not (also and not fed.settings.get("num_workers"))
        and (other.where == fed.where if kind == _CODE else name in other.settings.get("given", ()))
        for other in steps.loaders
        if other is not fed
    )


def _source(setting: Setting) -> Configured | None:
    """The configured value that counts and is in effect; None where the code decides."""
    if setting.differs:
        return None
    honoured = [one for one in setting.sources if not one.differs and one.source in _KINDS]
    typed = [one for one in honoured if one.source != "argparse" or not one.default]
    return next(iter([*typed, *honoured]), None)


def _file(source: Configured) -> str:
    if source.source in ("argparse", "hydra"):
        return "command line"
    return source.where.rpartition(":")[0] or source.where


def _key(source: Configured) -> str:
    return source.where if source.source == "argparse" and source.where.startswith("-") else source.key


def _written(kind: str, keys: Mapping[str, Any]) -> str:
    """Names and values as a place has them; in a file a nested key stands with its dots."""
    match kind:
        case "code":
            return f"DataLoader(..., {', '.join(f'{name}={value!r}' for name, value in keys.items())})"
        case "argparse":
            given = {key: value for key, value in keys.items() if value is not None and value is not False}
            return " ".join(_option(key, value) for key, value in given.items())
        case "hydra":
            return " ".join(f"{key}={json.dumps(value)}" for key, value in keys.items())
        case "python":
            return "\n".join(f"{key} = {value!r}" for key, value in keys.items())
    equals = " = " if kind == "toml" else ": "
    return "\n".join(f"{key}{equals}{json.dumps(value)}" for key, value in keys.items())


def _option(key: str, value: Any) -> str:
    option = key if key.startswith("-") else "--" + key.replace("_", "-")
    return option if value is True else f"{option} {value}"
