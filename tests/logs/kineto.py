"""A simulated training process and its device, written down as Kineto does; times in whole microseconds.

The host is one or two threads that act one after the other; each stream of the device works in order.
"""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

PID, MAIN, BACKWARD, DEVICE, STREAM, NCCL = 4000, 4000, 4001, 0, 7, 20
#: From the beginning of a launching call to the earliest start of its kernel.
LATENCY_US = 6
CALL_US = 4
BASE_US = 4_385_526_901_580

A100 = {"id": 0, "name": "NVIDIA A100-SXM4-80GB", "totalGlobalMem": 84990623744}
A100 |= {"computeMajor": 8, "computeMinor": 0}
V100 = {**A100, "name": "Tesla V100-SXM2-32GB", "totalGlobalMem": 34089730048, "computeMajor": 7}


_HEAD = """{
  "schemaVersion": 1,
  "deviceProperties": [%s],
  "distributedInfo": {"backend": "nccl", "rank": 3, "world_size": 8},
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1790857026000000000,
  "traceEvents": [
  {
    "ph": "M", "name": "process_name", "ts": 0.000, "pid": 4000, "tid": 0,
    "args": {
      "name": "python"
    }
  }"""


@dataclass
class Machine:
    """What happens on it is recorded in ``events``."""

    now: int = 0
    thread: int = MAIN
    events: list[dict[str, Any]] = field(default_factory=list)
    free: dict[int, int] = field(default_factory=dict)  # when each stream has done all of its work
    correlation: int = 100

    @contextmanager
    def span(self, name: str, cat: str = "user_annotation") -> Iterator[None]:
        """A host event around whatever is done inside."""
        start, thread = self.now, self.thread
        yield
        self._add(cat, name, thread, start, self.now - start, {"External id": len(self.events)})

    @contextmanager
    def on(self, thread: int) -> Iterator[None]:
        """Do something on another thread while this one waits."""
        before, self.thread = self.thread, thread
        yield
        self.thread = before

    def step(self, number: int) -> Any:
        return self.span(f"ProfilerStep#{number}")

    def python(self, us: int) -> None:
        """Time in which nothing is recorded."""
        self.now += us

    def op(
        self,
        name: str = "aten::mm",
        host_us: int = 10,
        device_us: int = 0,
        kernel: str = "ampere_sgemm",
        **more: Any,
    ) -> None:
        """An operator: some host time, then a launch."""
        with self.span(name, "cpu_op"):
            self.now += host_us
            if device_us:
                self.launch(kernel, device_us, **more)

    def launch(
        self,
        kernel: str,
        us: int,
        *,
        stream: int = STREAM,
        after: int = 0,
        call: str = "cudaLaunchKernel",
        cat: str = "kernel",
        num_bytes: int | None = None,
    ) -> int:
        """A launching call and the work it starts, not before ``after``; returns when that is done."""
        self.correlation += 1
        begin = max(self.now + LATENCY_US, self.free.get(stream, 0), after)
        self.free[stream] = begin + us
        self._runtime(call, CALL_US, self.correlation)
        args = {"External id": 1, "queued": 0, "device": DEVICE, "context": 1, "stream": stream}
        args["correlation"] = self.correlation
        if num_bytes is not None:
            args |= {"bytes": num_bytes, "memory bandwidth (GB/s)": num_bytes / us / 1e3}
        else:
            args |= {"registers per thread": 32, "grid": [24, 1, 1], "block": [128, 1, 1]}
        self._add(cat, kernel, stream, begin, us, args, pid=DEVICE)
        return begin + us

    def wait(self, call: str = "cudaStreamSynchronize") -> None:
        """Wait until the device has done everything."""
        self.correlation += 1
        done = max([*self.free.values(), self.now])
        self._runtime(call, done - self.now + 5, self.correlation)

    def item(self) -> None:
        """``.item()``: a small copy to the host, and a wait for it."""
        with self.span("aten::item", "cpu_op"), self.span("aten::_local_scalar_dense", "cpu_op"):
            self.launch(
                "Memcpy DtoH (Device -> Pageable)", 1, call="cudaMemcpyAsync", cat="gpu_memcpy", num_bytes=4
            )
            self.wait()

    def copy(self, num_bytes: int, us: int, *, pinned: bool, non_blocking: bool) -> None:
        """``x.to(device)``."""
        kind = "Pinned" if pinned else "Pageable"
        with self.span("aten::to", "cpu_op"), self.span("aten::copy_", "cpu_op"):
            self.launch(
                f"Memcpy HtoD ({kind} -> Device)",
                us,
                call="cudaMemcpyAsync",
                cat="gpu_memcpy",
                num_bytes=num_bytes,
            )
            if not (pinned and non_blocking):
                self.wait()

    def load(self, us: int, kind: str = "MultiProcessing") -> None:
        """Wait for a batch."""
        with self.span(f"enumerate(DataLoader)#_{kind}DataLoaderIter.__next__"):
            self.now += us

    def _runtime(self, name: str, us: int, correlation: int) -> None:
        args = {"External id": 1, "cbid": 211, "correlation": correlation}
        self._add("cuda_runtime", name, self.thread, self.now, us, args)
        self.now += us

    def _add(
        self, cat: str, name: str, thread: int, start: int, us: int, args: dict[str, Any], pid: int = PID
    ) -> None:
        where = {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": thread}
        self.events.append({**where, "ts": start, "dur": us, "args": args})

    def save(
        self, path: Path, *, device: dict[str, Any] = A100, rank: int = 3, truncate: int | None = None
    ) -> Path:
        """Write the trace as Kineto writes it; gzip if the name says so."""
        data = kineto_text(self.events, device).replace(b'"rank": 3', b'"rank": %d' % rank)[:truncate]
        path.write_bytes(gzip.compress(data, 1) if path.suffix == ".gz" else data)
        return path


def kineto_text(events: list[dict[str, Any]], device: dict[str, Any] = A100) -> bytes:
    """Events in Kineto's layout: operators first, flows between calls and kernels, three decimals of a us."""
    parts = [_HEAD % json.dumps(device)]
    for event in sorted(events, key=lambda event: event["cat"] not in ("cpu_op", "user_annotation")):
        parts.append(_complete(event))
        if event["cat"] in ("kernel", "gpu_memcpy"):
            flow = {"ph": "f", "id": event["args"]["correlation"], "pid": event["pid"], "tid": event["tid"]}
            parts.append("  " + json.dumps(flow | {"ts": event["ts"] + BASE_US, "cat": "ac2g", "bp": "e"}))
    return (",\n".join(parts) + '\n  ],"traceName": "trace.json" }').encode()


def _complete(event: dict[str, Any]) -> str:
    args = ", ".join(f"{json.dumps(name)}: {json.dumps(value)}" for name, value in event["args"].items())
    return (
        f'  {{\n    "ph": "X",\n    "cat": "{event["cat"]}",\n    "name": {json.dumps(event["name"])},\n'
        f'    "pid": {event["pid"]},\n    "tid": {event["tid"]},\n    "ts": {_us(event["ts"] + BASE_US)},\n'
        f'    "dur": {_us(event["dur"])}\n    ,\n    "args": {{\n      {args}\n    }}\n  }}'
    )


def _us(value: int) -> str:
    return f"{value}.000"
