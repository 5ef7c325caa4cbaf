"""``config/dead-key``: an option or configuration key that no code reads."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from hotloop.audit.configs import ConfigFile, Entry
from hotloop.audit.hit import at_entry, hit
from hotloop.audit.kept import kept
from hotloop.audit.rules.config.ignored_value import LOADER_SETTINGS, is_read
from hotloop.audit.tree import Tree
from hotloop.findings import Finding
from hotloop.probe.config import INTERVAL, meaning_of

ID = "config/dead-key"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak of settings whose name no source of the tree mentions again, or that are only put away.

    What their names mean must be known, or the section they stand in be read key by key.
    """
    for option in tree.options:
        if _meaning(option.name) and not is_read(tree, option.name):
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
            meaning = _meaning(entry.name)
            is_ours = _consumer_is_here(tree, meaning) if meaning else _is_read_by_key(tree, config, entry)
            if is_ours and _is_dead(tree, config, entry):
                yield at_entry(
                    ID,
                    config,
                    entry,
                    "medium" if meaning else "low",
                    f"{entry.key} = {entry.value!r} is read by no code: no audited file asks for it.",
                    "Pass it to where it belongs, or remove it.",
                )
        yield from _put_away(tree, config)


def _meaning(name: str) -> str | None:
    """What a name means; nothing for how often something is due: libraries read that by themselves."""
    meaning = meaning_of(name)
    return None if meaning == INTERVAL else meaning


def _put_away(tree: Tree, config: ConfigFile) -> Iterator[Finding]:
    """Sections and keys that are taken from the configuration and kept for nothing."""
    firsts = {part: entry for entry in reversed(config.entries) for part in entry.key.split(".")}
    for name, entry in firsts.items():
        if (place := kept(tree, name)) is not None:
            owner = place.module.class_of(place.assign)
            yield at_entry(
                ID,
                config,
                entry,
                "medium" if name != entry.name or _meaning(name) else "low",
                f"{place.module.name}:{place.assign.lineno} keeps {name} in self.{place.attribute}, which "
                f"nothing reads: with {owner.name if owner else 'it'} the setting has no effect.",
                "Apply it where it is read, or remove it.",
            )


def _is_read_by_key(tree: Tree, config: ConfigFile, entry: Entry) -> bool:
    """Whether the audited files ask for single keys of the entry's section, and never for the whole of it."""
    section = entry.key.rpartition(".")[0]
    last = re.escape(section.rpartition(".")[2])
    if not section:
        return False
    whole = rf"""["']{last}["'](?!\]\[)|\.{last}\b(?!\.(?!{_WHOLE})\w|\[)|["'.]{last}\.(?:{_WHOLE})\b"""
    if any(re.search(whole, text) for text in tree.code):
        return False
    others = [one.name for one in config.entries if one.key == f"{section}.{one.name}" and one is not entry]
    names = "|".join(map(re.escape, others))
    single = rf"""\b{last}(?:\.|["']\]\[["'])(?:{names})\b"""
    return bool(others) and any(re.search(single, text) for text in tree.code)


#: What takes a mapping as a whole.
_WHOLE: Final = "items|keys|values|get|pop|copy|update|dict|to_dict|as_dict|_asdict|model_dump"
#: What a setting is for -> the calls that show that this tree does that itself, no framework around it.
_CONSUMERS: Final = {"lr": ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad"), "amp": ("autocast",)}


def _consumer_is_here(tree: Tree, meaning: str) -> bool:
    """Whether what a setting is for stands in the audited files; else code outside may read it."""
    if meaning in LOADER_SETTINGS:
        return bool(tree.loaders)
    calls = _CONSUMERS.get(meaning)
    return any(m.calls.get(c) for m in tree.modules for c in calls) if calls else bool(tree.regions)


def _is_dead(tree: Tree, config: ConfigFile, entry: Entry) -> bool:
    """Whether no source reads the key, and none of the mappings it stands in is handed on whole."""
    if config.name.endswith(".py") and "." not in entry.key and tree.mentions(entry.name):
        return False  # executed into the globals of a script, which reads plain names
    interpolated = any(f"{entry.name}}}" in line for config in tree.configs for line in config.lines)
    if interpolated or is_read(tree, entry.name):
        return False
    above = [re.escape(part) for part in entry.key.split(".")[:-1]]
    spread = [rf"\*\*[\w.]*\b{part}\b" for part in above] + [rf"\*\*[\w.]+\[.{part}.\]" for part in above]
    spread += [rf"\(\s*[\w.]*(\.|\[.){part}\b" for part in above]
    whole = (  # **config, but not **config["model"] or **config.model: those are sections
        r"\*\*\s*(cfg|config|conf|opt|opts|args|hparams|params|settings)\b"
        rf"(?!\[|\.(?!(?:{_WHOLE})\b)\w)"
    )
    return not any(re.search(pattern, text) for pattern in [*spread, whole] for text in tree.texts)
