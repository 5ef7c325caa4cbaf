"""``memory/retain-graph``: the graph is kept after the only backward of a step."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.module import argument
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "memory/retain-graph"
_USES = ("grad", "backward", "autograd")


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where a step has exactly one backward, and it retains its graph."""
    for region in tree.regions:
        if len(region.backwards) != 1:
            continue
        call = region.backwards[0]
        kept = region.module.constant(argument(call, "retain_graph")) is True
        double = region.module.constant(argument(call, "create_graph")) is True
        others = [other for other in region.calls_named(*_USES) if other is not call]
        if kept and not double and not others:
            yield hit(
                ID,
                region.module,
                call,
                "low",
                "retain_graph=True on the only backward of a step: the activations stay in memory until the "
                "loss is replaced, while the next forward pass already makes its own.",
                "Leave retain_graph out. If backward then fails, a tensor of an earlier step is used again: "
                "detach it.",
            )
