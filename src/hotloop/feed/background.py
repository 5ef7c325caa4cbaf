"""What a function makes, made in a thread ahead of the loop that asks, with the numbers it would have drawn.

Torch's host generator is one for the whole process: a thread that drew from it beside a step that draws from
it too would give both other numbers. Here the thread draws from a generator of its own, which begins where
the process's stands. What was made ahead is handed out where the process's generator still stands there, and
moves it on; where somebody drew meanwhile (dropout, an evaluation), it is dropped and made anew. So the order
of all draws is the one without a thread.
"""

from __future__ import annotations

import os
import pickle
import threading
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import ExitStack, nullcontext
from typing import Any, Final, Generic, NamedTuple, TypeVar

import torch
from torch.overrides import TorchFunctionMode

from hotloop.feed import randomness

T = TypeVar("T")

#: Results dropped one after the other, after which nothing is made ahead any more.
_MOST_DROPPED: Final = 8
#: Seconds that a thread may take to end.
_END_S: Final = 5.0
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
    "rrelu_with_noise",
    "rrelu_with_noise_", "scaled_dot_product_attention", "binomial", "gumbel_softmax", "_sample_dirichlet",
    "_standard_gamma", "lstm", "gru", "rnn_relu", "rnn_tanh", "multi_head_attention_forward",
    "fractional_max_pool2d", "fractional_max_pool3d", "fractional_max_pool2d_with_indices",
    "fractional_max_pool3d_with_indices",
])  # fmt: skip


