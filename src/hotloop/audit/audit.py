"""Run every static rule over files and configuration: ``audit`` is the whole of it in one function."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hotloop.audit import configs, files
from hotloop.audit.configs import ConfigFile
from hotloop.audit.files import Skipped
from hotloop.audit.module import Module
from hotloop.audit.patterns import finding
from hotloop.audit.program import RELEVANT, Machine, Program
from hotloop.audit.rules import RULES
from hotloop.findings import SEVERITIES, Finding
from hotloop.source.code import parsed

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

    ``advance`` is given the share done, and what is done.
    """
    skipped: list[Skipped] = []
    modules: list[Module] = []
    texts: list[str] = []
    config_files: list[ConfigFile] = []
    for config_path in config_paths:
        config = configs.read(config_path)
        (skipped if isinstance(config, Skipped) else config_files).append(config)  # type: ignore[arg-type]
    given = {os.path.realpath(path) for path in config_paths}
    found = [one for one in files.find(paths) if os.path.realpath(one[0]) not in given]
    for number, (path, name, dotted) in enumerate(found):
        advance(_READING * number / len(found), name)
        text = files.read(path, name)
        if isinstance(text, Skipped):
            skipped.append(text)
        elif parsed(text.text) is None:
            skipped.append(Skipped(file=name, reason="not Python 3 source, or nested too deeply"))
        else:
            texts.append(text.text)
            if RELEVANT.search(text.text):
                modules.append(Module(text, name, dotted))
    program = Program(modules, texts, config_files, machine)
    hits: list[Finding] = []
    for number, (rule_id, rule) in enumerate(RULES.items()):
        advance(_READING + (1 - _READING) * number / len(RULES), rule_id)
        hits += [finding(rule_id, hit) for hit in rule(program)]
    lines = {module.name: module.text.text.splitlines() for module in modules}
    lines |= {config.name: config.lines for config in config_files}
    left = [one for one in hits if not _is_ignored(one, lines)]
    return Audit(
        findings=sorted(left, key=_order),
        skipped=skipped,
        num_files=len(texts),
        num_lines=sum(text.count("\n") + 1 for text in texts),
        num_ignored=len(hits) - len(left),
        num_rules=len(RULES),
        lines=lines,
    )


def _order(finding: Finding) -> tuple[int, str, int, str]:
    where = finding.where
    file, line = (where.file, where.line) if where else ("", 0)
    return SEVERITIES.index(finding.severity), file, line, finding.id


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
