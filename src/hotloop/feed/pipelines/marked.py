"""Stages marked on the methods and functions that a dataset's ``__getitem__`` calls.

A cut runs ``__getitem__`` twice: once up to the marked call, where it is left by an exception that nobody
catches; later from the beginning, with every marked call before the cut skipped and the one at the cut
answered by the value that was kept. So code between the marked calls may only pass values along; a skipped
value says so when it is used.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable
from typing import Any, Literal, NoReturn, ParamSpec, TypeVar

from hotloop.feed.errors import FeedError
from hotloop.feed.pipelines.pipeline import WHOLE, Observer, Pipeline, Remaining, as_it_is

P = ParamSpec("P")
R = TypeVar("R")

Call = Callable[[], Any]


class StageError(FeedError, ValueError):
    """A pipeline cannot be cut where it was asked to be."""


class _Taps(threading.local):
    """Who listens to marked calls in this thread; nobody in ordinary reading."""

    current: Callable[[str, Call], Any] | None = None


_taps = _Taps()


def stage(name: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Mark a method or function called by a dataset's ``__getitem__`` as a named stage of its pipeline.

    ::

        class Photos(Dataset):
            def __getitem__(self, index):
                return self.augment(self.decode(index)), self.labels[index]

            @stage("decode")
            def decode(self, index): ...

    ``cached(dataset, stage="decode")`` then keeps what ``decode`` gave.
    """

    def mark(function: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(function)
        def marked(*args: P.args, **kwargs: P.kwargs) -> R:
            tap = _taps.current
            if tap is None:
                return function(*args, **kwargs)
            result: R = tap(name, functools.partial(function, *args, **kwargs))
            return result

        return marked

    return mark


class _tapped:  # noqa: N801 - a context manager
    def __init__(self, tap: Callable[[str, Call], Any]) -> None:
        self.tap = tap

    def __enter__(self) -> None:
        self.outer = _taps.current
        _taps.current = self.tap

    def __exit__(self, *error: object) -> None:
        _taps.current = self.outer


class MarkedPipeline(Pipeline):
    """A dataset whose ``__getitem__`` calls marked stages; what it does after the last is one more stage."""

    def __init__(self, dataset: Any, names: tuple[str, ...]) -> None:
        self.dataset = dataset
        self.names = (*names, WHOLE)

    def run(self, index: int, after: Observer) -> Any:
        """Read the sample, listening to the marked calls."""

        def tap(name: str, call: Call) -> Any:
            value = call()
            after(name, value)
            return value

        with _tapped(tap):
            sample = self.dataset[index]
        after(WHOLE, sample)
        return sample

    def prefix(self, cut: int) -> Any:
        """What the marked call gives; the dataset itself after the last stage."""
        return self.dataset if self.names[cut] == WHOLE else MarkedPrefix(self.dataset, self.names[cut])

    def remaining(self, cut: int) -> Remaining:
        """``__getitem__`` without the marked calls before the cut."""
        if self.names[cut] == WHOLE:
            return as_it_is
        return functools.partial(_replay, self.dataset, self.names[:cut], self.names[cut])


def find_marked(dataset: Any, index: int) -> MarkedPipeline | str:
    """Read one sample and listen: a pipeline, or why there is none; empty where nothing is marked."""
    names: list[str] = []

    def tap(name: str, call: Call) -> Any:
        value = call()
        names.append(name)
        return value

    with _tapped(tap):
        dataset[index]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        return f"stage {twice[0]!r} runs {names.count(twice[0])} times in one read: cache the dataset beneath"
    return MarkedPipeline(dataset, tuple(names)) if names else ""


class _Reached(BaseException):
    """Leaves ``__getitem__`` at the cut; not an ``Exception``, so that no handler of the dataset takes it."""

    def __init__(self, value: Any) -> None:
        self.value = value


class MarkedPrefix:
    """A dataset of what one marked stage gives."""

    def __init__(self, dataset: Any, name: str) -> None:
        self.dataset = dataset
        self.name = name

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, index: int) -> Any:
        def tap(name: str, call: Call) -> Any:
            value = call()
            if name == self.name:
                raise _Reached(value)
            return value

        try:
            with _tapped(tap):
                self.dataset[index]
        except _Reached as reached:
            return reached.value
        raise StageError(f"reading index {index} never came to stage {self.name!r}")


def _replay(dataset: Any, skipped: tuple[str, ...], at: str, index: int, value: Any) -> Any:
    answered = False

    def tap(name: str, call: Call) -> Any:
        nonlocal answered
        if name == at:
            answered = True
            return value
        return Skipped(name, at) if name in skipped else call()

    with _tapped(tap):
        sample = dataset[index]
    if not answered:
        raise StageError(f"reading index {index} never came to stage {at!r}")
    return sample


class Skipped:
    """Stands where the output of a skipped stage would be; may be passed along, not used."""

    def __init__(self, name: str, cut: str) -> None:
        self.__dict__["_names"] = (name, cut)

    def _used(self, *args: Any, **kwargs: Any) -> NoReturn:
        name, cut = self.__dict__["_names"]
        raise StageError(
            f"what stage {name!r} gives is used besides what stage {cut!r} gives",
            hint=f"cache after {name!r}, or let {cut!r} return all that is needed of it",
        )

    def __bool__(self) -> Literal[True]:
        self._used()

    __getattr__ = __setattr__ = __getitem__ = __iter__ = __len__ = __call__ = _used
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __lt__ = __gt__ = _used
    __int__ = __float__ = __index__ = __array__ = __eq__ = __hash__ = __reduce_ex__ = _used