class Background(Generic[T]):
    """Calls ``make()`` ahead of time, in a thread, and hands out what it gives in order.

    ``next_batch = Background(lambda: get_batch("train"))`` before the loop and ``x, y = next_batch()`` in it
    stand for ``x, y = get_batch("train")``, with the same batches bit for bit.

    Args:
        make: what makes one batch. It must not read what the loop changes: weights, a buffer that it fills,
            the number of the step.
        depth: how many batches may lie ready; at least 1.
        alone: nobody else draws from Python's or numpy's global generator before ``close()``. Without that
            promise a function that draws from them is called when it is asked for, as without a thread.
        again: ``make`` may be called anew for a batch that was dropped. False for an iterator, whose batches
            would be lost: one whose first batch draws from torch's generator is asked as without a thread.

    Calls that draw from torch's host generator get the numbers they would have got (see above); those that
    draw on a device, or by a function that takes no generator, are made when they are asked for, and so
    is everything in a process that was forked later. An exception of ``make`` is raised by the call that
    would have raised it, and from then on nothing is made ahead. Autograd's mode and the device and stream of
    CUDA are those of the first call. The thread ends with its last reader, or with the process. With
    ``alone`` numpy's and Python's generators stand ahead until then, or until ``close()``: that puts them
    back where what nobody asked for began, unless somebody drew since or ``make`` takes longer than 5 s.

    Raises:
        ValueError: ``depth`` is below 1.
    """

    def __init__(
        self, make: Callable[[], T], *, depth: int = 2, alone: bool = False, again: bool = True
    ) -> None:
        if depth < 1:
            raise ValueError(f"depth must be at least 1, got {depth}")
        self._make = make
        self._depth = depth
        self._alone = alone
        self._again = again
        self._pid = os.getpid()
        self._calls = 0
        self._draws = False
        self._dropped = 0
        self._ahead: _Ahead | None = None
        #: Why nothing is made ahead; "" where it is, or may yet be.
        self.why_not = ""

    def __call__(self) -> T:
        """What the next call of ``make`` gives."""
        if self.why_not or os.getpid() != self._pid:
            return self._make()
        return self._tried() if self._ahead is None else self._taken(self._ahead)

    def __iter__(self) -> Iterator[T]:
        return self

    def __next__(self) -> T:
        return self()

    def close(self) -> None:
        """End the thread; what lies ready is dropped with its draws; calls are made as they are asked for."""
        self._end("it was closed")

    def _end(self, why: str) -> None:
        self.why_not = why
        if self._ahead is not None:
            self._ahead.end()
            self._ahead = None

    # -- the first calls, made as they are asked for -----------------------------------------------------

    def _tried(self) -> T:
        self._calls += 1
        if self._calls == 1:
            self.why_not = _unlike_a_thread()
            return self._make() if self.why_not else self._watched()
        value = self._apart() if self._draws else self._make()
        if not self.why_not:
            self._ahead = _Ahead(self._make, self._depth, keep=self._alone, apart=self._again)
        return value

    def _watched(self) -> T:
        """The first call: which generators it draws from."""
        before = randomness.tokens()
        value = self._make()
        by_torch, *others = (one != other for one, other in zip(before, randomness.tokens(), strict=True))
        self._draws = by_torch
        if any(others) and not self._alone:
            self.why_not = "it draws from Python's or numpy's generator, as others may"
        elif by_torch and not self._again:
            self.why_not = "what it draws from torch's generator could not be drawn anew"
        return value

    def _apart(self) -> T:
        """The second call, with a generator of its own: whether it draws from no other."""
        states = randomness.capture()
        generator = torch.Generator()
        generator.set_state(states.torch)
        drawing = _Drawing(generator)
        try:
            with drawing:
                value = self._make()
        except _Hidden:
            pass
        except Exception:
            if drawing.hidden is None:
                torch.set_rng_state(generator.get_state())
                raise
        self.why_not = str(drawing.hidden or "")
        if not self.why_not and not torch.equal(torch.get_rng_state(), states.torch):
            self.why_not = "it draws from torch's generator in a way that cannot be told"
        if self.why_not:
            randomness.restore(states)
            return self._make()
        torch.set_rng_state(generator.get_state())
        return value

    # -- what was made ahead -----------------------------------------------------------------------------

    def _taken(self, ahead: _Ahead) -> T:
        made = ahead.first()
        drew = not torch.equal(made.before, made.after)
        if isinstance(made.error, _Hidden) or (
            drew and not torch.equal(torch.get_rng_state(), made.before) and self._again
        ):
            return self._anew(ahead, made)
        ahead.take()
        if drew:
            self._dropped = 0
            torch.set_rng_state(made.after)
        if made.error is None:
            value: T = made.value
            return value
        self._end("it raised an exception")
        try:
            raise made.error
        finally:
            del made, ahead  # or the traceback would keep them in a cycle

    def _anew(self, ahead: _Ahead, made: _Made) -> T:
        """Somebody drew since: drop what lies ready, and make it as it is asked for."""
        ahead.drop()
        if made.others is not None:
            randomness.restore_own(made.others)
        self._dropped += 1
        if isinstance(made.error, _Hidden):
            self._end(str(made.error))
        elif self._dropped >= _MOST_DROPPED:
            self._end("others draw from torch's generator in every step")
        value = self._make()
        if not self.why_not:
            ahead.go_on(torch.get_rng_state())
        return value


class _Hidden(BaseException):
    """Something is drawn by what takes no generator, or on a device."""


class _Made(NamedTuple):
    """What came of one call, and where generators stood before it and behind it."""

    value: Any
    error: BaseException | None
    before: torch.Tensor
    after: torch.Tensor
    others: tuple[Any, Any] | None


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


class _Ahead:
    """The thread, and what lies ready. Asked by one thread only."""

    def __init__(self, make: Callable[[], Any], depth: int, *, keep: bool, apart: bool) -> None:
        self._state = _State(depth, torch.get_rng_state())
        given = self._state, make, _surroundings(), keep, apart
        self._thread = threading.Thread(target=_run, args=given, name="hotloop-background", daemon=True)
        self._thread.start()
        # Not only at exit: where nobody asks any more, the thread and what it holds go.
        self._finalizer = weakref.finalize(self, _ended, self._state, self._thread)

    def first(self) -> _Made:
        """What is handed out next."""
        state = self._state
        with state.changed:
            while not state.ready:
                if not self._thread.is_alive():
                    raise RuntimeError("the thread that makes batches ended")
                state.changed.wait(1.0)
            return state.ready[0]

    def take(self) -> None:
        """It was handed out."""
        with self._state.changed:
            self._state.ready.popleft()
            self._state.changed.notify_all()

    def drop(self) -> None:
        """Hold on, and forget what lies ready."""
        state = self._state
        with state.changed:
            state.held = True
            while state.busy:
                state.changed.wait()
            state.ready.clear()

    def go_on(self, begin: torch.Tensor) -> None:
        """Make what follows from here."""
        state = self._state
        with state.changed:
            state.begin, state.held = begin, False
            state.changed.notify_all()

    def end(self) -> None:
        """End the thread."""
        self._finalizer()


