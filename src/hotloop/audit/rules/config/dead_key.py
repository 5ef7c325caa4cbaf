"""``config/dead-key``: an option or configuration key that no code reads."""

from __future__ import annotations

import re
from collections.abc import Iterator

from hotloop.audit.configs import ConfigFile, Entry
from hotloop.audit.hit import hit
from hotloop.audit.rules.config.ignored_value import is_read
from hotloop.audit.tree import Tree
from hotloop.findings import Finding, Place
from hotloop.probe.config import meaning_of

ID = "config/dead-key"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak of settings with a known meaning for speed, whose name no source of the tree mentions again."""
    for option in tree.options:
        if meaning_of(option.name) and not is_read(tree, option.name):
            yield hit(
                ID,
                option.module,
                option.call,
                "medium",
                f"The option {option.flag} is declared and read nowhere: giving it changes nothing.",
                "Use it, or remove it.",
            )
    for config in tree.configs:
        for entry in config.entries:
            if tree.texts and meaning_of(entry.name) and _is_dead(tree, entry):
                yield _finding(config, entry)


def _is_dead(tree: Tree, entry: Entry) -> bool:
    """Whether no source reads the key, and none of the mappings it stands in is handed on whole."""
    interpolated = any(f"{entry.name}}}" in line for config in tree.configs for line in config.lines)
    if interpolated or is_read(tree, entry.name):
        return False
    above = [re.escape(part) for part in entry.key.split(".")[:-1]]
    spread = [rf"\*\*[\w.]*\b{part}\b" for part in above] + [rf"\*\*[\w.]+\[.{part}.\]" for part in above]
    spread += [rf"\(\s*[\w.]*(\.|\[.){part}\b" for part in above]
    whole = r"\*\*\s*(cfg|config|conf|opt|opts|args|hparams|params|settings)\b"
    return not any(re.search(pattern, text) for pattern in [*spread, whole] for text in tree.texts)


def _finding(config: ConfigFile, entry: Entry) -> Finding:
    return Finding(
        id=ID,
        message=f"{entry.key} = {entry.value!r} is read by no code: no audited file asks for it.",
        advice="Pass it to where it belongs, or remove it.",
        evidence=(),
        severity="medium",
        where=Place(file=config.name, line=entry.line),
        data={"end_line": entry.line},
    )
