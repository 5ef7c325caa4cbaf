"""Live forms that set a flag of the process."""

from __future__ import annotations

import gc
import importlib
from operator import attrgetter
from typing import Any, ClassVar

from hotloop.remedy.live.form import Form, OnceTraining
from hotloop.remedy.live.loader import default_workers


class _Flags(OnceTraining):
    """Sets flags of ``torch.backends`` and puts back what was there."""

    flags: ClassVar[tuple[tuple[str, bool], ...]]

    def __init__(self, context: Any, value: Any) -> None:
        super().__init__(context, value)
        self._before: list[Any] = []

    def apply(self) -> bool:
        """Set what differs; what the script had is kept the first time."""
        before = len(self._before)
        for path, value in self.flags:
            part, _, name = path.rpartition(".")
            owner = attrgetter(part)(self.torch.backends)
            if getattr(owner, name) != value:
                self._before.append((owner, name, getattr(owner, name)))
                setattr(owner, name, value)
        return len(self._before) > before

    def restore(self) -> None:
        """What the script had."""
        for owner, name, value in reversed(self._before):
            setattr(owner, name, value)
        self._before.clear()


class _CudaFlags(_Flags):
    """Flags that matter on a CUDA device.

    Whether the script uses one is known once it trains. Asking the driver before would fix the devices that
    it sees, and break CUDA in processes that the script forks.
    """

    def apply(self) -> bool:
        """Set ahead of the first update; from then on in effect, or taken back where nothing runs on CUDA."""
        if not self.torch.backends.cuda.is_built():
            self.say("torch finds no CUDA device")
            return False
        if not self.probe.updates:
            super().apply()
            return False
        if not self.torch.cuda.is_initialized():
            self.restore()
            self.say("the training runs on no CUDA device")
            return False
        return super().apply() or bool(self._before)

    def exits(self) -> None:
        """A script without an optimizer of torch's had it in effect too."""
        if self.active and self._before and not self.count and self.torch.cuda.is_initialized():
            self.took()
        super().exits()


class Tf32(_CudaFlags):
    """TensorFloat-32 in products and convolutions."""

    flags = (("cuda.matmul.allow_tf32", True), ("cudnn.allow_tf32", True))


class CudnnBenchmark(_CudaFlags):
    """cuDNN times its algorithms: each new shape costs a while."""

    warm_up = 5
    flags = (("cudnn.benchmark", True),)


class NotDeterministic(_Flags):
    """Algorithms that need not repeat bit for bit."""

    flags = (("cudnn.deterministic", False),)  # the other has functions of its own

    def apply(self) -> bool:
        """Both."""
        changed = super().apply()
        if self.torch.are_deterministic_algorithms_enabled():
            self._warned_only = self.torch.is_deterministic_algorithms_warn_only_enabled()
            self.torch.use_deterministic_algorithms(False)
            return True
        return changed

    def restore(self) -> None:
        """Both."""
        super().restore()
        if hasattr(self, "_warned_only"):
            self.torch.use_deterministic_algorithms(True, warn_only=self._warned_only)


class Threads(OnceTraining):
    """Another number of threads inside one operation."""

    def apply(self) -> bool:
        """The number asked for, else this rank's share of the cores."""
        now = self.torch.get_num_threads()
        wanted = self.value or (default_workers() + 1)
        self._before = getattr(self, "_before", now)
        if now == wanted:
            self.refused(f"{now} already")
            return False
        self.torch.set_num_threads(wanted)
        return True

    def restore(self) -> None:
        """The script's number."""
        self.torch.set_num_threads(self._before)


class KeepFreedMemory(Form):
    """What is freed stays with the process: nobody takes it back, so it is not switched."""

    def install(self) -> None:
        """From the start, in every process."""
        memory = importlib.import_module("hotloop.feed.memory")
        why = memory.keep_freed_memory(memory.STEP_BYTES)
        if why:
            self.say(why)
        else:
            self.took()


class GcFreeze(Form):
    """What exists once training runs is never looked at by the garbage collector again."""

    def install(self) -> None:
        """After a few updates: then model, data and optimizer are there."""
        self.probe.on_update(self.name, self._freeze)

    def _freeze(self) -> None:
        if self.probe.updates < 5:
            return
        self.probe.off_update(self._freeze)
        gc.collect()
        gc.freeze()
        self.took()
