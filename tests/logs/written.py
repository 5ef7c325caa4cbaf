"""Logs as the frameworks write them (their own format strings), with a truth that is known."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hotloop.logs.analyze import Analysis, analyze

STEPS = 1000
EVERY = 20


@dataclass(frozen=True, kw_only=True)
class Line:
    """One report of a run: times in seconds, ``now`` since 1970; ``step`` within its epoch."""

    epoch: int
    step: int
    time: float
    data: float
    loss: float
    now: float


def analyzed(folder: Path, text: str | bytes | Iterable[str], name: str = "train.log") -> Analysis:
    """What hotloop says about a file with this text."""
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else "".join(text).encode())
    return analyze([path])


def a_run(*, epochs: int = 2, slow_from: int | None = None, noise: float = 0.02) -> Iterator[Line]:
    """Steps of 0.30 s with 0.05 s of data time; from the given one of all steps 1.20 s with 0.95 s."""
    rng = np.random.default_rng(7)
    now = 1_700_000_000.0
    for epoch in range(epochs):
        for step in range(EVERY, STEPS + 1, EVERY):
            late = slow_from is not None and epoch * STEPS + step > slow_from
            data = (0.95 if late else 0.05) * float(np.exp(rng.normal(0, noise)))
            seconds = 0.25 * float(np.exp(rng.normal(0, noise))) + data
            now += seconds * EVERY
            loss = 5.0 / (1 + epoch * STEPS + step) ** 0.2
            yield Line(epoch=epoch, step=step, time=seconds, data=data, loss=loss, now=now)


def stamp(now: float, form: str = "%Y-%m-%d %H:%M:%S") -> str:
    return time.strftime(form, time.gmtime(now))


def mmengine(o: Line) -> str:
    return (
        f"{stamp(o.now, '%Y/%m/%d %H:%M:%S')} - mmengine - INFO - "
        f"Epoch(train)  [{o.epoch + 1}][{o.step:4d}/{STEPS}]  lr: 1.0000e-03  eta: 1 day, 0:12:33  "
        f"time: {o.time:.4f}  data_time: {o.data:.4f}  memory: 3840  "
        f"loss: {o.loss:.4f}  loss_cls: {o.loss / 2:.4f}\n"
    )


def mmcv(o: Line) -> str:
    return (
        f"{stamp(o.now)},{int(o.now * 1000) % 1000:03d} - mmdet - INFO - "
        f"Epoch [{o.epoch + 1}][{o.step}/{STEPS}]\tlr: 1.978e-03, eta: 0:12:33, time: {o.time:.3f}, "
        f"data_time: {o.data:.3f}, memory: 3840, "
        f"loss_rpn_cls: 0.4, loss: {o.loss:.4f}\n"
    )


def detectron2(o: Line) -> str:
    return (
        f"[{stamp(o.now, '%m/%d %H:%M:%S')} d2.utils.events]:  eta: 0:12:33  "
        f"iter: {o.epoch * STEPS + o.step - 1}  total_loss: {o.loss:.4g}  loss_cls: 0.3  time: {o.time:.4f}  "
        f"last_time: 0.9999  data_time: {o.data:.4f}  "
        "last_data_time: 0.9999   lr: 0.001  max_mem: 3840M\n"
    )


def metric_logger(o: Line) -> str:
    return (
        f"Epoch: [{o.epoch}]  [{o.step:4d}/{STEPS}]  eta: 0:12:33  lr: 0.000100  "
        f"loss: {o.loss:.4f} (9.9999)  time: {o.time:.4f}  data: {o.data:.4f}  max mem: 3840\n"
    )


def torch_examples(o: Line) -> str:
    return (
        f"Epoch: [{o.epoch}][{o.step:4d}/{STEPS}]\tTime {o.time:6.3f} ( 9.999)\tData {o.data:6.3f} ( 9.999)\t"
        f"Loss {o.loss:.4e} (7.0000e+00)\tAcc@1   0.00 (  0.10)\tAcc@5   0.00 (  0.50)\n"
    )


def timm(o: Line) -> str:
    return (
        f"Train: {o.epoch} [{o.step:>4d}/{STEPS} ({100 * o.step / (STEPS - 1):>3.0f}%)]  "
        f"Loss: {o.loss:#.3g} (9.99)  "
        f"Time: {o.time:.3f}s, {128 / o.time:>7.2f}/s  (9.999s, {1.0:>7.2f}/s)  LR: 1.000e-06  "
        f"Data: {o.data:.3f} (9.999)\n"
    )


def swin(o: Line) -> str:
    return (
        f"[{stamp(o.now)} swin](main.py 233): INFO Train: [{o.epoch}/300][{o.step}/{STEPS}]\t"
        f"eta 0:12:33 lr 0.000001\t time {o.time:.4f} (9.9999)\tdata {o.data:.4f} (9.9999)\tloss "
        f"{o.loss:.4f} (9.9999)\tmem 3840MB\n"
    )


def paddle(o: Line) -> str:
    return (
        f"[{stamp(o.now, '%Y/%m/%d %H:%M:%S')}] ppcls INFO: "
        f"[Train][Epoch {o.epoch + 1}/100][Iter: {o.step}/{STEPS}]lr: 0.1, loss: {o.loss:.5f}, "
        f"avg_reader_cost: {o.data:.5f} sec, avg_batch_cost: {o.time:.5f} sec, "
        f"ips: {64 / o.time:.5f} images/sec, eta: 0:12:33\n"
    )


def key_value(o: Line) -> str:
    return f"step={o.epoch * STEPS + o.step} loss={o.loss:.4f} time={o.time:.4f} data_time={o.data:.4f}\n"


def chinese(o: Line) -> str:
    return (
        f"{stamp(o.now)} 步: {o.epoch * STEPS + o.step} 损失: {o.loss:.4f} 每步耗时: {o.time * 1000:.1f}ms "
        f"数据加载时间: {o.data * 1000:.1f}ms\n"
    )


def json_lines(o: Line) -> str:
    row = {
        "mode": "train", "epoch": o.epoch + 1, "iter": o.step, "lr": 0.00198, "memory": 3840,
        "data_time": o.data, "loss": o.loss, "time": o.time,
    }  # fmt: skip
    return json.dumps(row) + "\n"


def wandb(o: Line) -> str:
    row = {
        "_step": o.epoch * STEPS + o.step, "_runtime": o.now - 1_700_000_000, "_timestamp": o.now,
        "train/loss": o.loss, "perf/step_time": o.time, "perf/data_time": o.data,
        "system": {"gpu.0.gpu": 45.0},
    }  # fmt: skip
    return json.dumps(row) + "\n"


def csv(o: Line) -> str:
    header = "epoch,step,time,data_time,train_loss,val_loss\n" if (o.epoch, o.step) == (0, EVERY) else ""
    return f"{header}{o.epoch},{o.epoch * STEPS + o.step},{o.time:.5f},{o.data:.5f},{o.loss:.5f},\n"


def ranked(o: Line) -> str:
    return "".join(f"[rank{rank}]: {key_value(o)}" for rank in range(2))


#: Writers of step time and data time, with the kind that is recognized.
FORMATS: dict[str, tuple[Callable[[Line], str], str]] = {
    "mmengine": (mmengine, "mmengine log"),
    "mmcv": (mmcv, "mmcv log"),
    "detectron2": (detectron2, "detectron2 log"),
    "metric_logger": (metric_logger, "MetricLogger (torchvision) log"),
    "torch_examples": (torch_examples, "torch examples log"),
    "timm": (timm, "timm log"),
    "swin": (swin, "Swin log"),
    "paddle": (paddle, "Paddle log"),
    "key_value": (key_value, "key=value log"),
    "chinese": (chinese, "text log"),
    "json_lines": (json_lines, "JSON lines"),
    "wandb": (wandb, "JSON lines"),
    "csv": (csv, "CSV history"),
    "ranked": (ranked, "key=value log"),
}
