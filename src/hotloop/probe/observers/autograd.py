"""Backward passes, and the loss values they start from."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from ctypes import c_uint32
from statistics import median
from time import perf_counter_ns
from types import FrameType
from typing import Any, Final

from hotloop import fast
from hotloop.hooks.wrapping import compile_beside
from hotloop.probe.ending import ending, in_python
from hotloop.probe.probe import Probe
from hotloop.record.rows import BACKWARD, LOSS, U32_MAX

NAME: Final = "observers.autograd"

#: Every loss is read for this many backwards, then every 9th: an odd stride meets each loss of an
#: alternating pair.
_EVERY_LOSS: Final = 100
_LOSS_STRIDE: Final = 9
#: So many backwards before the script is asked whether it updates by hand, in each of them.
_BY_HAND: Final = 100

# A backward inside a backward (checkpointing) belongs to the outer one. A thread that goes backward is the
# training thread, if the recorded one never did or has ended.
_BACKWARD = """
def {name}(*args, **kwargs):
    if is_compiling():
        return original(*args, **kwargs)
    before = inside[0]
    if before == 2:
        return original(*args, **kwargs)
    start = now() if get_ident() == owner[0] else 0
    if not start:
        if switch.off or not claim():
            return original(*args, **kwargs)
        start = now()
    try:
        inside[0] = 2
        return original(*args, **kwargs)
    finally:
        inside[0] = before
        went(args, kwargs, start)
"""


def loss_reader(probe: Probe) -> Callable[[Any, int, int], None]:
    """The function that writes the loss a backward began with, where it lies in host memory."""
    emit = probe.emit
    tensor_type, float32 = probe.torch.Tensor, probe.torch.float32

    def read_loss(loss: Any, stop: int, site: int) -> None:
        if isinstance(loss, (list, tuple)) and len(loss) == 1:
            loss = loss[0]
        if type(loss) is not tensor_type:
            return
        if not loss.is_cpu:
            probe.note_loss(loss)
        elif loss.dtype is float32 and loss.numel() == 1 and not probe.is_scaled(loss):
            # Read where it lies: going through the dispatcher costs more than everything else here.
            try:
                address = loss.data_ptr()
            except RuntimeError:  # a wrapped tensor of torch.func holds no data of its own
                return
            if address:
                emit(LOSS, stop, 0, c_uint32.from_address(address).value, site)

    return read_loss


def float_bits(value: float) -> int:
    """The bits of the nearest float32; a value out of its range becomes infinite."""
    try:
        return int(struct.unpack("<I", struct.pack("<f", value))[0])
    except OverflowError:
        return 0x7F800000 if value > 0 else 0xFF800000


def _below(cls: Any) -> Iterator[Any]:
    """A class and all below it: torch marks the ``step`` of those that were ever made."""
    yield cls
    for inner in cls.__subclasses__():
        yield from _below(inner)


def install(probe: Probe) -> None:
    """Observe this process's backward passes."""
    torch = probe.torch
    hooks = probe.hooks
    every = probe.losses  # --evidence
    read_value = loss_reader(probe) if every is None else every.backward
    tensor_type = torch.Tensor
    nodes: list[float] = []  # that autograd wrote down from one loss to the next, a backward
    last = 0, 0
    every_loss = _EVERY_LOSS if every is None else U32_MAX
    claim = hooks.guard(NAME, probe.claim)
    count = probe.count

    def read_loss(loss: Any, stop: int, site: int) -> None:
        nonlocal last
        if type(loss) is tensor_type and loss.grad_fn is not None and len(nodes) < _EVERY_LOSS:
            before, last = last, (count.backwards, loss.grad_fn._sequence_nr())
            if 0 < before[0] < last[0] and before[1] < last[1]:
                nodes.append((last[1] - before[1]) / (last[0] - before[0]))
        read_value(loss, stop, site)

    def note_graph() -> None:
        if nodes:
            probe.note("graph", nodes_per_backward=median(nodes))

    has_optimizer: bool | None = None

    def by_hand() -> None:
        """Each backward is an update, unless an optimizer was built that waits for more of them."""
        nonlocal has_optimizer
        if has_optimizer is None:
            has_optimizer = any(hasattr(cls.step, "hooked") for cls in _below(torch.optim.Optimizer))
        if not has_optimizer:
            probe.updated()

    probe.on_tick(NAME, note_graph)
    probe.on_exit(NAME, note_graph)
    asked = (every_loss, _LOSS_STRIDE, probe.inside, read_loss, probe.tick, claim, by_hand)

    def went(frame: FrameType, stop: int, args: Any, kwargs: Any, start: int) -> None:
        site = probe.site(frame)
        probe.emit(BACKWARD, start, stop - start, 0, site)
        count.backwards = number = count.backwards + 1
        if count.fetched:
            count.fetched = 0
            count.batches += 1
            count.fed_at = count.rounds
        if not count.rounds and stop >= count.next_tick:
            probe.tick(stop)
        if not count.rounds and count.callbacks and number > _BY_HAND:
            by_hand()
        if number <= every_loss or not number % _LOSS_STRIDE:
            read_loss(args[0] if args else kwargs.get("tensors"), stop, site)

    def python(original: Any) -> Any:
        return compile_beside(
            original,
            _BACKWARD,
            went=in_python(probe, NAME, went),
            inside=probe.inside,
            claim=claim,
            switch=hooks.switch(NAME),
            now=perf_counter_ns,
        )

    def compiled(original: Any) -> Any:
        return ending(probe, NAME, "backward", BACKWARD, *asked, original=original)

    # Dynamo enters grad, and skips backward whatever it is.
    hooks.patch(torch.autograd, "backward", python if fast.Hook is None else compiled)
    hooks.patch(torch.autograd, "grad", python)

    def checkpointed(args: Any, kwargs: Any, frame: FrameType) -> None:
        probe.facts["checkpointing"] = True

    def patch_checkpoint(module: Any) -> None:
        hooks.around(module, "checkpoint", NAME, checkpointed, lambda *_: None)

    hooks.on_import("torch.utils.checkpoint", patch_checkpoint, NAME)
