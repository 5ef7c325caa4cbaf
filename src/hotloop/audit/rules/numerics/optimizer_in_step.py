"""``numerics/optimizer-in-step``: the optimizer is made anew at every step."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.hit import in_steps
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "numerics/optimizer-in-step"
_STATEFUL = ("Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "LBFGS")


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where a torch optimizer with state is made at every step of a loop."""
    names = {f"torch.optim.{name}" for name in _STATEFUL}
    return in_steps(
        ID,
        tree,
        lambda region, call: region.module.dotted(call.func) in names and not hasattr(region.root, "name"),
        "high",
        "{} is made anew at every step: its moments start from zero each time, so it never is the optimizer "
        "its name says.",
        "Make it once, before the loop.",
    )
