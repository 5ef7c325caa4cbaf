"""What a function makes, made in a thread ahead of the loop that asks, with the numbers it would have drawn.

Torch's host generator is one for the whole process: a thread that drew from it beside a step that draws from
it too would give both other numbers. Here the thread draws from a generator of its own, which begins where
the process's stands. What was made ahead is handed out where the process's generator still stands there, and
moves it on; where somebody drew meanwhile (dropout, an evaluation), it is dropped and made anew. So the order
of all draws is the one without a thread.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final, Generic, NamedTuple, TypeVar

import torch
from torch.overrides import TorchFunctionMode

from hotloop.feed import randomness

T = TypeVar("T")

#: Results dropped one after the other, after which nothing is made ahead any more.
_MOST_DROPPED: Final = 8
#: What takes a generator.
_DRAW: Final = frozenset([
    "rand", "randn", "randint", "randperm", "normal", "bernoulli", "multinomial", "poisson", "random_",
    "uniform_", "normal_", "exponential_", "geometric_", "cauchy_", "log_normal_", "bernoulli_",
])  # fmt: skip
#: What draws and takes none.
_HIDE: Final = frozenset([
    "rand_like", "randn_like", "randint_like", "dropout", "dropout_", "dropout1d", "dropout2d", "dropout3d",
    "native_dropout", "_fused_dropout", "alpha_dropout", "alpha_dropout_", "feature_dropout",
    "feature_dropout_", "feature_alpha_dropout", "feature_alpha_dropout_", "rrelu", "rrelu_",
    "rrelu_with_noise", "rrelu_with_noise_", "scaled_dot_product_attention", "binomial", "gumbel_softmax",
    "_sample_dirichlet", "_standard_gamma", "lstm", "gru", "rnn_relu", "rnn_tanh",
    "multi_head_attention_forward", "fractional_max_pool2d", "fractional_max_pool3d",
    "fractional_max_pool2d_with_indices", "fractional_max_pool3d_with_indices",
])  # fmt: skip


class Background(Generic[T]):
    """Calls ``make()`` ahead of time, in a thread, and hands out what it gives in order.

    ``next_batch = Background(lambda: get_batch("train"))`` before the loop and ``x, y = next_batch()`` in it
    stand for ``x, y = get_batch("train")``, with the same batches bit for bit.

    Args:
        make: what makes one batch. It must not read what the loop changes: weights, a buffer that it fills,
            the number of the step.
        depth: how many batches may lie ready; at least 1.
        again: ``make`` may be called anew for a batch that was dropped. False for an iterator, whose batches
            would be lost: one whose first batch draws from torch's generator is asked as without a thread.

    Calls that draw from torch's host generator get the numbers they would have got. Calls that draw on a
    device, by a function that takes no generator, or from numpy's or Python's global generator are made when
    they are asked for, and so is everything in a process that was forked later. An exception of ``make`` is
    raised by the call that would have raised it, and from then on nothing is made ahead. Autograd's mode and
    the device and stream of CUDA are those of the first call. :attr:`why_not` says why nothing is made ahead.

    Raises:
        ValueError: ``depth`` is below 1.
    """

    _pool: ThreadPoolExecutor | None = None

    def __init__(self, make: Callable[[], T], *, depth: int = 2, again: bool = True) -> None:
        if depth < 1:
            raise ValueError(f"depth must be at least 1, got {depth}")
        self._make = make
        self._depth = depth
        self._again = again
        self._pid = os.getpid()
        self._calls = 0
        self._draws = False
        self._dropped = 0
        self._ready: deque[Future[_Made | None]] = deque()
        self._generator = torch.Generator()
        self._failed = threading.Event()  # nothing is made behind an exception
        #: Why nothing is made ahead; "" where it is, or may yet be.
        self.why_not = ""

    def __call__(self) -> T:
        """What the next call of ``make`` gives."""
        if self.why_not or os.getpid() != self._pid:
            return self._make()
        return self._tried() if self._pool is None else self._taken()

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self()

    def close(self) -> None:
        """End the thread; what lies ready is dropped with its draws; calls are made as they are asked for."""
        self._end("it was closed")

    def __del__(self) -> None:
        if self._pool is not None and os.getpid() == self._pid:
            own = threading.current_thread() in self._pool._threads
            self._pool.shutdown(wait=not own, cancel_futures=True)

    def _end(self, why: str) -> None:
        self.why_not = why
        if self._pool is not None:
            self._drop()
            self._pool.shutdown()
            self._pool = None

    # -- the first two calls, made as they are asked for -----------------------------------------------------

    def _tried(self) -> T:
        self._calls += 1
        if self._calls == 1:
            self.why_not = _unlike_a_thread()
            return self._make() if self.why_not else self._watched()
        value = self._apart() if self._draws else self._make()
        if not self.why_not:
            self._pool = ThreadPoolExecutor(1, "hotloop-background")
            self._go_on()
        return value

    def _watched(self) -> T:
        """The first call: which generators it draws from."""
        before = randomness.tokens()
        value = self._make()
        by_torch, *others = (one != other for one, other in zip(before, randomness.tokens(), strict=True))
        self._draws = by_torch
        if any(others):
            self.why_not = "it draws from Python's or numpy's generator, as others may"
        elif by_torch and not self._again:
            self.why_not = "what it draws from torch's generator could not be drawn anew"
        return value

    def _apart(self) -> T:
        """The second call, with a generator of its own: whether it draws from no other."""
        states = randomness.capture()
        self._generator.set_state(states.torch)
        made = _made(self._make, self._generator, apart=True)
        if isinstance(made.error, _Hidden):
            self.why_not = str(made.error)
        elif not torch.equal(torch.get_rng_state(), states.torch):
            self.why_not = "it draws from torch's generator in a way that cannot be told"
        if self.why_not:
            randomness.restore(states)
            return self._make()
        torch.set_rng_state(made.after)
        value: T = _value(made)
        return value

    # -- what was made ahead -----------------------------------------------------------------------------

    def _taken(self) -> T:
        made = self._ready[0].result()
        assert made is not None
        drew = not torch.equal(made.before, made.after)
        elsewhere = drew and self._again and not torch.equal(torch.get_rng_state(), made.before)
        if isinstance(made.error, _Hidden) or elsewhere:
            return self._anew(made)
        self._ready.popleft()
        if drew:
            self._dropped = 0
            torch.set_rng_state(made.after)
        if made.error is None:
            self._submit()
        else:
            self._end("it raised an exception")
        value: T = _value(made)
        return value

    def _anew(self, made: _Made) -> T:
        """Somebody drew since: drop what lies ready, and make it as it is asked for."""
        self._drop()
        self._dropped += 1
        if isinstance(made.error, _Hidden):
            self._end(str(made.error))
        elif self._dropped >= _MOST_DROPPED:
            self._end("others draw from torch's generator in every step")
        value = self._make()
        if not self.why_not:
            self._go_on()
        return value

    def _go_on(self) -> None:
        """Make what follows from where the process's generator stands."""
        self._generator.set_state(torch.get_rng_state())
        self._failed.clear()
        while len(self._ready) < self._depth:
            self._submit()

    def _submit(self) -> None:
        assert self._pool is not None
        surroundings = torch.is_grad_enabled(), _stream()
        made = self._pool.submit(
            _made_ahead, self._failed, self._make, self._generator, self._again, surroundings
        )
        self._ready.append(made)

    def _drop(self) -> None:
        """Forget what lies ready, and wait for what is being made."""
        for future in self._ready:
            if not future.cancel():
                future.exception()
        self._ready.clear()


