"""A run of many ranks in the true format, and what ``hotloop report`` takes for it: seconds, peak memory.

``python benchmarks/scale.py --ranks 1024 --steps 100000 --nodes 8 [--distinct 4] [--keep DIR] [--json FILE]``
``python benchmarks/scale.py --curves [--json FILE] [--svg FILE]``: ranks, steps, loaders, modules and samples
grow one by one, and the picture shows what the report takes then.

Rows and notes go through ``record.writer`` and ``record.store`` as a run's do. A step is one of a plain
DistributedDataParallel loop of 50 ms: fetch and make in the training process, zero_grad, forward, loss,
backward, optimizer, and stack samples at the default 25 a second. One rank is slow at one line. With
``--nodes`` there is a run folder for each, merged by ``hotloop merge``. With ``--distinct`` a run has so many
ranks of its own beside the slow one; the others are copies of these under their own rank and pid.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import sqlite3
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


#: What grows, from and to how much, and what else the run is.
CURVES = {
    "ranks": ((4, 16, 64), {"steps": 20_000}),
    "steps": ((10_000, 100_000, 1_000_000), {}),
    "loaders": ((1, 8, 64), {"steps": 20_000}),
    "modules": ((1, 8, 64), {"steps": 20_000}),
    "samples": ((25, 200, 1600), {"steps": 20_000}),
}


def one_rank(
    raw: Path, pid: int, rank: int, world: int, steps: int, *, slow: bool, loaders: int = 1, modules: int = 1,
    samples: int = 25,
) -> int:  # fmt: skip
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
    for number in range(1, loaders + 1):
        writer.note(
            "loader", id=number, where=1, via=1, by="", **loader, persistent_workers=False, drop_last=False,
            timeout=0, shuffle=False, sampler=sampler, batch_sampler="torch.utils.data.sampler.BatchSampler",
            given=[], collate_fn="default_collate", dataset=dataset,
            **{"class": "torch.utils.data.DataLoader"},
        )  # fmt: skip
        writer.note(
            "iterator", id=number, loader=number, workers=[], pinning=False, site=1, reset=False,
            num_batches=steps // loaders,
        )  # fmt: skip
    sizes = {
        "num_params": 10**6,
        "num_trainable": 10**6,
        "param_bytes": 4 * 10**6,
        "trainable_bytes": 4 * 10**6,
    }
    for number in range(1, modules + 1):
        writer.note(
            "module", id=number, **sizes, buffer_bytes=0, devices=["cpu"], training=True, wrapper="DDP",
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
        row(r.FETCH, at, fetch, 32, SITES["fetch"], 1 + step % loaders, r.U16_MAX)
        row(r.ZERO_GRAD, at + fetch + 10_000, 200_000, 0, SITES["zero"], 1)
        flags = r.FORWARD_GRAD | r.FORWARD_TRAINING | r.FORWARD_PARAMS
        for number in range(modules):
            took = 15 * MS // modules
            row(r.FORWARD, at + 5 * MS + number * took, took - 100, 0, SITES["forward"], number + 1, 0, flags)
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
            since = int((0.8 + 0.4 * rng.random()) * 1000 * MS / samples)  # no multiple of the step
            row(r.SAMPLE, sampled, since, SITES[name], 0, 900, 20)
            sampled += since
        at += 50 * MS
    writer.note("exit", reason="exit")
    writer.close()
    assert at > begin
    return at


def recorded(folder: Path, ranks: range, world: int, steps: int, distinct: int = 0, **load: int) -> Path:
    """A run folder with these ranks."""
    store, own = Store(folder), [*ranks[: distinct or None]]
    own += [world // 3] if world // 3 in ranks and world // 3 not in own else []
    store.begin(["torchrun", "train.py"], {"hostname": folder.name, "cores": 8.0, "cpu_count": 8})
    end = 0
    for rank in own:
        end = one_rank(store.raw_dir, 5_000_000 + rank, rank, world, steps, slow=rank == world // 3, **load)
        store.take_in()  # pids above the system's: every process is gone
    store.take_in()
    outcome = {"exit_code": 0, "pid": 0, "start_ns": 10**12 - 10**9, "end_ns": end, "start_unix_s": 1.7e9}
    store.finish(SimpleNamespace(**outcome, warnings=()))
    for rank in set(ranks) - {*own}:
        copied(folder, own[rank % distinct], rank)
    return folder


def copied(folder: Path, source: int, rank: int) -> None:
    """One more rank with the rows of another."""
    path = Path(shutil.copyfile(folder / f"rank-{source}.sqlite", folder / f"rank-{rank}.sqlite"))
    with sqlite3.connect(path) as db:
        pid = 5_000_000 + rank
        db.execute("UPDATE processes SET pid=?, rank=?, key=?", (pid, rank, f"{pid}-{10**12}"))
        ((text,),) = db.execute("SELECT json FROM notes WHERE kind='process'").fetchall()
        note = {**json.loads(text), "pid": pid, "rank": rank, "local_rank": rank % 8}
        db.execute("UPDATE notes SET json=? WHERE kind='process'", (json.dumps(note),))
    db.close()


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


def result_of(folder: Path, ranks: int, steps: int, nodes: int, distinct: int, **load: int) -> dict[str, Any]:
    """What merging and reading such a run took; what lies in ``folder`` already is not written again."""
    runs, each, began = [], ranks // max(1, nodes), time.perf_counter()
    names = [folder / f"n{i}" for i in range(nodes)] or [folder / "run"]
    for i, name in enumerate(names):
        if not name.exists():
            whole = range(i * each, (i + 1) * each) if nodes else range(ranks)
            part = name.with_suffix(".part")
            shutil.rmtree(part, ignore_errors=True)
            recorded(part, whole, ranks, steps, distinct, **load).rename(name)
    print(f"written in {time.perf_counter() - began:.1f} s", file=sys.stderr)
    merged = folder / "merged" if nodes else names[0]
    if nodes:
        shutil.rmtree(merged, ignore_errors=True)
        runs.append(measured(["merge", *map(str, names), "--out", str(merged)]))
    runs.append(measured(["report", str(merged), "--json", "-"]))
    for one in runs:
        said = one.pop("said")
        if one["command"][1] == "report":
            report = json.loads(said)
            one |= {key: report[key] for key in ("verdict", "slowest_rank", "warnings")}
            one["findings"] = [
                {"id": found["id"], "rank": found.get("rank"), "line": (found.get("where") or {}).get("line")}
                for found in report["findings"]
            ]
    size = sum(path.stat().st_size for path in merged.rglob("*.sqlite"))
    return {
        "ranks": ranks, "steps": steps, "nodes": nodes, "distinct": distinct, **load,
        "recording_mb": round(size / 1e6, 1), "cores": len(os.sched_getaffinity(0)),
        "load": round(os.getloadavg()[0], 1), "date": time.strftime("%Y-%m-%d"), "runs": runs,
    }  # fmt: skip


def curves() -> list[dict[str, Any]]:
    """What a report takes while one thing grows."""
    found = []
    for name, (sizes, rest) in CURVES.items():
        for size in sizes:
            with tempfile.TemporaryDirectory() as scratch:
                run = {"ranks": 1, "steps": 20_000, "nodes": 0, "distinct": 0, **rest, name: size}
                found.append({"varied": name, "size": size, **result_of(Path(scratch), **run)})
                print(name, size, found[-1]["runs"][0]["cpu_s"], file=sys.stderr)
    return found


def drawn(found: list[dict[str, Any]], path: Path) -> None:
    """The curves: CPU time and peak memory of a report over how much more there is, and a straight line."""
    import matplotlib as mpl

    mpl.use("Agg")
    mpl.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "hotloop", "font.size": 9})
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(9.5, 3.6), layout="constrained")
    for ax, key, title in zip(axes, ("cpu_s", "peak_mb"), ("CPU time, s", "peak memory, MB"), strict=True):
        for name in CURVES:
            rows = [row for row in found if row.get("varied") == name]
            times = [row["size"] / rows[0]["size"] for row in rows]
            ax.plot(
                times, [row["runs"][-1][key] for row in rows], "o-", label=f"{name} from {rows[0]['size']:,}"
            )
        low = min(row["runs"][-1][key] for row in found if row.get("varied"))
        ax.plot((1, 100), (low, 100 * low), ":", color="#808080", label="as many times more")
        ax.set(xscale="log", yscale="log", title=title, xlabel="times as many")
    axes[0].legend(frameon=False)
    figure.savefig(path, metadata={"Date": None, "Creator": None})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=64)
    parser.add_argument("--steps", type=int, default=20_000)
    parser.add_argument("--nodes", type=int, default=0)
    parser.add_argument("--distinct", type=int, default=0)
    parser.add_argument("--keep", type=Path, help="leave the runs here, or take those that are there")
    parser.add_argument("--curves", action="store_true")
    parser.add_argument("--json", type=Path, help="append the result to this list")
    parser.add_argument("--svg", type=Path, help="draw the curves that the list holds")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        folder = options.keep or Path(scratch)
        sizes = (options.ranks, options.steps, options.nodes, options.distinct)
        found = curves() if options.curves else [result_of(folder, *sizes)]
    print(json.dumps(found, indent=1))
    if options.json:
        if options.json.exists():
            found = [*json.loads(options.json.read_text()), *found]
        options.json.write_text(json.dumps(found, indent=1) + "\n")
    if options.svg:
        drawn(found, options.svg)


if __name__ == "__main__":
    main()
