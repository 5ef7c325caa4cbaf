"""Where a configured value stands in a YAML, JSON, TOML or Python file, as a span of its text."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from hotloop import foreign
from hotloop.fix.scene import Cannot
from hotloop.source.text import Edit, Text, edited

Keys = tuple[str, ...]
Leaf = tuple[Keys, Any]

_SYNTAX: Final = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml"}
#: Words of one kind, so that a switch is flipped in the words it was written in.
_SWITCHES: Final = (("true", "false"), ("True", "False"), ("yes", "no"), ("on", "off"), ("1", "0"))
#: Behind the last word of a key.
_VALUE: Final = r"""["']?[ \t]*[=:][ \t]*("[^"\n]*"|'[^'\n]*'|[^\s,#\]}]+)"""
#: A value that stands in no file, in each syntax.
_OTHER: Final = '"hotloop was here"'


def change(text: Text, key: str, value: Any) -> Edit:
    """The edit that gives a dotted key another value, and changes nothing else. Raises Cannot."""
    syntax, path = _SYNTAX.get(text.path.suffix.lower(), "yaml"), tuple(key.split("."))
    place = f"{key} in {text.path.name}"
    if value is None and syntax == "toml":
        raise Cannot(f"{place} would have to go: TOML has no null", str(text.path))
    try:
        before = _leaves(text.text, syntax)
    except (ValueError, RecursionError) as error:
        raise Cannot(f"{place}: {str(error).splitlines()[0]}", str(text.path)) from None
    spans = [found.span(1) for found in re.finditer(re.escape(path[-1]) + _VALUE, text.text)]
    changed = {span: _changed_by(span, text.text, before, syntax) for span in spans}
    found = [span for span, paths in changed.items() if paths == [path]]
    if len(found) != 1:
        others = [one for paths in changed.values() if path in paths for one in paths if one != path]
        why = f"{'.'.join(others[0])} would change with it" if others else "it is not written plainly"
        raise Cannot(f"{place}: {why}", str(text.path))
    start, end = found[0]
    return Edit(start=start, end=end, new=spelled(text.text[start:end], value, none="null"))


def _changed_by(span: tuple[int, int], text: str, before: list[Leaf], syntax: str) -> list[Keys]:
    """The keys whose values are others where other words stand in a span; none where it is no value."""
    try:
        after = _leaves(edited(text, [Edit(start=span[0], end=span[1], new=_OTHER)]), syntax)
    except (ValueError, RecursionError):
        return []
    return [one for (one, old), (_, new) in zip(before, after, strict=False) if old != new]


def spelled(old: str, value: Any, none: str = "None") -> str:
    """A value as the old one was written: its quotes, its words for true and false."""
    quote = old[0] if old[:1] in ("'", '"') and old[-1:] == old[:1] else ""
    bare = old.strip("'\"")
    if isinstance(value, bool):
        for on, off in _SWITCHES:
            if bare in (on, off):
                return quote + (on if value else off) + quote
        return str(value) if none == "None" else str(value).lower()
    return none if value is None else f"{quote}{value}{quote}"


def paths(text: Text) -> list[Keys]:
    """The keys that lead to each value of a file; nothing of one that cannot be read."""
    try:
        return [path for path, _ in _leaves(text.text, _SYNTAX.get(text.path.suffix.lower(), "yaml"))]
    except (ValueError, RecursionError):
        return []


def _leaves(text: str, syntax: str) -> list[Leaf]:
    """Every value of a file with its keys, in order."""
    if syntax == "yaml":
        return list(_walk(foreign.yaml_value(text, _Loader)))
    return list(_walk(tomllib.loads(text) if syntax == "toml" else json.loads(text)))


class _Loader(yaml.SafeLoader):
    """Reads a tag of the user's own as its name."""


_Loader.add_multi_constructor("!", lambda loader, name, node: name)


def _walk(node: Any, path: Keys = ()) -> Iterator[Leaf]:
    if not isinstance(node, dict | list):
        yield path, node
        return
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield from _walk(value, (*path, str(key)))


def in_command(text: Text, option: str, raw: str) -> tuple[int, int]:
    """Where a script of shell commands gives an option this value. Raises Cannot."""
    name = re.escape(option)
    given = re.compile(rf"""(?<![\w-]){name}(?:=|[ \t]*\\\r?\n[ \t]*|[ \t]+)(["']?)([^\s"';|&\\]+)\1""")
    found = [m for m in given.finditer(text.text) if "#" not in text.text[: m.start()].rpartition("\n")[2]]
    if len(found) == 1 and found[0].group(2) == raw:
        return found[0].span(2)
    raise Cannot(f"{option} {raw} is not written plainly in {text.path.name}", str(text.path))


def scripts(command: tuple[str, ...], cwd: Path) -> Iterator[Path]:
    """Shell scripts among the words of a command."""
    for word in command:
        path = cwd / word
        if path.suffix in (".sh", ".bash", ".slurm", ".sbatch") and path.is_file():
            yield path
