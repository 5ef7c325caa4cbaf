"""The phases every second of a run is put into, and the classes a bottleneck can have."""

from __future__ import annotations

from typing import Final

#: Exclusive host phases, in the order of every table and bar.
PHASES: Final = (
    "startup",
    "data_wait",
    "transfer",
    "forward",
    "backward",
    "optimizer",
    "sync",
    "collective",
    "evaluation",
    "checkpoint",
    "logging",
    "epoch_gap",
    "other",
)

#: Position of a phase's column in a table.
COLUMN: Final = {name: i for i, name in enumerate(PHASES)}

#: Which phases a bottleneck class sums over.
CLASSES: Final = {
    "input": ("data_wait", "epoch_gap"),
    "transfer": ("transfer",),
    "host": ("sync", "other"),
    "device": ("forward", "backward", "optimizer"),
    "collective": ("collective",),
    "evaluation": ("evaluation",),
    "checkpoint": ("checkpoint",),
    "logging": ("logging",),
    "startup": ("startup",),
}
