"""Where a value is written: in code, nowhere yet, or in what was configured."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from typing import Any

from hotloop.fix.scene import Cannot, Scene
from hotloop.fix.sources import shown
from hotloop.measure.settings import same
from hotloop.record.recording import Note
from hotloop.source.code import Code


@dataclass(frozen=True)
class Literal:
    """The value stands in code."""

    code: Code
    node: ast.expr
    name: str = ""  # the name it is bound to, where it is


@dataclass(frozen=True)
class Absent:
    """The argument is not given: it is to be added to this call, under this name."""

    code: Code
    call: ast.Call
    name: str
    default: ast.expr | None = None  # what counts instead


@dataclass(frozen=True)
class Entry:
    """The value was configured, as this note says."""

    note: Note


Target = Literal | Absent | Entry


def only_note(scene: Scene, keys: tuple[str, ...], value: Any) -> Note | None:
    """The one configured value of these keys that is in effect."""
    key = ".".join(keys)
    found: dict[tuple[Any, ...], Note] = {}
    for note in scene.config:
        name = str(note.get("key", ""))
        fits = name == key or name.endswith("." + key) or name == keys[-1]
        if fits and (value is None or same(note.get("value"), value)):
            if note.get("option") and not str(note["option"]).startswith("-"):  # data.num_workers=4
                return note
            found[str(note.get("file")), name] = note
    exact = [note for note in found.values() if note.get("key") == key]
    kept = exact if len(exact) == 1 else list(found.values())
    return kept[0] if len(kept) == 1 else None


def cannot(code: Code, node: ast.AST, why: str) -> Cannot:
    """Why a value cannot be followed through an expression, which is shown."""
    text = shown(code.source(node))
    return Cannot(f"{why} ({text})" if text not in why else why, str(code.path), code.line(node))


def definition(scene: Scene, code: Code, node: ast.AST) -> tuple[Code, ast.AST | None]:
    """The function or class of the user's that a name means, and its file."""
    whole = code.qualified(node)
    if whole:
        before, _, name = whole.lstrip(".").rpartition(".")
        module = scene.module(before, code.path)
        if module is None:
            return code, None
        code = scene.code(module)
        found = code.global_names(name)
    else:
        found = code.bindings(node, node.id) if isinstance(node, ast.Name) else []
    return code, found[0].node if len(found) == 1 else None
