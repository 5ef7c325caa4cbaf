"""Live forms that set a flag of the process."""

from __future__ import annotations

import gc
import importlib
from typing import Any

from hotloop.remedy.live.form import Form, OnceTraining
from hotloop.remedy.live.loader import default_workers


class _Attributes(OnceTraining):
    """Sets attributes and puts back what was there."""

    def __init__(self, context: Any, value: Any) -> None:
        super().__init__(context, value)
        self._before: list[Any] = []

    def wanted(self) -> list[tuple[Any, str, Any]]:
        """Owner, name and value of each attribute."""
        raise NotImplementedError

    def apply(self) -> bool:
        """Set what differs; what the script had is kept the first time."""
        wanted = [entry for entry in self.wanted() if getattr(*entry[:2]) != entry[2]]
        self._before += [(owner, name, getattr(owner, name)) for owner, name, _ in wanted]
        for owner, name, value in wanted:
            setattr(owner, name, value)
        return bool(wanted)

    def restore(self) -> None:
        """What the script had."""
        for owner, name, value in reversed(self._before):
            setattr(owner, name, value)
        self._before.clear()


class _CudaFlags(_Attributes):
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

    def wanted(self) -> list[tuple[Any, str, Any]]:
        """Both flags."""
        backends = self.torch.backends
        return [(backends.cuda.matmul, "allow_tf32", True), (backends.cudnn, "allow_tf32", True)]


class CudnnBenchmark(_CudaFlags):
    """cuDNN times its algorithms: each new shape costs a while."""

    warm_up = 5

    def wanted(self) -> list[tuple[Any, str, Any]]:
        """One flag."""
        return [(self.torch.backends.cudnn, "benchmark", True)]


class NotDeterministic(_Attributes):
    """Algorithms that need not repeat bit for bit."""

    def wanted(self) -> list[tuple[Any, str, Any]]:
        """cuDNN's flag; the other has functions of its own."""
        return [(self.torch.backends.cudnn, "deterministic", False)]

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
