"""A run of many ranks in the true format, and what ``hotloop report`` takes for it: seconds, peak memory.

``python benchmarks/scale.py --ranks 64 --steps 20000 [--nodes 8] [--keep DIR] [--json FILE]``

Rows and notes go through ``record.writer`` and ``record.store`` as a run's do. A step is one of a plain
DistributedDataParallel loop of 50 ms: fetch and make in the training process, zero_grad, forward, loss,
backward, optimizer, and stack samples at the default 25 a second. One rank is slow at one line. With
``--nodes`` there is a run folder for each, merged by ``hotloop merge``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from hotloop.record import rows as r
from hotloop.record.store import Store
from hotloop.record.writer import Writer

MS = 1_000_000
FILE = "/home/user/train.py"
SOURCE = """import torch


def train(loader, model, optimizer):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        postprocess(x)
"""
LINES = {"fetch": 5, "zero": 6, "forward": 7, "backward": 8, "step": 9, "slow": 10}
SITES = {name: number for number, name in enumerate(LINES, 1)}


def one_rank(raw: Path, pid: int, rank: int, world: int, steps: int, *, slow: bool) -> int:
    """Writes one process; returns when its last row ends, in ns."""
    start = 10**12
    writer = Writer(str(raw), pid, start)
    about = {"schema": 1, "pid": pid, "ppid": 1, "parent_main_pid": None, "role": "main", "start_ns": start}
    env = {"MASTER_PORT": "29500", "RANK": str(rank), "WORLD_SIZE": str(world)}
    writer.note(
        "process", **about, rank=rank, local_rank=rank % 8, world_size=world, argv=["train.py"], env=env
    )
    for name, line in LINES.items():
        stack = [[FILE, line, "train", 4]]
        place = {
            "file": FILE,
            "line": line,
            "end_line": line,
            "col": 8,
            "end_col": 30,
            "func": "train",
            "func_line": 4,
        }
        writer.note("site", id=SITES[name], **place, stack=stack)
        writer.note("stack", id=SITES[name], frames=stack, library=[])
    writer.note("source", file=FILE, sha256="0" * 64, text=SOURCE)
    dataset = {"class": "Mine", "module": "data", "len": steps * 32 * world, "file": FILE, "line": 1}
    loader = {
        "batch_size": 32,
        "num_workers": 0,
        "prefetch_factor": None,
        "pin_memory": False,
        "iterable": False,
    }
    sampler = "torch.utils.data.distributed.DistributedSampler"
    writer.note(
        "loader", id=1, where=1, via=1, by="", **loader, persistent_workers=False, drop_last=False, timeout=0,
        shuffle=False, sampler=sampler, batch_sampler="torch.utils.data.sampler.BatchSampler", given=[],
        collate_fn="default_collate", dataset=dataset, **{"class": "torch.utils.data.DataLoader"},
    )  # fmt: skip
    writer.note("iterator", id=1, loader=1, workers=[], pinning=False, site=1, reset=False, num_batches=steps)
    sizes = {
        "num_params": 10**6,
        "num_trainable": 10**6,
        "param_bytes": 4 * 10**6,
        "trainable_bytes": 4 * 10**6,
    }
    writer.note(
        "module", id=1, **sizes, buffer_bytes=0, devices=["cpu"], training=True, wrapper="DDP",
        compiled=False, **{"class": "torch.nn.parallel.DistributedDataParallel"},
    )  # fmt: skip
    writer.note(
        "optimizer", id=1, module="torch.optim", num_params=10, lr=0.1, site=2, **{"class": "torch.optim.SGD"}
    )
    rng, row = random.Random(rank), writer.row
    at = begin = start + 3 * 10**9
    sampled = at
    for step in range(steps):
        own = int((5 if slow else 0) * MS + rng.random() * MS)
        fetch = 4 * MS
        row(r.MAKE, at + 1000, fetch - 2000, 0, 0, 0, 32)
        row(r.FETCH, at, fetch, 32, SITES["fetch"], 1, r.U16_MAX)
        row(r.ZERO_GRAD, at + fetch + 10_000, 200_000, 0, SITES["zero"], 1)
        flags = r.FORWARD_GRAD | r.FORWARD_TRAINING | r.FORWARD_PARAMS
        row(r.FORWARD, at + 5 * MS, 15 * MS, 0, SITES["forward"], 1, 0, flags)
        if step % 9 == 0:
            row(r.LOSS, at + 21 * MS, 0, 0x3F800000, SITES["backward"])
        row(r.BACKWARD, at + 21 * MS, 27 * MS - own, 0, SITES["backward"], 1)
        row(r.OPTIMIZER, at + 48 * MS + 50_000 - own, MS, 0, SITES["step"], 1)
        while sampled < at + 50 * MS:  # one sample falls into the phase that is going on then
            phase = (sampled - at) / MS
            name = (
                "fetch"
                if phase < 5
                else "forward"
                if phase < 20
                else "backward"
                if phase < 49 - own / MS
                else "slow"
            )
            row(r.SAMPLE, sampled, 40 * MS, SITES[name], 0, 900, 20)
            sampled += 40 * MS
        at += 50 * MS
    writer.note("exit", reason="exit")
    writer.close()
    assert at > begin
    return at


def recorded(folder: Path, ranks: range, world: int, steps: int) -> Path:
    """A run folder with these ranks."""
    store = Store(folder)
    store.begin(["torchrun", "train.py"], {"hostname": folder.name, "cores": 8.0, "cpu_count": 8})
    end = 0
    for rank in ranks:
        end = one_rank(store.raw_dir, 5_000_000 + rank, rank, world, steps, slow=rank == world // 3)
        store.take_in()  # pids above the system's: every process is gone
    store.take_in()
    outcome = {"exit_code": 0, "pid": 0, "start_ns": 10**12 - 10**9, "end_ns": end, "start_unix_s": 1.7e9}
    store.finish(SimpleNamespace(**outcome, warnings=()))
    return folder


def measured(words: list[str]) -> dict[str, Any]:
    """Seconds and peak memory of a command, as ``/usr/bin/time`` sees them."""
    began = time.perf_counter()
    process = subprocess.Popen([sys.executable, "-m", "hotloop", *words], stdout=subprocess.PIPE, text=True)
    said = process.stdout.read() if process.stdout else ""
    _, code, usage = os.wait4(process.pid, 0)
    seconds = time.perf_counter() - began
    return {
        "command": ["hotloop", *words[:1]],
        "exit_code": os.waitstatus_to_exitcode(code),
        "seconds": round(seconds, 2),
        "cpu_s": round(usage.ru_utime + usage.ru_stime, 2),
        "peak_mb": round(usage.ru_maxrss / 1000, 1),
        "said": said,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="leave the run here, or take the one that is there")
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch) / "run"
        each, results = options.ranks // max(1, options.nodes), []
        if not folder.exists():
            began = time.perf_counter()
            if options.nodes:
                nodes = [
                    recorded(
                        Path(scratch) / f"n{i}", range(i * each, (i + 1) * each), options.ranks, options.steps
                    )
                    for i in range(options.nodes)
                ]
                results.append(measured(["merge", *map(str, nodes), "--out", str(folder)]))
            else:
                recorded(folder, range(options.ranks), options.ranks, options.steps)
            print(f"written in {time.perf_counter() - began:.1f} s", file=sys.stderr)
        results.append(measured(["report", str(folder), "--json", "-"]))
        size = sum(path.stat().st_size for path in folder.rglob("*.sqlite"))
        for one in results:
            said = one.pop("said")
            if one["command"][1] == "report":
                report = json.loads(said)
                one["verdict"], one["slowest_rank"] = report["verdict"], report["slowest_rank"]
        result = {
            "ranks": options.ranks,
            "steps": options.steps,
            "nodes": options.nodes,
            "recording_mb": round(size / 1e6, 1),
            "cores": len(os.sched_getaffinity(0)),
            "load": os.getloadavg()[0],
            "date": time.strftime("%Y-%m-%d"),
            "runs": results,
        }
        text = json.dumps(result, indent=1)
        print(text)
        if options.json:
            options.json.write_text(text + "\n")


if __name__ == "__main__":
    main()
