"""One file per thing observed; each has ``install(probe)``. This tuple is the only place that lists them."""

from __future__ import annotations

from typing import Final

#: Modules below ``hotloop.probe``, in the order they are installed. The sampler comes first: start-up counts.
#: Evidence comes below what times loaders and backward: it asks for their batches before anybody else does.
OBSERVERS: Final = (
    "sampler",
    "observers.evidence",
    "observers.loaders",
    "observers.workers",
    "observers.modules",
    "observers.autograd",
    "observers.optimizers",
    "observers.untrained",
    "observers.transfers",
    "observers.calls",
    "observers.bars",
    "observers.sockets",
    "observers.memory",
    "observers.growth",
    "observers.settings",
    "observers.anomaly",
    "observers.configs",
    "window",
    "observers.unread",
    "observers.compiling",
    "observers.device",
    "observers.profile",
    "evidence.inputs",
)
