"""Where a key stands in a configuration file: a second look at the text, without a parser of its own."""

from __future__ import annotations

import re
from typing import Any, Final


def line_of(text: str, key: str, syntax: str) -> int | None:
    """The line (from 1) of a dotted key in ``yaml``, ``json``, ``toml`` or ``python`` text; None: unsure."""
    parts = key.split(".")
    if syntax == "yaml":
        found = _yaml_line(text, parts)
    elif syntax == "toml":
        found = _toml_line(text, parts)
    elif syntax == "json":
        found = _json_line(text, parts)
    elif syntax == "python":
        found = _python_line(text, parts)
    else:
        found = None
    return found if found is not None else _only_line(text, parts[-1])


def _yaml_line(text: str, parts: list[str]) -> int | None:
    """Follow the path down by indentation; `parent: {key: 1}` on one line too."""
    depth, indents = 0, [-1]
    for number, line in enumerate(text.splitlines(), 1):
        match = re.match(r"""(\s*)(?:- )?(["']?)([^\s"':#][^"':#]*)\2\s*:(?:\s|$)""", line)
        if match is None:
            continue
        indent = len(match.group(1))
        while depth and indent <= indents[depth]:
            indents.pop()
            depth -= 1
        if depth < len(parts) and match.group(3).strip() == parts[depth] and (depth == 0) == (indent == 0):
            if depth == len(parts) - 1:
                return number
            if depth == len(parts) - 2 and re.search(
                rf"[{{,]\s*[\"']?{re.escape(parts[-1])}[\"']?\s*:", line
            ):
                return number
            indents.append(indent)
            depth += 1
    return None


def _toml_line(text: str, parts: list[str]) -> int | None:
    section: list[str] = []
    for number, line in enumerate(text.splitlines(), 1):
        header = re.match(r"\s*\[+([^\]]+)\]", line)
        if header:
            section = [part.strip().strip("\"'") for part in header.group(1).split(".")]
            continue
        entry = re.match(r"\s*([\w\-.\"']+)\s*=", line)
        if entry and section + [part.strip("\"'") for part in entry.group(1).split(".")] == parts:
            return number
    return None


_JSON_TOKEN: Final = r'"(?:\\.|[^"\\])*"|[{}\[\]:,\n]'


def _json_line(text: str, parts: list[str]) -> int | None:
    path: list[str] = []
    line, last = 1, ""
    for token in re.findall(_JSON_TOKEN, text):
        if token == "\n":
            line += 1
        elif token == ":":
            if path:
                path[-1] = last
            if path == parts:
                return line
        elif token in "{[":
            path.append("")
        elif token in "}]":
            path = path[:-1]
        elif token != ",":
            last = token[1:-1]
    return None


def _python_line(text: str, parts: list[str]) -> int | None:
    """Follow assignments, class bodies, dictionaries and keyword arguments."""
    import ast

    try:
        found: ast.AST | None = ast.parse(text)
    except (SyntaxError, ValueError):
        return None
    for part in parts:
        found = _python_entry(ast, found, part)
    return getattr(found, "lineno", None)


def _python_entry(ast: Any, node: Any, name: str) -> Any:
    """What defines ``name`` directly below a node, the last one if there are several."""
    if isinstance(node, (ast.Assign, ast.AnnAssign, ast.keyword)):
        node = node.value
    found = None
    if isinstance(node, (ast.Module, ast.ClassDef)):
        for child in node.body:
            targets = child.targets if isinstance(child, ast.Assign) else [getattr(child, "target", None)]
            assigned = any(isinstance(target, ast.Name) and target.id == name for target in targets)
            if assigned or (isinstance(child, ast.ClassDef) and child.name == name):
                found = child
    elif isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == name:
                found = ast.keyword(arg=name, value=value, lineno=key.lineno)
    elif isinstance(node, ast.Call):
        found = next((keyword for keyword in node.keywords if keyword.arg == name), None)
    return found


def _only_line(text: str, name: str) -> int | None:
    """The line of ``name: ...`` or ``name = ...`` if there is exactly one."""
    pattern = re.compile(rf"""(?<![\w.]){re.escape(name)}["']?\s*[:=](?!=)""")
    lines = [
        number for number, line in enumerate(text.splitlines(), 1) if pattern.search(line.split("#", 1)[0])
    ]
    return lines[0] if len(lines) == 1 else None
