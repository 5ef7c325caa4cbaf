"""Finds every remedy: a new one is an entry in a table of ``fixes/``, whose name is its id."""

from __future__ import annotations

import difflib
import importlib
import json
import pkgutil
import textwrap
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

from hotloop.errors import UsageError
from hotloop.findings import ENTRIES
from hotloop.remedy import fixes
from hotloop.remedy.remedy import Remedy


@dataclass(frozen=True, kw_only=True)
class Applied:
    """A remedy with the value it is to have (None: its live form chooses, or it takes none)."""

    remedy: Remedy
    value: Any

    @property
    def is_live(self) -> bool:
        """Whether its live form is what puts it in force."""
        return self.remedy.has_live(self.value)

    def __str__(self) -> str:
        return self.remedy.spell(self.value)


@lru_cache(maxsize=1)
def remedies() -> tuple[Remedy, ...]:
    """Every remedy, sorted by id."""
    names = sorted(module.name for module in pkgutil.iter_modules(fixes.__path__))
    modules = (importlib.import_module(f"{fixes.__name__}.{name}") for name in names)
    found = [
        replace(one, id=name.lower().replace("_", "-"))
        for module in modules
        for name, one in vars(module).items()
        if isinstance(one, Remedy)
    ]
    return tuple(sorted(found, key=lambda remedy: remedy.id))


def exclude_each_other(one: str, other: str) -> bool:
    """Whether only one of two remedies can be applied, by their ids."""
    both = {one, other}
    return any(remedy.id in both and both.intersection(remedy.excludes) for remedy in remedies())


def get(remedy_id: str) -> Remedy:
    """The remedy of this id. Raises UsageError that names the nearest ones, or those of a finding's id."""
    known = {remedy.id: remedy for remedy in remedies()}
    wanted = remedy_id.strip().replace("_", "-").lower()
    if wanted in known:
        return known[wanted]
    if finding := next((one for one in ENTRIES if wanted in (one, one.partition("/")[2])), None):
        named = " or ".join(one.id for one in answering(finding))
        hint = f"its remedies: {named}" if named else f"no remedy writes it: hotloop brief RUN {finding}"
        raise UsageError(f"{finding} is a finding, and no remedy", hint=hint)
    raise unknown("remedy", wanted, known)


def unknown(kind: str, wanted: str, known: Iterable[str]) -> UsageError:
    """The error for a name that is none of the known ones; it names the nearest, else all."""
    names = list(known)
    near = difflib.get_close_matches(wanted, names, n=3, cutoff=0.6)
    near += [name for name in names if wanted and (wanted in name or name in wanted) and name not in near]
    listed = textwrap.fill(", ".join(names), 74, initial_indent="there are: ", break_on_hyphens=False)
    hint = f"did you mean {' or '.join(near[:3])}?" if near else textwrap.indent(listed, "      ").lstrip()
    return UsageError(f"there is no {kind} {wanted!r}", hint=hint)


def parse(text: str) -> Applied:
    """What ``--apply num-workers=4`` asks for. Raises UsageError."""
    name, equals, value = text.partition("=")
    remedy = get(name)
    return Applied(remedy=remedy, value=remedy.value(value if equals else None))


def environment(applied: Iterable[Applied]) -> dict[str, str]:
    """The environment that puts remedies in force in every process of a command.

    Raises UsageError for one that has no live form, or that is asked for twice.
    """
    wanted: dict[str, Applied] = {}
    for one in applied:
        if one.remedy.id in wanted:
            raise UsageError(f"{one.remedy.id} is asked for twice", hint="give it once")
        require_live(one)
        wanted[one.remedy.id] = one
    entries = [[one.remedy.id, one.value, one.remedy.live] for one in wanted.values()]
    return {"HOTLOOP_APPLY": json.dumps(entries)} if entries else {}


def require_live(one: Applied) -> None:
    """Raises UsageError, with what to do by hand, where a remedy cannot be applied to a running script."""
    if not one.remedy.live:
        raise UsageError(
            f"{one.remedy.id} cannot be applied to a running script",
            hint=f"by hand: {one.remedy.said(one.value)}",
        )
    if not one.remedy.has_live(one.value) and one.remedy.parameter is not None:
        name = one.remedy.parameter.name
        raise UsageError(
            f"{one.remedy.id} needs its {name}",
            hint=f"write {one.remedy.id}={name.upper()}; {one.remedy.parameter.words}",
        )


def answering(finding_id: str) -> tuple[Remedy, ...]:
    """The remedies that would remove a finding."""
    return tuple(remedy for remedy in remedies() if finding_id in remedy.answers)
