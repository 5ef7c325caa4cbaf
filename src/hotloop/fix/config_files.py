"""Where a configured value stands in a YAML, JSON, TOML or Python file, as a span of its text."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import yaml

from hotloop.fix.scene import Cannot
from hotloop.source.text import Edit, Text, edited

_SYNTAX: Final = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml"}
#: Words of one kind, so that a switch is flipped in the words it was written in.
_SWITCHES: Final = (("true", "false"), ("True", "False"), ("yes", "no"), ("on", "off"), ("1", "0"))
_TOML_LINE: Final = re.compile(
    r"""[ \t]*((?:[\w-]+|"[^"\n]*"|'[^'\n]*')(?:[ \t]*\.[ \t]*(?:[\w-]+|"[^"\n]*"))*)[ \t]*="""
)
_TOML_VALUE: Final = re.compile(r"""[ \t]*("[^"\n]*"|'[^'\n]*'|[^\s,#\]}]+)""")


def change(text: Text, key: str, value: Any) -> Edit:
    """The edit that gives a dotted key another value, and changes nothing else. Raises Cannot."""
    syntax = _SYNTAX.get(text.path.suffix.lower(), "yaml")
    parts = key.split(".")
    if value is None and syntax == "toml":
        raise Cannot(f"{key} in {text.path.name} would have to go: TOML has no null", str(text.path))
    try:
        start, end = _toml(text.text, parts) if syntax == "toml" else _yaml(text.text, parts, syntax)
        old = text.text[start:end]
        edit = Edit(start=start, end=end, new=spelled(old, value, none="null"))
        before, after = (_leaves(body, syntax) for body in (text.text, edited(text.text, [edit])))
    except (yaml.YAMLError, tomllib.TOMLDecodeError, ValueError) as error:
        raise Cannot(f"{key} in {text.path.name}: {_first_line(error)}", str(text.path)) from None
    if edit.new != old and sum(a != b for a, b in zip(before, after, strict=True)) != 1:
        raise Cannot(f"{key} in {text.path.name} cannot be changed alone", str(text.path), text.line(start))
    return edit


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


def _first_line(error: Exception) -> str:
    return str(error).splitlines()[0]


def _yaml(text: str, parts: list[str], syntax: str) -> tuple[int, int]:
    node = _composed(text, syntax)
    for part in parts:
        if not isinstance(node, yaml.MappingNode):
            raise ValueError("its path does not lead there")
        pairs = [(k, v) for k, v in node.value if getattr(k, "value", None) == part]
        if len(pairs) != 1:
            merged = any(getattr(k, "value", None) == "<<" for k, _ in node.value)
            raise ValueError(
                "it is merged in from another place" if merged else f"{part} stands there {len(pairs)} times"
            )
        name, node = pairs[0]
        if node.start_mark.index < name.end_mark.index:
            raise ValueError("it is an alias of a value used in several places")
    start, end = node.start_mark.index, node.end_mark.index
    if not isinstance(node, yaml.ScalarNode) or text[start : start + 1] in "&!|>":
        raise ValueError("it is no plain value")
    return start, end


def _composed(text: str, syntax: str) -> Any:
    # JSON is YAML but for tabs between its tokens.
    return yaml.compose(text.replace("\t", " ") if syntax == "json" else text, Loader=yaml.SafeLoader)


def _toml(text: str, parts: list[str]) -> tuple[int, int]:
    """Lines under their headers; ``{...}`` on one line too."""
    found, section, at = [], [], 0
    for line in text.splitlines(keepends=True):
        header = re.match(r"[ \t]*\[([^\[\]\n]+)\][ \t]*(#.*)?$", line)
        entry = _TOML_LINE.match(line)
        if line.lstrip().startswith("[["):
            section = ["[["]
        elif header:
            section = _dotted(header.group(1))
        elif entry:
            path = section + _dotted(entry.group(1))
            if path == parts:
                found.append((at, line, entry.end()))
            elif path == parts[: len(path)] and len(path) == len(parts) - 1:
                inner = re.compile(rf"[{{,][ \t]*[\"']?{re.escape(parts[-1])}[\"']?[ \t]*=").search(
                    line, entry.end()
                )
                if inner:
                    found.append((at, line, inner.end()))
        at += len(line)
    if len(found) != 1:
        raise ValueError(f"it stands there {len(found)} times")
    begin, line, behind = found[0]
    value = _TOML_VALUE.match(line, behind)
    if value is None:
        raise ValueError("it is no plain value")
    return begin + value.start(1), begin + value.end(1)


def _dotted(text: str) -> list[str]:
    return [part.strip().strip("\"'") for part in text.split(".")]


def paths(text: Text) -> list[tuple[str, ...]]:
    """The keys that lead to each value of a file; nothing of one that cannot be read."""
    try:
        return [path for path, _ in _leaves(text.text, _SYNTAX.get(text.path.suffix.lower(), "yaml"))]
    except (yaml.YAMLError, ValueError):
        return []


def _leaves(text: str, syntax: str) -> list[tuple[tuple[str, ...], Any]]:
    """Every value of a file with its keys, in order."""
    if syntax == "yaml":
        return list(_walk(yaml.load(text, _Loader)))
    return list(_walk(tomllib.loads(text) if syntax == "toml" else json.loads(text)))


class _Loader(yaml.SafeLoader):
    """Reads a tag of the user's own as its name."""


_Loader.add_multi_constructor("!", lambda loader, name, node: name)


def _walk(node: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not isinstance(node, dict | list):
        yield path, node
        return
    for key, value in node.items() if isinstance(node, dict) else enumerate(node):
        yield from _walk(value, (*path, str(key)))


def in_command(text: Text, option: str, raw: str) -> tuple[int, int]:
    """Where a script of shell commands gives an option this value. Raises Cannot."""
    name = re.escape(option)
    given = re.compile(rf"""(?<![\w-]){name}(?:=|[ \t]*\\\r?\n[ \t]*|[ \t]+)(["']?)([^\s"';|&\\]+)\1""")
    found = [m for m in given.finditer(text.text) if "#" not in _line_before(text.text, m.start())]
    if len(found) == 1 and found[0].group(2) == raw:
        return found[0].span(2)
    raise Cannot(f"{option} {raw} is not written plainly in {text.path.name}", str(text.path))


def _line_before(text: str, at: int) -> str:
    return text[text.rfind("\n", 0, at) + 1 : at]


def scripts(command: tuple[str, ...], cwd: Path) -> Iterator[Path]:
    """Shell scripts among the words of a command."""
    for word in command:
        path = cwd / word
        if path.suffix in (".sh", ".bash", ".slurm", ".sbatch") and path.is_file():
            yield path
