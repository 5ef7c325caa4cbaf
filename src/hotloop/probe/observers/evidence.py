"""``--evidence``: what a run computed, for ``hotloop verify`` to hold beside another run.

Per batch the order of its samples and checksums of its values, every loss, and at exit the trained state. The
device is never waited for while training goes on, no batch is kept. Random generators are seeded before the
script runs, so that one that sets no seed can be compared at all, and after that only read.
"""

from __future__ import annotations

import os
import sys
from typing import Any, Final

from hotloop.probe.probe import Probe

NAME: Final = "observers.evidence"


def install(probe: Probe) -> None:
    """Record what is computed, if asked to. Comes before the observers whose calls it wants to be inside."""
    if os.environ.get("HOTLOOP_EVIDENCE", "") in ("", "0"):
        return
    # Not at the top: a run that is only observed needs none of it.
    from hotloop.probe.evidence.handed import Handed
    from hotloop.probe.evidence.logged import Caches, Checkpoints, Logged
    from hotloop.probe.evidence.losses import Losses
    from hotloop.probe.evidence.trained_state import TrainedState

    seed, manual = os.environ.get("HOTLOOP_SEED", ""), getattr(probe.torch, "manual_seed", None)
    if seed.isdecimal() and manual and "--multiprocessing-fork" not in sys.orig_argv:
        manual((int(seed) << 16) + probe.rank)  # of what has none of its own, as the bootstrap seeds the rest
    losses = probe.losses = Losses(probe)
    handed = probe.handed = Handed(probe)
    state, logged = TrainedState(probe), Logged(probe)
    hooks = probe.hooks

    def on_dataloader(module: Any) -> None:
        base = module._BaseDataLoaderIter
        for name, end in (
            ("_next_index", handed.end_index),
            ("_reset", handed.end_reset),
            ("__next__", handed.end_next),
        ):
            hooks.around(base, name, NAME, lambda args, *_: args[0], end, unseen=True)

    hooks.on_import("torch.utils.data.dataloader", on_dataloader, NAME)
    if perturbed := os.environ.get("HOTLOOP_PERTURB", "") not in ("", "0"):
        from hotloop.probe.evidence import perturbed as moved

        moved.install(probe, NAME)
    for part in (state, Checkpoints(probe), logged, Caches(probe)):
        part.install(NAME)
    for restart in (losses.restart, handed.restart, state.restart):
        probe.on_fork(NAME, restart)
    for finish in (losses.finish, state.finish, logged.finish):
        probe.on_exit(NAME, finish)
    probe.note("evidence", perturbed=perturbed)
