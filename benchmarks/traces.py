"""A large torch.profiler trace: `hotloop analyze` beside HolisticTraceAnalysis, time and memory.

    python benchmarks/traces.py [--size 1GB] [--base TRACE] [--rounds 2] [--limit 1800] [--json FILE]

The trace repeats a real one with new times and ids: ``--base``, or one recorded here with torch.profiler on
the CPU and given a simulated device. Both read the same file and say where time goes, HTA by its temporal,
idle-time, kernel and overlap breakdowns. HTA has an environment of its own (``.bench/hta``), made once.
Where it takes more than ``--limit`` seconds or nine tenths of the free memory, it is ended, and the numbers
are what it had taken by then: at least so much.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
HTA = ("HolisticTraceAnalysis==0.5.0", "pandas<3")
#: What HTA does that answers the same questions.
HTA_SCRIPT = """
import sys
from hta.trace_analysis import TraceAnalysis
analysis = TraceAnalysis(trace_files={0: sys.argv[1]}, trace_dir=sys.argv[2])
print(analysis.get_temporal_breakdown(visualize=False).to_string())
print(analysis.get_idle_time_breakdown(visualize=False)[0].to_string())
print(analysis.get_gpu_kernel_breakdown(visualize=False)[0].to_string())
print(analysis.get_comm_comp_overlap(visualize=False).to_string())
"""
#: ru_maxrss would hold what the parent had before exec.
PEAK = "import atexit, sys; atexit.register(lambda: sys.stderr.write(open('/proc/self/status').read()))\n"
HOTLOOP = "import sys; from hotloop.cli.main import main; sys.exit(main(sys.argv[1:]))"
KERNEL_ARGS = {"External id": 1, "queued": 0, "device": 0, "context": 1, "stream": 7}
KERNEL_SHAPE = {
    "registers per thread": 32, "shared memory": 0, "blocks per SM": 1.5, "warps per SM": 6.0,
    "grid": [128, 1, 1], "block": [128, 1, 1], "est. achieved occupancy %": 9,
}  # fmt: skip
HEADER = """{
  "schemaVersion": 1,
  "deviceProperties": [
    {"id": 0, "name": "simulated", "computeMajor": 8}
  ],
  "distributedInfo": {"backend": "nccl", "rank": 0, "world_size": 1},
  "displayTimeUnit": "ms",
  "baseTimeNanoseconds": 1790857026000000000,
  "traceEvents": ["""
KERNELS = {"conv": "sm80_xmma_fprop_implicit_gemm_tf32f32", "mm": "ampere_sgemm_128x64_tn"}


def recorded() -> list[dict[str, Any]]:
    """Events of a small training loop under torch.profiler, with kernels for its innermost operators."""
    import torch
    from torch import nn
    from torch.profiler import profile, schedule

    layers = [nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU()]
    layers += [
        layer for _ in range(8) for layer in (nn.Conv2d(8, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU())
    ]
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(8 * 14 * 14, 10))
    optimizer = torch.optim.Adam(model.parameters())
    data = torch.utils.data.TensorDataset(torch.randn(64, 3, 16, 16), torch.randint(0, 10, (64,)))
    with profile(schedule=schedule(wait=0, warmup=2, active=5, repeat=1), record_shapes=True) as profiler:
        for x, y in torch.utils.data.DataLoader(data, batch_size=8):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x), y).backward()
            optimizer.step()
            profiler.step()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "trace.json"
        profiler.export_chrome_trace(str(path))
        return with_device(json.loads(path.read_text())["traceEvents"])


def with_device(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """A launch, a kernel and their flow for every operator that calls no other."""
    operators = sorted((e for e in events if e.get("cat") == "cpu_op"), key=lambda event: event["ts"])
    added, free = [], 0.0
    for number, event in enumerate(operators, 1):
        end = event["ts"] + event["dur"]
        if number < len(operators) and operators[number]["ts"] < end:
            continue
        kernel = next((kernel for part, kernel in KERNELS.items() if part in event["name"]), "")
        call_us, work_us = (
            min(3.0, event["dur"] / 2),
            max(2.0, event["dur"] / 4),
        )  # HTA fails on less than 1 us
        begin = max(free, end + 4)
        free = begin + work_us
        call = {"pid": event["pid"], "tid": event["tid"], "ts": end - call_us}
        work = {"pid": 0, "tid": 7, "ts": begin}
        flow = {"id": number, "cat": "ac2g", "name": "ac2g"}
        launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "dur": call_us}
        run = {
            "ph": "X",
            "cat": "kernel",
            "name": kernel or f"void {event['name']}_kernel<4>(int)",
            "dur": work_us,
        }
        added += [
            launch | call | {"args": {"External id": 1, "cbid": 211, "correlation": number}},
            {"ph": "s"} | call | flow,
            run | work | {"args": KERNEL_ARGS | {"correlation": number} | KERNEL_SHAPE},
            {"ph": "f"} | work | flow,
        ]
    return events + added


def repeated(events: list[dict[str, Any]], num_bytes: int) -> Iterator[str]:
    """The text of a trace of about so many bytes, as Kineto lays it out."""
    steps = [event for event in events if str(event.get("name")).startswith("ProfilerStep#")]
    timed = [event for event in events if event.get("ph") in "Xsf" and isinstance(event["pid"], int)]
    first = min(event["ts"] for event in steps)
    length = max(event["ts"] + event["dur"] for event in steps) - first
    ids = 1 + max(value for event in timed for value in _ids(event))
    templates = [_template(event, first, length, len(steps), ids) for event in timed]
    yield HEADER
    written, number, comma = 0, 0, ""
    while written < num_bytes:
        for template, holes in templates:
            text = comma + template % tuple([value + number * stride for value, stride in holes])
            written += len(text)
            comma = ","
            yield text
        number += 1
    yield '\n  ],"traceName": "trace.json" }'


def _ids(event: dict[str, Any]) -> Iterator[int]:
    args = event.get("args", {})
    yield from (value or 0 for value in (event.get("id"), args.get("External id"), args.get("correlation")))


def _template(
    event: dict[str, Any], first: float, length: float, steps: int, ids: int
) -> tuple[str, list[tuple[float, float]]]:
    """An event's text with holes, and what goes into each: its value, and how much more per repetition."""
    holes: list[tuple[float, float]] = []

    def hole(value: float, stride: float, form: str = "%d") -> str:
        holes.append((value, stride))
        return form

    def text(value: Any) -> str:
        return json.dumps(value).replace("%", "%%")

    name = text(event["name"])
    if name.startswith('"ProfilerStep#'):
        name = f'"ProfilerStep#{hole(int(name[14:-1]), steps)}"'
    parts = [f'"ph": "{event["ph"]}", "cat": "{event["cat"]}", "name": {name}']
    parts += [f'"pid": {event["pid"]}, "tid": {event["tid"]}']
    parts += [f'"ts": {hole(4_385_526_901_580 + event["ts"] - first, length, "%.3f")}']
    if "id" in event:
        parts += [f'"id": {hole(event["id"], ids)}']
    if "dur" in event:
        parts += [f'"dur": {event["dur"]:.3f}']
    args = (
        f"{text(key)}: {hole(value, ids) if key in ('External id', 'correlation') else text(value)}"
        for key, value in event.get("args", {}).items()
    )
    if "args" in event:
        parts += [f'"args": {{\n      {", ".join(args)}\n    }}']
    return "\n  {\n    " + ",\n    ".join(parts) + "\n  }", holes


@dataclass(frozen=True, kw_only=True)
class Run:
    """One run of a script; ``ended`` says why it was ended early: then the numbers are lower bounds."""

    seconds: float
    peak_mb: float
    ended: str = ""


def measured(python: str, script: str, *arguments: str, limit_s: float, **environment: str) -> Run:
    """Run a script to its end, or to a limit of time or memory."""
    most = 0.9 * _kib("/proc/meminfo", "MemAvailable") * 1024 / 1e6
    with tempfile.TemporaryFile("w+") as said:
        start = time.perf_counter()
        process = subprocess.Popen(
            [python, "-c", PEAK + script, *arguments],
            stdout=subprocess.DEVNULL,
            stderr=said,
            env=os.environ | environment,
        )
        peak, ended = 0.0, ""
        while process.poll() is None and not ended:
            time.sleep(0.1)
            peak = max(peak, _kib(f"/proc/{process.pid}/status", "VmHWM") * 1024 / 1e6)
            ended = "out of memory" if peak > most else "out of time" if _since(start) > limit_s else ""
        if ended:
            process.kill()
        status, seconds = process.wait(), _since(start)
        said.seek(0)
        words = said.read()
    found = re.search(r"VmHWM:\s*(\d+) kB", words)
    if found is not None:
        peak = int(found[1]) * 1024 / 1e6
    if not ended and (status == -signal.SIGKILL or "MemoryError" in words):
        ended = "out of memory"
    if status and not ended:
        raise SystemExit(f"{python} failed:\n{words[-2000:]}")
    return Run(seconds=seconds, peak_mb=peak, ended=ended)


def _since(start: float) -> float:
    return time.perf_counter() - start


def _kib(file: str, name: str) -> int:
    """A number of kB from one of the kernel's files; 0 where the process is gone."""
    try:
        found = re.search(rf"^{name}:\s*(\d+) kB", Path(file).read_text(), re.M)
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return int(found[1]) if found else 0


def hta_python() -> Path:
    """The python of HTA's environment, made where there is none. Needs a package index."""
    folder = ROOT / ".bench" / "hta"
    python = folder / "bin" / "python"
    if not (folder / ".ready").exists():
        print(f"making HTA's environment in {folder} ...", file=sys.stderr)
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
        subprocess.run([str(python), "-m", "pip", "install", "--quiet", *HTA], check=True)
        (folder / ".ready").touch()
    return python


def _median(runs: list[Run]) -> tuple[float, float]:
    return statistics.median(run.seconds for run in runs), statistics.median(run.peak_mb for run in runs)


def num_bytes(text: str) -> int:
    """``500MB``, ``1GB`` or a number of bytes."""
    found = re.fullmatch(r"([\d.]+)\s*(MB|GB)?", text.strip(), re.I)
    if found is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no size, as in 500MB or 1GB")
    return int(float(found[1]) * {"": 1, "MB": 1e6, "GB": 1e9}[(found[2] or "").upper()])


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", type=num_bytes, default="1GB", help="of the trace, as in 500MB or 1GB")
    parser.add_argument("--base", type=Path, help="a trace to repeat")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--limit", type=float, default=1800, help="seconds for one run")
    parser.add_argument("--without-hta", action="store_true")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    if options.base is None:
        events = recorded()
    else:
        data = options.base.read_bytes()
        events = json.loads(gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data)["traceEvents"]
    rows: dict[str, list[Run]] = {"hotloop analyze": []}
    (ROOT / ".bench").mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=ROOT / ".bench") as folder:
        path = Path(folder) / "rank-0.json"
        with path.open("w") as stream:
            stream.writelines(repeated(events, options.size))
        mb = path.stat().st_size / 1e6
        hta = None if options.without_hta else str(hta_python())
        for _ in range(options.rounds):
            environment = {"PYTHONPATH": str(ROOT / "src")}
            arguments = (HOTLOOP, "analyze", str(path), "--json")
            rows["hotloop analyze"].append(
                measured(sys.executable, *arguments, limit_s=options.limit, **environment)
            )
            if hta:
                peer = measured(hta, HTA_SCRIPT, str(path), folder, limit_s=options.limit)
                rows.setdefault("HolisticTraceAnalysis", []).append(peer)
                hta = None if peer.ended else hta  # once is enough to know
    print(f"{mb:,.0f} MB, {options.rounds} rounds, medians")
    for name, runs in rows.items():
        seconds, peak = _median(runs)
        ended = f"  ended: {runs[-1].ended}, at least" if runs[-1].ended else ""
        print(f"{name:<24}{seconds:8.1f} s {mb / seconds:8.0f} MB/s {peak:8,.0f} MB at most{ended}")
    if peers := rows.get("HolisticTraceAnalysis"):
        ours, theirs = _median(rows["hotloop analyze"]), _median(peers)
        least = "at least " if peers[-1].ended else ""
        print(f"{least}{theirs[0] / ours[0]:.1f} x as fast, in {ours[1] / theirs[1]:.2f} of the memory")
    if options.json:
        options.json.write_text(json.dumps({"mb": mb, "runs": rows}, indent=1, default=vars))


if __name__ == "__main__":
    main()
