"""``config/ignored-value`` in source: a literal stands where an option of the same meaning exists."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.loaders import EVALUATION, Loader
from hotloop.audit.module import UNKNOWN
from hotloop.audit.tree import Tree
from hotloop.findings import Finding
from hotloop.probe.config import meaning_of
from hotloop.written import LOADER_DEFAULTS

ID = "config/ignored-value"
#: The arguments looked at.
LOADER_SETTINGS = ("num_workers", "prefetch_factor", "pin_memory", "persistent_workers", "batch_size")


def check(tree: Tree) -> Iterator[Finding]:
    """Speak of a training loader's literal (or missing) argument beside an option that nothing reads.

    With ``--config``, a configured value that the loader's literal contradicts counts too.
    """
    for loader in tree.loaders:
        if loader.role == "evaluation":
            continue
        for meaning in LOADER_SETTINGS:
            yield from _ignored_option(tree, loader, meaning)
            yield from _ignored_entry(tree, loader, meaning)


def _ignored_option(tree: Tree, loader: Loader, meaning: str) -> Iterator[Finding]:
    value = loader.constant(meaning, None)
    if value is UNKNOWN or loader.role != "train":
        return
    for option in tree.options:
        if option.module is not loader.module or meaning_of(option.name) != meaning:
            continue
        if not is_read(tree, option.name):
            has = f"{meaning}={value!r}" if meaning in loader.given else f"no {meaning}"
            yield hit(
                ID,
                loader.module,
                loader.call,
                "medium",
                f"The option {option.flag} (line {option.call.lineno}) is read nowhere; the training "
                f"loader has {has}.",
                f"Pass {meaning}=args.{option.name}.",
            )


def _ignored_entry(tree: Tree, loader: Loader, meaning: str) -> Iterator[Finding]:
    value = loader.constant(meaning, LOADER_DEFAULTS[meaning])
    if value is UNKNOWN or loader.role != "train" or (meaning == "batch_size" and not loader.has(meaning)):
        return
    entries = [
        (config, entry)
        for config in tree.configs
        for entry in config.entries
        if meaning_of(entry.name) == meaning and not EVALUATION.search(entry.key)
    ]
    if len(entries) != 1:
        return
    config, entry = entries[0]
    if (
        entry.value == value
        or isinstance(entry.value, str)
        or not _is_meant(tree, loader, meaning, entry.name)
    ):
        return
    has = f"has {meaning}={value!r} as a literal" if meaning in loader.given else f"is not given {meaning}"
    yield hit(
        ID,
        loader.module,
        loader.call,
        "high",
        f"{config.name}:{entry.line} says {entry.key} = {entry.value!r}; the training loader {has}.",
        f"Pass the configured value: {meaning}=cfg…{entry.name}.",
    )


def _is_meant(tree: Tree, loader: Loader, meaning: str, name: str) -> bool:
    """Whether a key can only be meant for this loader: no other file trains, no loader is given the key."""
    if any(other.role == "train" and other.module is not loader.module for other in tree.loaders):
        return False
    given = (other.given.get(meaning) for other in tree.loaders)
    return not any(name in ast.unparse(node) for node in given if node is not None) and all(
        other.complete for other in tree.loaders
    )


def is_read(tree: Tree, name: str) -> bool:
    """Whether any source may read an attribute or key of that name, or hands all options on."""
    texts = tree.code
    reads = (f".{name}", f'"{name}"', f"'{name}'")
    if any(read in text for text in texts for read in reads):
        return True
    return any(word in text for text in texts for word in ("vars(", "__dict__", "_get_kwargs", "asdict("))
