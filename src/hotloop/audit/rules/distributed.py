"""Several processes or GPUs."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from hotloop.audit.loaders import EVALUATION
from hotloop.audit.patterns import Hit, Rule, anywhere, at, every_step, gives
from hotloop.audit.program import Program
from hotloop.source.nodes import argument, chain


def _set_epoch(program: Program) -> Iterator[Hit]:
    """A shuffling DistributedSampler, and set_epoch called nowhere in the tree."""
    if program.mentions("set_epoch", "lightning", "pytorch_lightning"):
        return
    for module in program.modules:
        for call in module.calls_to("torch.utils.data.DistributedSampler"):
            function = module.function_of(call)
            called = {where for where, _ in program.callers(function)} if function else set()
            if not {module, *called} & set(program.training):
                continue  # whose loop it is cannot be seen
            if argument(call, "shuffle", 3) is not None and not gives(module, call, "shuffle", True, 3):
                continue
            targets = getattr(module.parents.get(call), "targets", [])
            if not EVALUATION.search(" ".join(chain(node) for node in (*targets, *call.args))):
                yield at(module, call, "high")


RULES: Final[dict[str, Rule]] = {
    "distributed/barrier-in-step": every_step("medium", "torch.distributed.barrier"),
    "distributed/data-parallel": anywhere(
        "info", "torch.nn.DataParallel", "torch.nn.parallel.DataParallel", where_trained=True
    ),
    "distributed/set-epoch": _set_epoch,
}
