"""``config/unmatched-value``: a configured value can never equal what the code compares it with."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from hotloop.audit.hit import at_entry
from hotloop.audit.tree import Tree
from hotloop.findings import Finding
from hotloop.probe.config import meaning_of
from hotloop.written import never_equal

ID = "config/unmatched-value"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak of ``amp: true`` where every use of the key in the tree is ``== "bf16"`` and the like.

    Only switches with a known meaning that are configured as on; a key that stands twice is not looked at.
    """
    entries = [
        (config, entry)
        for config in tree.configs
        for entry in config.entries
        if meaning_of(entry.key) in ("amp", "compile", "deterministic", "tf32", "cudnn_benchmark")
        and entry.value not in (False, None, 0, "")
    ]
    names = Counter(entry.name for _, entry in entries)
    for config, entry in entries:
        if names[entry.name] > 1 or not tree.mentions(entry.name):
            continue
        trees = {m.name: m.tree for m in tree.modules if entry.name in m.source.text}
        written = never_equal(trees, entry.name, entry.value)
        if written is not None:
            yield at_entry(
                ID,
                config,
                entry,
                "high",
                f"{entry.key} = {entry.value!r} turns nothing on: {written.file}:{written.line} "
                f"{written.text}, which {entry.value!r} never equals.",
                f"Write what the code compares with, or compare with {entry.value!r} there.",
            )
