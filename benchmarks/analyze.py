"""How fast ``hotloop analyze`` reads: MB/s per format, on logs made here, one core.

python benchmarks/analyze.py [--mb 64] [--out FILE] [FORMAT]...
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / "src"))

_EPOCH = 2000


def _rows(seed: int = 0) -> Iterator[tuple[int, int, float, float, float]]:
    """Epoch, step, step time, data time, loss."""
    rng = np.random.default_rng(seed)
    noise = rng.normal(1.0, 0.05, 10_000)
    for i in range(10**9):
        step_s, data_s = 0.3 * noise[i % 10_000], 0.05 * noise[(i * 7) % 10_000]
        yield i // _EPOCH, i % _EPOCH, step_s, data_s, 5.0 / (1 + i * 1e-5)


def _clock(seconds: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return time.strftime(form, time.gmtime(1.7e9 + seconds))


def mmengine(e: int, i: int, t: float, d: float, loss: float) -> str:
    now = _clock((e * _EPOCH + i) * 15, "%Y/%m/%d %H:%M:%S")
    return (
        f"{now} - mmengine - INFO - Epoch(train)  [{e + 1}][{i:5d}/{_EPOCH}]  "
        f"lr: 1.0000e-03  eta: 12:12:33  time: {t:.4f}  data_time: {d:.4f}  memory: 3840  grad_norm: 1.2345  "
        f"loss: {loss:.4f}  loss_cls: {loss / 2:.4f}  loss_bbox: {loss / 3:.4f}\n"
    )


def tqdm(e: int, i: int, t: float, d: float, loss: float) -> str:
    s = int(i * 0.1)
    done = i * 10 // _EPOCH
    return (
        f"\rEpoch {e}: {i * 100 // _EPOCH:3d}%|{'█' * done}{' ' * (10 - done)}| {i}/{_EPOCH} "
        f"[{s // 60:02d}:{s % 60:02d}<03:20, {0.1 / t * 30:.2f}it/s, loss={loss:.3f}]"
    )


def keyvalue(e: int, i: int, t: float, d: float, loss: float) -> str:
    return f"step={e * _EPOCH + i} epoch={e} loss={loss:.5f} time={t:.4f} data_time={d:.4f} lr=0.0001\n"


def metriclogger(e: int, i: int, t: float, d: float, loss: float) -> str:
    return (
        f"Epoch: [{e}]  [{i:4d}/{_EPOCH}]  eta: 0:12:33  lr: 0.000100  loss: {loss:.4f} ({loss:.4f})  "
        f"time: {t:.4f}  data: {d:.4f}  max mem: 3840\n"
    )


def timm(e: int, i: int, t: float, d: float, loss: float) -> str:
    return (
        f"Train: {e} [{i:4d}/{_EPOCH} ({i * 100 // _EPOCH:3d}%)]  "
        f"Loss: {loss:.3g} ({loss:.3g})  "
        f"Time: {t:.3f}s, {256 / t:>7.2f}/s  ({t:.3f}s, {256 / t:>7.2f}/s)  "
        f"LR: 1.000e-03  Data: {d:.3f} ({d:.3f})\n"
    )


def nanogpt(e: int, i: int, t: float, d: float, loss: float) -> str:
    return f"iter {e * _EPOCH + i}: loss {loss:.4f}, time {t * 1000:.2f}ms, mfu 12.34%\n"


def prose(e: int, i: int, t: float, d: float, loss: float) -> str:
    if i % 20 == 0:
        return f"[Epoch {e}] step {i} loss {loss:.4f} throughput: {256 / t:.1f} samples/s\n"
    return f"DEBUG worker {i % 7} opened /data/shard-{i:05d}.tar and found nothing unusual in it\n"


def jsonl(e: int, i: int, t: float, d: float, loss: float) -> str:
    row = {"mode": "train", "epoch": e, "iter": i, "lr": 1e-3, "data_time": d, "loss": loss, "time": t}
    return json.dumps(row) + "\n"


def csv(e: int, i: int, t: float, d: float, loss: float) -> str:
    header = "epoch,step,time,data_time,loss,lr\n" if e == i == 0 else ""
    return f"{header}{e},{e * _EPOCH + i},{t:.5f},{d:.5f},{loss:.6f},0.001\n"


FORMATS: dict[str, Callable[[int, int, float, float, float], str]] = {
    f.__name__: f for f in (mmengine, tqdm, keyvalue, metriclogger, timm, nanogpt, prose, jsonl, csv)
}


def write(path: Path, line: Callable[[int, int, float, float, float], str], num_bytes: int) -> None:
    written = 0
    with path.open("w", encoding="utf-8") as out:
        batch: list[str] = []
        for row in _rows():
            batch.append(line(*row))
            if len(batch) == 5000:
                text = "".join(batch)
                written += len(text.encode())
                out.write(text)
                batch.clear()
                if written >= num_bytes:
                    return


def main() -> None:
    from hotloop.logs.analyze import analyze

    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=64)
    parser.add_argument("--out", type=Path, help="write the results as JSON")
    parser.add_argument("formats", nargs="*", default=list(FORMATS))
    options = parser.parse_args()
    print(f"{'format':<14}{'MB':>7}{'s':>8}{'MB/s':>8}{'rows/s':>12}{'peak MiB':>10}")
    load, found = os.getloadavg(), []
    with tempfile.TemporaryDirectory() as folder:
        for name in options.formats:
            path = Path(folder) / f"{name}.log"
            write(path, FORMATS[name], options.mb * 1_000_000)
            size = path.stat().st_size
            start, cpu = time.perf_counter(), time.process_time()
            done = analyze([path])
            wall, used = time.perf_counter() - start, time.process_time() - cpu
            rows = int(done.parts[0].source.recognized[0].split(" ")[0].replace(",", ""))
            peak = _peak_mib()
            speed = f"{size / 1e6 / used:>8.0f}{rows / wall:>12,.0f}"
            print(f"{name:<14}{size / 1e6:>7.0f}{wall:>8.2f}{speed}{peak:>10.0f}")
            path.unlink()
            found.append(
                {"format": name, "mb": size / 1e6, "seconds": wall, "mb_per_cpu_s": size / 1e6 / used,
                 "rows_per_s": rows / wall, "peak_mib": peak}
            )  # fmt: skip
    if options.out:
        told = {"cores": os.cpu_count(), "load": load, "rows": found}
        options.out.write_text(json.dumps(told, indent=1) + "\n")


def _peak_mib() -> float:
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
