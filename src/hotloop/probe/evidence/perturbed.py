"""``--perturb``: every trained value but zeros is moved by its last bit before the first update.

What such a run computes differs from the base by rounding alone. Training may multiply that, and no change
that rounds can be held to less.
"""

from __future__ import annotations

import sys
from typing import Any

from hotloop.probe.probe import Probe
from hotloop.state.identity import Known


def install(probe: Probe, observer: str) -> None:
    """Move the parameters of each optimizer when it steps for the first time. No generator is drawn from."""
    torch, moved = probe.torch, Known[bool]()

    def move(optimizer: Any) -> None:
        moved.put(optimizer, True)
        with torch.no_grad():
            for number, parameter in enumerate(p for g in optimizer.param_groups for p in g["params"]):
                here = getattr(parameter, "_local_tensor", parameter)  # of one that is sharded
                if here.is_floating_point():
                    own = torch.Generator(here.device).manual_seed(number)
                    signs = torch.randint(0, 2, here.shape, generator=own, device=here.device) * 2 - 1
                    here.mul_(1 + torch.finfo(here.dtype).eps * signs.to(here.dtype))

    guarded = probe.hooks.guard(observer, move)

    def look(optimizer: Any, args: Any, kwargs: Any) -> None:
        if id(optimizer) not in moved.entries:
            guarded(optimizer)

    probe.hooks.hand_over(sys.modules["torch.optim.optimizer"].register_optimizer_step_pre_hook, look)
