"""Configuration files, read without running anything: YAML, JSON, TOML, and mmcv-style Python literals."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from hotloop.audit.files import MAX_BYTES, Skipped, shown
from hotloop.errors import UsageError
from hotloop.source.code import parsed

_TOML_OR_JSON_KEY: Final = '"?{}"?\\s*[=:]'


@dataclass(frozen=True, kw_only=True)
class Entry:
    """One leaf: ``key`` is its path with dots, ``name`` the last part, ``line`` counts from 1."""

    key: str
    name: str
    value: Any
    line: int


@dataclass(frozen=True, kw_only=True)
class ConfigFile:
    """One configuration file."""

    name: str
    lines: list[str]
    entries: list[Entry]
    base: ConfigFile | None = None  # the one configuration it says it is made from


def read(path: Path, *, with_base: bool = True) -> ConfigFile | Skipped:
    """Read one file by its ending. A missing file or an unknown ending is a UsageError."""
    if not path.is_file():
        raise UsageError(f"{path} is not a file", hint="--config takes YAML, JSON, TOML or Python files")
    name = shown(path)
    reader = _READERS.get(path.suffix.lower())
    if reader is None:
        raise UsageError(
            f"{path}: no configuration format is known by this ending",
            hint="use .yaml, .yml, .json, .toml or .py",
        )
    try:
        if path.stat().st_size > MAX_BYTES:
            return Skipped(file=name, reason=f"larger than {MAX_BYTES // 2**20} MiB")
        text = path.read_text(encoding="utf-8-sig")
        entries = list(reader(text))
        base = _base(path, text) if with_base else None
        return ConfigFile(name=name, lines=text.splitlines(), entries=entries, base=base)
    except UnicodeDecodeError:
        return Skipped(file=name, reason="not UTF-8 text")
    except (SyntaxError, ValueError, RecursionError, yaml.YAMLError) as error:
        why = " ".join(str(error).split())
        return Skipped(file=name, reason=f"not valid {path.suffix.lower()}: {why}")
    except OSError as error:
        return Skipped(file=name, reason=f"cannot be read: {error.strerror}")


def _base(path: Path, text: str) -> ConfigFile | None:
    """What ``_base_ = [...]`` (mmcv), ``_BASE_:`` (detectron2) or ``base:`` names, where it is one file that
    is there.
    """
    named = re.findall(r"""^(?:_base_|_BASE_|base|BASE)\s*[:=]\s*(.+)$""", text, re.M)
    files = re.findall(r"""[^\s"'\[\](),]+\.(?:py|ya?ml|json|toml)""", named[0]) if len(named) == 1 else []
    there = [path.parent / file for file in files if (path.parent / file).is_file()]
    found = read(there[0], with_base=False) if len(there) == 1 else None
    return found if isinstance(found, ConfigFile) else None


def _yaml(text: str) -> Iterator[Entry]:
    for document in yaml.compose_all(text, Loader=yaml.SafeLoader):
        yield from _composed(document, (), set())


def _composed(node: Any, path: tuple[str, ...], seen: set[int]) -> Iterator[Entry]:
    """The entries below a node; what an alias names is looked at once."""
    if id(node) in seen:
        return
    seen.add(id(node))
    if isinstance(node, yaml.MappingNode):
        for key, item in node.value:
            if isinstance(key, yaml.ScalarNode):
                yield from _composed(item, (*path, key.value), seen)
    elif isinstance(node, yaml.SequenceNode) and any(isinstance(o, yaml.MappingNode) for o in node.value):
        for item in node.value:
            if isinstance(item, yaml.MappingNode):
                yield from _composed(item, path, seen)
    elif path and node.value and getattr(node, "style", "") not in ("|", ">"):
        value = _scalar(node.value if isinstance(node.value, str) else f"{len(node.value)} values")
        yield Entry(key=".".join(path), name=path[-1], value=value, line=node.start_mark.line + 1)


def _scalar(text: str) -> Any:
    lowered = text.lower()
    if lowered in ("true", "yes", "on"):
        return True
    if lowered in ("false", "no", "off"):
        return False
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _json(text: str) -> Iterator[Entry]:
    yield from _nested(json.loads(text), text)


def _toml(text: str) -> Iterator[Entry]:
    yield from _nested(tomllib.loads(text), text)


def _nested(value: Any, text: str, path: tuple[str, ...] = ()) -> Iterator[Entry]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _nested(item, text, (*path, str(key)))
    elif path and not isinstance(value, list):
        found = re.search(_TOML_OR_JSON_KEY.format(re.escape(path[-1])), text)
        line = text.count("\n", 0, found.start()) + 1 if found else 1
        yield Entry(key=".".join(path), name=path[-1], value=value, line=line)


def _python(text: str) -> Iterator[Entry]:
    """``name = literal`` and ``name = dict(key=…)`` at the top level, as mmcv and mmengine write them."""
    tree = parsed(text)
    if tree is None:
        raise ValueError("it does not parse")
    for statement in tree.body:
        if isinstance(statement, ast.Assign) and isinstance(statement.targets[0], ast.Name):
            yield from _literal(statement.value, (statement.targets[0].id,), statement.lineno)


def _literal(node: ast.expr, path: tuple[str, ...], line: int) -> Iterator[Entry]:
    if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "dict":
        for keyword in node.keywords:
            if keyword.arg is not None:
                yield from _literal(keyword.value, (*path, keyword.arg), keyword.value.lineno)
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant):
                yield from _literal(value, (*path, str(key.value)), value.lineno)
    elif isinstance(node, ast.Constant):
        yield Entry(key=".".join(path), name=path[-1], value=node.value, line=line)


_READERS: Final = {".yaml": _yaml, ".yml": _yaml, ".json": _json, ".toml": _toml, ".py": _python}
