"""``config/too-many-workers-for-cores`` in source: more workers than the training machine has cores."""

from __future__ import annotations

from collections.abc import Iterator

from hotloop import units
from hotloop.audit.hit import at_entry, hit
from hotloop.audit.rules.config.ignored_value import is_read
from hotloop.audit.tree import Machine, Tree
from hotloop.findings import Finding
from hotloop.probe.config import meaning_of

ID = "config/too-many-workers-for-cores"


def check(tree: Tree) -> Iterator[Finding]:
    """Speak of a literal or configured num_workers above the usable cores of the machine."""
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
                f"num_workers={workers} {_words(machine)}",
                _advice(machine),
            )
    for config in tree.configs:
        for entry in config.entries:
            if meaning_of(entry.key) != "num_workers" or not isinstance(entry.value, int):
                continue
            if entry.value > machine.cores and is_read(tree, entry.name):
                message = f"{entry.key} = {entry.value} {_words(machine)}"
                yield at_entry(ID, config, entry, "low", message, _advice(machine))


def _words(machine: Machine) -> str:
    cores = units.rate(machine.cores)
    return (
        f"on {cores} usable cores: workers that compute and the training process take the cores from each "
        "other. More than cores pay only where samples wait for storage or a network."
    )


def _advice(machine: Machine) -> str:
    return (
        f"Start with {suggested(machine)} (--cores N audits for another machine). {rules_of_thumb(machine)}"
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
