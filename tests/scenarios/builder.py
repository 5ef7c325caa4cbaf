"""Writes a Process as the probe would: intervals on a fake clock, call sites and samples from a source text.

    run = Script(SOURCE)
    with run.at(3):                     # line 3 of SOURCE is executing
        run.fetch(iterator=1, ms=2)
        run.work(ms=4)                  # time in no observed call: a gap
    process = run.process()

A line is written as a number, or found by the marker comment ``# <name>`` at its end.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from hotloop.record import rows as row
from hotloop.record.recording import ROW_DTYPE, Note, Process

FILE = "/home/user/train.py"
MS = 1_000_000


class At:
    """Lines of a script that execute for a block, or for one call: ``run.at("fetch").fetch(1, 2)``."""

    def __init__(self, script: Script, marks: tuple[int | str, ...]) -> None:
        self._script, self._lines = script, [(script.line(mark), ()) for mark in marks]

    def __enter__(self) -> None:
        self._script._stack.extend(self._lines)

    def __exit__(self, *_: object) -> None:
        del self._script._stack[len(self._script._stack) - len(self._lines) :]

    def __getattr__(self, name: str) -> Any:
        def call(*args: Any, **more: Any) -> Any:
            with self:
                return getattr(self._script, name)(*args, **more)

        return call


class Script:
    """One fake process. ``now`` is ns; ``sample_ms`` is the sampler's period (0: no sampler)."""

    def __init__(
        self, source: str, *, sample_ms: float = 9.973, start_ns: int = 1_000_000_000, pid: int = 100
    ) -> None:
        self.source = source
        self.start_ns = start_ns
        self.now = start_ns
        self.pid = pid
        self.rows: list[tuple[int, ...]] = []
        self.notes: dict[str, list[Note]] = {
            "process": [{"note": "process", "pid": pid, "role": "main", "rank": 0}],
            "source": [{"note": "source", "file": FILE, "text": source}],
        }
        self.workers: list[Process] = []
        self._lines = source.splitlines()
        self._functions = _functions(source)
        self._stack: list[tuple[int, tuple[str, ...]]] = []
        self._sites: dict[Any, int] = {}
        self._stacks: dict[Any, int] = {}
        self._period = int(sample_ms * MS)
        self._next_sample = start_ns + self._period
        self._last_sample = start_ns
        self._library: tuple[str, ...] = ()

    # -- where the script is

    def line(self, mark: int | str) -> int:
        """A line number, or the line that ends with the comment ``# mark``."""
        if isinstance(mark, int):
            return mark
        found = [i for i, text in enumerate(self._lines, 1) if text.rstrip().endswith(f"# {mark}")]
        assert len(found) == 1, (mark, found)
        return found[0]

    def at(self, *marks: int | str) -> At:
        """These lines execute, the outermost first, each in a frame of its own."""
        return At(self, marks)

    @contextmanager
    def library(self, *frames: str) -> Iterator[None]:
        """Library frames lie below the last user frame."""
        before, self._library = self._library, frames
        try:
            yield
        finally:
            self._library = before

    def frames(self) -> list[list[Any]]:
        """User frames, outermost first, as notes hold them."""
        return [[FILE, line, *self._functions(line)] for line, _ in self._stack]

    def site(self) -> int:
        """Id of the present call site: the innermost line's, with the stack of its first call."""
        frames = self.frames()
        if not frames:
            return 0
        key = repr(frames[-1])
        if key not in self._sites:
            self._sites[key] = len(self._sites) + 1
            file, line, func, func_line = frames[-1]
            self.note(
                "site", id=self._sites[key], file=file, line=line, end_line=line, col=0, end_col=0, func=func,
                func_line=func_line, stack=frames,
            )  # fmt: skip
        return self._sites[key]

    # -- what happens

    def note(self, kind: str, **fields: Any) -> None:
        self.notes.setdefault(kind, []).append({"note": kind, "t": self.now, **fields})

    def work(self, ms: float, *, late_us: int = 20, on_cpu: float = 1.0) -> None:
        """Time passes; the sampler looks at the present lines."""
        end = self.now + round(ms * MS)
        while self._period and self._next_sample <= end:
            self.now = self._next_sample
            self._sample(late_us, on_cpu)
            self._next_sample += self._period
        self.now = end

    def _sample(self, late_us: int, on_cpu: float) -> None:
        frames = self.frames()
        key = (repr(frames), self._library)
        if key not in self._stacks:
            self._stacks[key] = len(self._stacks) + 1
            self.note("stack", id=self._stacks[key], frames=frames, library=list(self._library))
        weight = self.now - self._last_sample
        self._last_sample = self.now
        self._emit(
            row.SAMPLE, self.now, weight, value=self._stacks[key], obj=round(on_cpu * 1000), extra=late_us
        )

    def _emit(
        self,
        kind: int,
        start: int,
        duration: int,
        *,
        value: int = 0,
        site: int = 0,
        obj: int = 0,
        extra: int = 0,
        flags: int = 0,
    ) -> None:
        if duration > row.U32_MAX:
            duration, flags = duration // 1000, flags | row.LONG
        self.rows.append((start, duration, value, site, obj, extra, flags, kind))

    @contextmanager
    def span(self, kind: int, **fields: int) -> Iterator[None]:
        """An observed call around what happens inside."""
        start, site = self.now, self.site()
        self.now += 1  # what happens inside begins later, as on a real clock
        try:
            yield
        finally:
            self._emit(kind, start, self.now - start, site=site, **fields)

    def call(self, kind: int, ms: float, *, late_us: int = 20, on_cpu: float = 1.0, **fields: int) -> None:
        """An observed call that lasts ``ms``."""
        start, site = self.now, self.site()
        self.work(ms, late_us=late_us, on_cpu=on_cpu)
        self._emit(kind, start, self.now - start, site=site, **fields)

    def iterate(self, iterator: int, loader: int = 1, ms: float = 0.1) -> None:
        self.note("iterator", id=iterator, loader=loader, workers=[], pinning=False)
        self.call(row.ITER, ms, obj=iterator, value=loader)

    def fetch(
        self,
        iterator: int,
        ms: float,
        *,
        samples: int = 32,
        end: bool = False,
        workers: bool = False,
        ready: int = row.U16_MAX,
        on_cpu: float = 1.0,
    ) -> None:
        flags = (row.FETCH_END if end else 0) | (row.FETCH_WORKERS if workers else 0)
        self.call(
            row.FETCH, ms, obj=iterator, value=0 if end else samples, extra=ready, flags=flags, on_cpu=on_cpu
        )

    def forward(self, ms: float, *, module: int = 1, grad: bool = True, training: bool = True) -> None:
        flags = (
            row.FORWARD_PARAMS | (row.FORWARD_GRAD if grad else 0) | (row.FORWARD_TRAINING if training else 0)
        )
        self.call(row.FORWARD, ms, obj=module, flags=flags)

    def evaluate(self, ms: float, *, module: int = 1) -> None:
        self.forward(ms, module=module, grad=False, training=False)

    def backward(self, ms: float) -> None:
        self.call(row.BACKWARD, ms)

    def update(self, ms: float, *, optimizer: int = 1) -> None:
        self.call(row.OPTIMIZER, ms, obj=optimizer)

    def step(
        self, forward: float = 3, backward: float = 4, update: float = 1, *,
        within: tuple[str, ...] = (), optimizer: int = 1,
    ) -> None:  # fmt: skip
        """A training step at the lines marked ``forward``, ``backward`` and ``update``."""
        self.at(*within, "forward").forward(forward)
        self.at(*within, "backward").backward(backward)
        self.at(*within, "update").update(update, optimizer=optimizer)

    def train(self, forward: float, backward: float, update: float) -> None:
        """A training step at the present lines."""
        self.forward(forward)
        self.backward(backward)
        self.update(update)

    def process(self, **changes: Any) -> Process:
        """The process as a reader would give it."""
        rows = np.array(sorted(self.rows, key=lambda r: r[0]), ROW_DTYPE)
        values: dict[str, Any] = {
            "pid": self.pid, "ppid": 1, "role": "main", "rank": 0, "start_ns": self.start_ns,
            "end_ns": self.now,
            "rows": rows, "notes": self.notes, "workers": tuple(self.workers),
        }  # fmt: skip
        return Process(**(values | changes))


def _functions(source: str) -> Any:
    """line -> (name, first line) of its innermost function, as code objects have them."""
    found = [
        (
            node.lineno,
            node.end_lineno or node.lineno,
            node.name,
            min([node.lineno, *(d.lineno for d in node.decorator_list)]),
        )
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]

    def of(line: int) -> tuple[str, int]:
        around = [f for f in found if f[0] < line <= f[1]]
        if not around:
            return "<module>", 1
        best = max(around, key=lambda f: f[0])
        return best[2], best[3]

    return of
