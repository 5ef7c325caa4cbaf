"""``config/dead-key``: an option or configuration key that no code reads."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from hotloop.audit.configs import ConfigFile, Entry
from hotloop.audit.hits import Hit, Rule, at, at_entry
from hotloop.audit.module import Module
from hotloop.audit.program import Program
from hotloop.source.nodes import argument, text_of
from hotloop.source.values import constant
from hotloop.torch_facts import INTERVAL, meaning_of

#: The arguments of a loader that are looked at.
LOADER_SETTINGS: Final = (
    "num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "batch_size"
)  # fmt: skip
#: What takes a mapping as a whole.
_WHOLE: Final = "items|keys|values|get|pop|copy|update|dict|to_dict|as_dict|_asdict|model_dump"
#: ``**config``, but not ``**config["model"]`` or ``**config.model``: those are sections.
_SPREAD: Final = (
    r"\*\*\s*(cfg|config|conf|opt|opts|args|hparams|params|settings)\b"
    rf"(?!\[|\.(?!(?:{_WHOLE})\b)\w)"
)
#: What a setting is for -> the calls that show that this tree does that itself, no framework around it.
_CONSUMERS: Final = {"lr": ("SGD", "Adam", "AdamW", "RMSprop", "Adagrad"), "amp": ("autocast",)}


@dataclass(frozen=True, kw_only=True)
class Option:
    """One ``add_argument``: ``name`` is the attribute it becomes, ``flag`` as typed."""

    call: ast.Call
    name: str
    flag: str


def options(module: Module) -> Iterator[Option]:
    """The argparse options that a file declares with literal names."""
    for call in module.calls("add_argument"):
        flags = [text_of(given) or "" for given in call.args]
        if flags and all(flags):
            destination = constant(module, argument(call, "dest"))
            long = next((flag for flag in flags if flag.startswith("--")), flags[0])
            name = destination if isinstance(destination, str) else long.lstrip("-").replace("-", "_")
            yield Option(call=call, name=name, flag=long)


def is_read(program: Program, name: str) -> bool:
    """Whether any source may read an attribute or key of that name, or hands all options on."""
    reads = (
        f".{name}", f'"{name}"', f"'{name}'", "vars(", "__dict__", "_get_kwargs", "asdict("
    )  # fmt: skip
    return any(read in text for text in program.code for read in reads)


def _dead_key(program: Program) -> Iterator[Hit]:
    """Settings whose name no source of the tree mentions again.

    What their names mean must be known, or the section they stand in be read key by key.
    """
    for module in program.modules:
        for option in options(module):
            if _meaning(option.name) and not is_read(program, option.name):
                words = f"The option {option.flag} is declared and read nowhere: giving it changes nothing."
                yield at(module, option.call, "medium", words, "Use it, or remove it.")
    for config in program.configs:
        for entry in config.entries:
            meaning = _meaning(entry.name)
            ours = _consumer_is_here(program, meaning) if meaning else _read_by_key(program, config, entry)
            if ours and _is_dead(program, config, entry):
                words = f"{entry.key} = {entry.value!r} is read by no code: no audited file asks for it."
                yield at_entry(config, entry, "medium" if meaning else "low", words)


def _meaning(name: str) -> str | None:
    """What a name means; nothing for how often something is due: libraries read that by themselves."""
    meaning = meaning_of(name)
    return None if meaning == INTERVAL else meaning


def _read_by_key(program: Program, config: ConfigFile, entry: Entry) -> bool:
    """Whether the audited files ask for single keys of the entry's section, and never for the whole of it."""
    section = entry.key.rpartition(".")[0]
    last = re.escape(section.rpartition(".")[2])
    if not section:
        return False
    whole = rf"""["']{last}["'](?!\]\[)|\.{last}\b(?!\.(?!{_WHOLE})\w|\[)|["'.]{last}\.(?:{_WHOLE})\b"""
    if any(re.search(whole, text) for text in program.code):
        return False
    others = [one.name for one in config.entries if one.key == f"{section}.{one.name}" and one is not entry]
    single = rf"""\b{last}(?:\.|["']\]\[["'])(?:{"|".join(map(re.escape, others))})\b"""
    return bool(others) and any(re.search(single, text) for text in program.code)


def _consumer_is_here(program: Program, meaning: str) -> bool:
    """Whether what a setting is for stands in the audited files; else code outside may read it."""
    if meaning in LOADER_SETTINGS:
        return bool(program.loaders)
    calls = _CONSUMERS.get(meaning)
    return any(m.calls(c) for m in program.modules for c in calls) if calls else bool(program.regions)


def _is_dead(program: Program, config: ConfigFile, entry: Entry) -> bool:
    """Whether no source reads the key, and none of the mappings it stands in is handed on whole."""
    if config.name.endswith(".py") and "." not in entry.key and program.mentions(entry.name):
        return False  # executed into the globals of a script, which reads plain names
    interpolated = any(f"{entry.name}}}" in line for one in program.configs for line in one.lines)
    if interpolated or is_read(program, entry.name):
        return False
    above = [re.escape(part) for part in entry.key.split(".")[:-1]]
    spread = [rf"\*\*[\w.]*\b{part}\b|\*\*[\w.]+\[.{part}.\]|\(\s*[\w.]*(\.|\[.){part}\b" for part in above]
    return not any(re.search(pattern, text) for pattern in [*spread, _SPREAD] for text in program.texts)


RULES: Final[dict[str, Rule]] = {"config/dead-key": _dead_key}