class _State:
    """What the two threads share."""

    def __init__(self, depth: int, begin: torch.Tensor) -> None:
        self.depth = depth
        self.begin: torch.Tensor | None = (
            begin  # where the next call's draws begin; None: where the last ended
        )
        self.ready: deque[_Made] = deque()
        self.changed = threading.Condition()
        self.pid = os.getpid()
        self.held = False
        self.busy = False
        self.over = False
        self.late = False  # nobody waits for the thread any more
        self.drawn: tuple[Any, Any] | None = None  # where the last call left numpy's and Python's generators


def _run(state: _State, make: Callable[[], Any], surroundings: ExitStack, keep: bool, apart: bool) -> None:
    generator = torch.Generator()
    drawing = _Drawing(generator) if apart else nullcontext()
    with surroundings:
        while _due(state, generator):
            with drawing as mode:
                made = _made(make, generator, keep)
                hidden = getattr(mode, "hidden", None)
            if hidden is not None:
                made = made._replace(error=hidden)
            with state.changed:
                state.busy = False
                state.drawn = randomness.own() if keep else None
                state.held = state.held or made.error is not None
                state.ready.append(made)
                state.changed.notify_all()
            del made
        _give_back(state)


def _give_back(state: _State) -> None:
    """Put numpy's and Python's generators back where what nobody asked for began, if nobody drew since."""
    with state.changed:
        unasked = state.ready[0].others if state.ready else None
        state.ready.clear()
        drew = pickle.dumps(randomness.own()) != pickle.dumps(state.drawn)
        if unasked is not None and not drew and not state.late:
            randomness.restore_own(unasked)


def _due(state: _State, generator: torch.Generator) -> bool:
    """Wait until another one is to be made; False where it is over."""
    with state.changed:
        while not state.over and (state.held or len(state.ready) >= state.depth):
            state.changed.wait()
        if state.begin is not None:
            generator.set_state(state.begin)
            state.begin = None
        state.busy = not state.over
        return state.busy


def _made(make: Callable[[], Any], generator: torch.Generator, keep: bool) -> _Made:
    before = generator.get_state()
    others = randomness.own() if keep else None
    value, error = None, None
    try:
        value = make()
    except BaseException as caught:
        error = caught
    return _Made(value, error, before, generator.get_state(), others)


def _surroundings() -> ExitStack:
    """What holds for the calling thread, to be entered by another."""
    return _Entered(torch.is_grad_enabled(), *_of_cuda())


def _of_cuda() -> tuple[int, Any] | tuple[None, None]:
    if not torch.cuda.is_initialized():
        return None, None
    return torch.cuda.current_device(), torch.cuda.current_stream()


class _Entered(ExitStack):
    """Enters autograd's mode, and the device and stream of CUDA."""

    def __init__(self, grad: bool, device: int | None, stream: Any) -> None:
        super().__init__()
        self._grad, self._device, self._stream = grad, device, stream

    def __enter__(self) -> _Entered:
        super().__enter__()
        self.enter_context(torch.set_grad_enabled(self._grad))
        if self._device is not None:
            torch.cuda.set_device(self._device)
            self.enter_context(torch.cuda.stream(self._stream))
        return self


def _ended(state: _State, thread: threading.Thread) -> None:
    if os.getpid() != state.pid:  # forked: there is no thread, and its lock may be held for ever
        return
    with state.changed:
        state.over = True
        state.changed.notify_all()
    if thread is not threading.current_thread():
        thread.join(_END_S)
    with state.changed:
        state.late = thread.is_alive() and thread is not threading.current_thread()
