"""``config/too-many-workers-for-cores`` in source: more workers than the training machine has cores."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop import units
from hotloop.audit.hit import hit
from hotloop.audit.tree import Machine, Tree
from hotloop.findings import Finding

ID = "config/too-many-workers-for-cores"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak of a literal num_workers above the usable cores of the machine."""
    machine = tree.machine
    if machine is None:
        return
    for loader in tree.loaders:
        workers = loader.constant("num_workers", 0)
        if isinstance(workers, int) and not isinstance(workers, bool) and workers > machine.cores:
            yield hit(
                ID,
                loader.module,
                loader.call,
                "low",
                f"num_workers={workers} on {units.rate(machine.cores)} usable cores: the workers and the "
                f"training "
                "process take the cores from each other.",
                f"Start with {suggested(machine)} (--cores N audits for another machine). "
                f"{rules_of_thumb(machine)}",
            )


def suggested(machine: Machine) -> int:
    """A first number of workers per GPU: a core each for the training process, the rest shared."""
    return max(1, min(int(machine.cores) - 1, 24) // max(1, machine.gpus))


def rules_of_thumb(machine: Machine) -> str:
    """What the usual formulas give here; they disagree, and a measurement decides."""
    cores, gpus = int(machine.cores), max(1, machine.gpus)
    spare, share, half = min(cores - 4, 24), max(4, int(0.8 * cores / gpus)), cores // 2
    return (
        f"Formulas in use: min(cores - 4, 24) = {max(0, spare)}; 0.8 cores per GPU, at least 4 = {share}; "
        f"half "
        f"of the cores under memory pressure = {half}."
    )