class _Hidden(BaseException):
    """Something is drawn by what takes no generator, or on a device."""


class _Made(NamedTuple):
    """What came of one call, and where the generator stood before it and behind it."""

    value: Any
    error: BaseException | None
    before: torch.Tensor
    after: torch.Tensor


class _Drawing(TorchFunctionMode):  # type: ignore[misc]
    """Has this thread draw from a generator of its own wherever torch's host generator is meant."""

    def __init__(self, generator: torch.Generator) -> None:
        super().__init__()
        self._generator = generator
        #: Of the call under way, what a bare ``except`` in it may have taken.
        self.hidden: _Hidden | None = None

    def _refuse(self, why: str) -> None:
        self.hidden = _Hidden(why)
        raise self.hidden

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name, given = getattr(func, "__name__", ""), kwargs or {}
        if name in _HIDE and given.get("dropout_p", 1.0) and given.get("generator") is None:
            self._refuse(f"{name} takes no generator")
        if name in _DRAW and given.get("generator") is None:
            if not _on_the_host(args, given):
                self._refuse(f"{name} draws on a device")
            given = {**given, "generator": self._generator}
        return func(*args, **given)


def _made(
    make: Callable[[], Any], generator: torch.Generator, apart: bool, surroundings: Any = None
) -> _Made:
    """One call, which draws from this generator."""
    before, drawing = generator.get_state(), _Drawing(generator)
    grad, stream = surroundings or (torch.is_grad_enabled(), None)
    value, error = None, None
    try:
        with torch.set_grad_enabled(grad), torch.cuda.stream(stream):
            if not apart:
                value = make()
            else:
                with drawing:
                    value = make()
    except BaseException as caught:
        error = caught
    return _Made(value, drawing.hidden or error, before, generator.get_state())


def _made_ahead(failed: threading.Event, *how: Any) -> _Made | None:
    if failed.is_set():
        return None
    made = _made(*how)
    if made.error is not None:
        failed.set()
    return made


def _value(made: _Made) -> Any:
    if made.error is None:
        return made.value
    try:
        raise made.error
    finally:
        del made  # or the traceback would keep it in a cycle


def _stream() -> Any:
    return torch.cuda.current_stream() if torch.cuda.is_initialized() else None


def _on_the_host(args: Any, kwargs: Any) -> bool:
    device = kwargs.get("device")
    if device is not None:
        return str(torch.device(device).type) == "cpu"
    return all(one.device.type == "cpu" for one in (*args, *kwargs.values()) if isinstance(one, torch.Tensor))


def _unlike_a_thread() -> str:
    """What holds for this thread alone and would not for another; "" where nothing does."""
    if torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda"):
        return "it is called under autocast"
    if torch.is_inference_mode_enabled():
        return "it is called in inference mode"
    if torch.get_default_device().type != "cpu":
        return "it is called with another default device"
    return ""
