"""Writing and reading checkpoints, and collecting the state that goes into them."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any, Final

from hotloop.probe.observers.nesting import Outermost, constant
from hotloop.record.rows import SAVE

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

NAME: Final = "observers.checkpoints"
WRITE, STATE_DICT, LOAD = constant(1), constant(2), constant(3)


def install(probe: Probe) -> None:
    """Observe the functions that checkpoints are made with."""
    torch, hooks = probe.torch, probe.hooks
    family = Outermost(probe, SAVE)

    def watch(owner: Any, name: str, what: Any, also: tuple[Any, ...] = ()) -> None:
        hooks.around(owner, name, NAME, family.begin(what), family.end, also=also, unseen=True)

    serialization = sys.modules["torch.serialization"]
    watch(torch, "save", WRITE, (serialization,))
    watch(torch, "load", LOAD, (serialization,))
    watch(torch.nn.Module, "state_dict", STATE_DICT)
    watch(torch.optim.Optimizer, "state_dict", STATE_DICT)

    def safetensors(module: Any) -> None:
        for name in ("save_file", "save_model"):
            watch(module, name, WRITE)
        watch(module, "load_file", LOAD)

    def distributed(module: Any) -> None:
        for name in ("save", "async_save"):
            watch(module, name, WRITE)
        watch(module, "load", LOAD)

    hooks.on_import("safetensors.torch", safetensors, NAME)
    hooks.on_import("hotloop.feed.saving", lambda saving: watch(saving, "async_save", WRITE), NAME)
    hooks.on_import("torch.distributed.checkpoint", distributed, NAME)
