"""Collectives called from Python. DDP's own run inside backward and show there only."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from hotloop.hooks.wrapping import RAISED
from hotloop.probe.observers.nesting import Describe, Outermost
from hotloop.record.rows import COLLECTIVE, COLLECTIVE_OPS, U32_MAX
from hotloop.state.stored import is_tensor

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

NAME: Final = "observers.collectives"
#: Function of torch.distributed -> its word in COLLECTIVE_OPS.
_FUNCTIONS: Final = {
    "all_reduce": "all_reduce", "barrier": "barrier", "monitored_barrier": "barrier",
    "broadcast": "broadcast",
    "broadcast_object_list": "broadcast", "all_gather": "all_gather", "all_gather_into_tensor": "all_gather",
    "all_gather_object": "all_gather", "gather": "all_gather", "gather_object": "all_gather",
    "reduce_scatter": "reduce_scatter", "reduce_scatter_tensor": "reduce_scatter", "reduce": "reduce",
    "all_to_all": "all_to_all", "all_to_all_single": "all_to_all", "send": "send", "recv": "recv",
    "scatter": "other", "scatter_object_list": "other",
}  # fmt: skip


def install(probe: Probe) -> None:
    """Observe torch.distributed as soon as it is imported."""
    probe.hooks.on_import("torch.distributed.distributed_c10d", lambda module: _install(probe, module), NAME)


def _install(probe: Probe, module: Any) -> None:
    family = Outermost(probe, COLLECTIVE)
    package = probe.torch.distributed
    for name, word in _FUNCTIONS.items():
        number = COLLECTIVE_OPS.index(word)
        begin = family.begin(_describe(number))
        probe.hooks.around(module, name, NAME, begin, family.end, also=(package,))
    probe.hooks.around(
        module, "init_process_group", NAME, lambda *called: probe, _joined, also=(package,), any_thread=True
    )


def _joined(probe: Probe, start: int, stop: int, result: Any) -> None:
    """Only now has a process its rank that no launcher gave it (``mp.spawn``, Lightning's first)."""
    if result is not RAISED and probe.role == "main" and probe.writer.opened:
        probe.introduce()


def _describe(number: int) -> Describe:
    return lambda args, kwargs: (tensor_bytes(args, kwargs), number)


def tensor_bytes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Bytes of the largest tensor, or list of tensors, among the arguments."""
    return min(max((_bytes(value) for value in (*args, *kwargs.values())), default=0), U32_MAX)


def _bytes(value: Any) -> int:
    if isinstance(value, (list, tuple)):
        return sum(_bytes(item) for item in value)
    if not is_tensor(value):
        return 0
    return int(value.numel() * value.element_size())
