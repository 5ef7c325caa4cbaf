"""Puts the remedies of ``HOTLOOP_APPLY`` in force: a JSON list of ``[id, value, "module:Class"]``."""

from __future__ import annotations

import importlib
from typing import Any

from hotloop.probe.probe import Probe
from hotloop.remedy.live.form import Form

#: Forms that take an iterator's place are installed first, so that they see what the others changed.
_FIRST = ("cache-samples", "ring-loader")


def install(probe: Probe, wanted: list[list[Any]]) -> list[Form]:
    """Install every form; one that fails is noted and left out."""
    wanted = sorted(wanted, key=lambda entry: _FIRST.index(entry[0]) if entry[0] in _FIRST else len(_FIRST))
    forms = [form for entry in wanted if (form := make(probe, *entry)) is not None]
    for form in forms:
        form.guard(form.install)()
        probe.on_exit(f"end of {form.name}", form.exits)
    return forms


def make(probe: Probe, remedy_id: str, value: Any, live: str) -> Form | None:
    """The live form of a remedy, not installed yet."""

    def build() -> Form:
        module, _, name = live.partition(":")
        form: Form = getattr(importlib.import_module(module), name)(probe, value)
        form.id = remedy_id
        return form

    made: Form | None = probe.hooks.guard(f"remedy {remedy_id}", build)()
    if made is None:
        probe.note("remedy", id=remedy_id, value=value, status="could not be made", count=0)
    return made
