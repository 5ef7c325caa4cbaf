"""What a function makes, made in a thread ahead of the loop that asks.

Torch's host generator is one for the whole process: a thread that drew from it beside a step that draws from
it too would give both other numbers in every run. So the thread draws from a generator of its own.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Generic, TypeVar

import torch
from torch.overrides import TorchFunctionMode

T = TypeVar("T")

#: What takes a generator.
_DRAW: Final = frozenset([
    "rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson", "random_",
    "uniform_", "normal_", "exponential_", "geometric_", "cauchy_", "log_normal_", "bernoulli_",
])  # fmt: skip


class Background(Generic[T]):
    """Calls ``make()`` ahead of time, in a thread, and hands out what it gives in order.

    ``next_batch = Background(lambda: get_batch("train"))`` before the loop and ``x, y = next_batch()`` in it
    stand for ``x, y = get_batch("train")``.

    Args:
        make: what makes one batch. It must not read what the loop changes: weights, a buffer that it fills,
            the number of the step.
        depth: how many batches may lie ready; at least 1.

    Functions of torch that take a generator (``torch.randint``, ``torch.randperm``) draw from one of the
    thread's own, seeded by one draw from the process's at the first call: the batches depend on
    ``torch.manual_seed`` and on nothing that the loop draws. Other draws (dropout, ``rand_like``, numpy's and
    Python's global generators) are those of any thread: which numbers they get is not fixed.

    An exception of ``make`` is raised by the call that would have raised it. Autograd's mode and the device
    and stream of CUDA are those of the caller. In a process that was forked later nothing is made ahead.

    Raises:
        ValueError: ``depth`` is below 1.
    """

    _pool: ThreadPoolExecutor | None = None

    def __init__(self, make: Callable[[], T], *, depth: int = 2) -> None:
        if depth < 1:
            raise ValueError(f"depth must be at least 1, got {depth}")
        self._make = make
        self._depth = depth
        self._pid = os.getpid()
        self._closed = False
        self._ready: deque[Future[T]] = deque()
        self._generator = torch.Generator()

    def __call__(self) -> T:
        """What the next call of ``make`` gives."""
        if self._closed or os.getpid() != self._pid:
            return self._make()
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, "hotloop-background")
            self._generator.manual_seed(int(torch.empty((), dtype=torch.int64).random_()))
        while len(self._ready) <= self._depth:
            stream = torch.cuda.current_stream() if torch.cuda.is_initialized() else None
            grad = torch.is_grad_enabled()
            self._ready.append(self._pool.submit(_made, self._make, self._generator, grad, stream))
        return self._ready.popleft().result()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self()

    def close(self) -> None:
        """End the thread; what lies ready is dropped; calls are made as they are asked for."""
        self._closed = True
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._ready.clear()

    def __del__(self) -> None:
        if self._pool is not None and os.getpid() == self._pid:
            own = threading.current_thread() in self._pool._threads
            self._pool.shutdown(wait=not own, cancel_futures=True)


class _Drawing(TorchFunctionMode):  # type: ignore[misc]
    """Has this thread draw from a generator of its own wherever torch's host generator is meant."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self._generator = generator

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        draws = getattr(func, "__name__", "") in _DRAW and given.get("generator") is None
        if draws and _on_the_host(args, given):
            given = {**given, "generator": self._generator}
        return func(*args, **given)


def _made(make: Callable[[], T], generator: torch.Generator, grad: bool, stream: Any) -> T:
    with torch.set_grad_enabled(grad), torch.cuda.stream(stream), _Drawing(generator):
        return make()


def _on_the_host(args: Any, kwargs: Any) -> bool:
    device = kwargs.get("device") or torch.get_default_device()
    tensors = [one for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor)]
    return all(one.device.type == "cpu" for one in tensors) if tensors else torch.device(device).type == "cpu"
