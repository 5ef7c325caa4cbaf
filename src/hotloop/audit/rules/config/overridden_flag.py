"""``config/overridden-flag`` in source: a torch.backends flag is set, and set otherwise right after."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.flags import flag_settings, unconditional
from hotloop.audit.hit import hit
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "config/overridden-flag"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where one function sets the same flag twice, to another value the second time, both for sure."""
    for module in tree.modules:
        first: dict[tuple[str, object], tuple[int, object]] = {}
        for name, node, value in flag_settings(module):
            if not unconditional(module, node):
                continue
            key = (name, module.function_of(node))
            if key in first and isinstance(value, bool) and value != first[key][1]:
                yield hit(
                    ID,
                    module,
                    node,
                    "medium",
                    f"{name} becomes {value} here, after line {first[key][0]} set it to {first[key][1]}: the "
                    "earlier line has no effect.",
                    "Keep the line that is meant, and delete the other.",
                )
            if isinstance(value, bool):
                first[key] = (node.lineno, value)
