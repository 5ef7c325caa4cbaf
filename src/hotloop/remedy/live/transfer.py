"""Live form of asynchronous copies to the device."""

from __future__ import annotations

from typing import Any

from hotloop.hooks.wrapping import compile_beside
from hotloop.remedy.live.form import Form

# A copy from page-locked memory: torch keeps the memory until the stream has passed it.
_MOVE = """
def {name}(self, *args, **kwargs):
    if is_compiling() or not form.active or not self.is_cpu or "non_blocking" in kwargs or not pinned(self):
        return original(self, *args, **kwargs)
    if any(value is True or value is False for value in args):
        return original(self, *args, **kwargs)
    kwargs["non_blocking"] = True
    result = original(self, *args, **kwargs)
    if not result.is_cpu:
        took()
    return result
"""


class NonBlocking(Form):
    """``to`` and ``cuda`` of pinned tensors do not wait for the copy."""

    switchable = True

    def install(self) -> None:
        """Only with a torch that knows CUDA; the driver is left to the script."""
        if not self.torch.backends.cuda.is_built():
            self.say("torch finds no CUDA device")
            return
        for name in ("to", "cuda"):
            self.probe.hooks.patch(
                self.torch.Tensor,
                name,
                lambda original: compile_beside(
                    original, _MOVE, form=self, pinned=self.guard(self.pinned), took=self.guard(self.took)
                ),
            )

    def pinned(self, tensor: Any) -> bool:
        """Page-locked; asked only once the script uses the device, as asking touches it."""
        return bool(self.torch.cuda.is_initialized() and not tensor.is_sparse and tensor.is_pinned())
