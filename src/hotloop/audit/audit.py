"""Run every static rule over files and configuration: ``audit`` is the whole of it in one function."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hotloop.audit import configs, source
from hotloop.audit.configs import ConfigFile
from hotloop.audit.discovery import rules
from hotloop.audit.module import Module
from hotloop.audit.source import Skipped
from hotloop.audit.tree import RELEVANT, Machine, Tree
from hotloop.findings import Finding, Severity

SEVERITIES: Final[tuple[Severity, ...]] = ("high", "medium", "low", "info")
#: About the share of the time that reading and parsing takes.
_READING: Final = 0.6
_IGNORE: Final = re.compile(r"#\s*hotloop:\s*ignore(?:\[([^\]]*)\])?", re.I)


@dataclass(frozen=True, kw_only=True)
class Audit:
    """What an audit found. ``lines`` maps a shown file name to its source lines."""

    findings: list[Finding]
    skipped: list[Skipped]
    num_files: int
    num_lines: int
    num_ignored: int
    num_rules: int
    lines: dict[str, list[str]] = field(repr=False)


def audit(
    paths: Sequence[Path],
    config_paths: Sequence[Path] = (),
    machine: Machine | None = None,
    advance: Callable[[float, str], None] = lambda share, words: None,
) -> Audit:
    """Read everything, run every rule, leave out what the source says to ignore.

    ``advance`` is told the share done, and what is done.
    """
    skipped: list[Skipped] = []
    modules: list[Module] = []
    texts: list[str] = []
    config_files: list[ConfigFile] = []
    for config_path in config_paths:
        config = configs.read(config_path)
        (skipped if isinstance(config, Skipped) else config_files).append(config)  # type: ignore[arg-type]
    given = {path.resolve() for path in config_paths}
    files = list(source.find(paths))
    for number, (path, name, dotted) in enumerate(files):
        advance(_READING * number / len(files), name)
        if path.resolve() in given:
            continue
        parsed = source.read(path, name, dotted)
        if isinstance(parsed, Skipped):
            skipped.append(parsed)
            continue
        texts.append(parsed.text)
        if RELEVANT.search(parsed.text):
            modules.append(Module(parsed))
    tree = Tree(modules, texts, config_files, machine)
    found: list[Finding] = []
    for number, rule in enumerate(rules()):
        advance(_READING + (1 - _READING) * number / len(rules()), rule.id)
        found += rule.check(tree)
    lines = {module.name: module.lines for module in modules} | {c.name: c.lines for c in config_files}
    kept = [finding for finding in found if not _is_ignored(finding, lines)]
    return Audit(
        findings=sorted(kept, key=_order),
        skipped=skipped,
        num_files=len(texts),
        num_lines=sum(text.count("\n") + 1 for text in texts),
        num_ignored=len(found) - len(kept),
        num_rules=len(rules()),
        lines=lines,
    )


def _order(finding: Finding) -> tuple[int, str, int, str]:
    where = finding.where
    return (
        SEVERITIES.index(finding.severity),
        where.file if where else "",
        where.line if where else 0,
        finding.id,
    )


def _is_ignored(finding: Finding, lines: dict[str, list[str]]) -> bool:
    where = finding.where
    if where is None:
        return False
    text = lines.get(where.file, [])
    numbers = {where.line, int(finding.data.get("end_line", where.line))}
    if 1 < where.line <= len(text) and text[where.line - 2].lstrip().startswith("#"):
        numbers.add(where.line - 1)
    return any(_ignores(text[n - 1], finding.id) for n in numbers if 0 < n <= len(text))


def _ignores(line: str, rule: str) -> bool:
    match = _IGNORE.search(line)
    if match is None:
        return False
    names = [name.strip() for name in (match[1] or "").split(",") if name.strip()]
    return not names or rule in names or rule.rpartition("/")[2] in names
