"""``distributed/set-epoch``: a DistributedSampler shuffles every epoch alike."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop.audit.hit import hit
from hotloop.audit.loaders import EVALUATION
from hotloop.audit.module import argument, chain
from hotloop.audit.tree import Tree
from hotloop.findings import Finding

ID = "distributed/set-epoch"
_SAMPLER = "torch.utils.data.DistributedSampler"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak where a shuffling DistributedSampler is made and set_epoch is called nowhere in the tree."""
    if tree.mentions("set_epoch", "lightning", "pytorch_lightning"):
        return
    training = {region.module for region in tree.regions}
    for module in tree.modules:
        for call in module.calls_to(_SAMPLER):
            function = module.function_of(call)
            called = {where for where, _ in tree.callers(function)} if function else set()
            if module not in training and not called & training:
                continue  # whose loop it is cannot be seen
            parent = module.parents.get(call)
            names = " ".join(chain(target) for target in getattr(parent, "targets", []))
            names += " ".join(chain(a) for a in call.args)
            if (
                argument(call, "shuffle", 3) is not None
                and module.constant(argument(call, "shuffle", 3)) is not True
            ):
                continue
            if EVALUATION.search(names):
                continue
            yield hit(
                ID,
                module,
                call,
                "high",
                "DistributedSampler.set_epoch() is called nowhere: every epoch has the same order of "
                "samples.",
                "Call sampler.set_epoch(epoch) at the start of every epoch.",
            )
