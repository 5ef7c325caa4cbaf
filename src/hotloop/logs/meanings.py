"""What a name beside a number means: keys and units of many frameworks, as roles with one unit each.

A role is a column: ``time`` and other durations in seconds, rates per second, memory in bytes.
``stage:NAME`` is a duration whose name is the file's own.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Final

import numpy as np
import numpy.typing as npt

NAMES: Final = {
    "step": (
        "step|iter|iteration|it|global step|num updates|batch|steps|iters|update|trainer/global step|"
        "minibatch|current iteration|current step|步|迭代"
    ),
    "epoch": "epoch|epochs|ep|轮",
    "time": (
        "time|step time|iter time|iteration time|batch time|batch cost|dt|time per step|"
        "time per iteration|elapsed time per iteration|time per iter|time per batch|s/it|s/step|"
        "time/step|step time avg|t|step duration|time/iter|per step|train step timing|iter duration|"
        "sec/step|time step|time iter|time batch|每步耗时"
    ),
    "data_time": (
        "data|data time|reader cost|data wait|data load|data loading|data loading time|dataload|"
        "dataloader|load time|data t|t data|avg data time|fetch|fetch time|batch load time|"
        "dataload time|loader|data fetch|load|data wait time|dataloader time|dataloading|time/data|"
        "data/time|time data|loading|数据加载|数据加载时间|加载"
    ),
    "elapsed": (
        "elapsed|runtime|wall|train time|total time|elapsed time|time elapsed|wall time total|"
        "relative time|training time|已用时间"
    ),
    "clock": "timestamp|wall time|walltime",
    "rate": (
        "it/s|iter/s|iters/s|iterations/s|steps/s|steps per second|train steps per second|ups|"
        "iterations per second|batches per second|batch/s|batches/s|steps per sec|iter per sec|"
        "batches/sec|steps/sec|it/sec|global step/sec"
    ),
    "sample_rate": (
        "samples/s|samples/sec|samples per second|samples per sec|throughput|images/s|img/s|imgs/s|"
        "ips|train samples per second|fps|examples per sec|examples/s|examples/sec|images/sec|"
        "img/sec|sample/s|imgs per sec|throughput/samples|samples per s|吞吐量|吞吐"
    ),
    "token_rate": (
        "tok/s|tokens/s|tok/sec|tokens/sec|tokens per second|tokens per sec|tps|wps|tgs|"
        "tokens per second per gpu|tokens/gpu/s"
    ),
    "loss": "loss|loss step|loss epoch|total loss|lm loss|training loss|loss total|losses|损失",
    "lr": "lr|learning rate|base lr|学习率",
    "device_bytes": (
        "memory|mem|mem allocated|max mem|gpu mem|max memory|memory allocated|gpu memory|peak memory|"
        "max mem gb|vram|memory used|cuda mem|gpu memory usage|显存"
    ),
    "host_bytes": (
        "process|rss|host memory|cpu mem|ram|process memory|memory process|process rss|cpu memory|"
        "memory rss|内存"
    ),
    "system_bytes": "system|system memory|memory system|系统内存",
    "hit_rate": "hit rate|cache hit rate|cache hit|hits rate|缓存命中率|命中率",
    "batch_size": "batch size|bsz|global batch size|bs",
    "workers": "num workers|workers|workers per gpu|dataloader workers|num worker",
    "samples": "consumed samples|samples seen|num samples|total samples",
    "device_limit": "memory total",
    "power": "power draw|power draw average",
    "power_limit": "power limit|enforced power limit",
    "temperature": "temperature gpu",
    "gpu": "gpu index",
    "gpu_util": "gpu util|utilization gpu|gpu utilization|gpu usage|gpu利用率",
    "forward": ("forward|fwd|forward time|fwd time|t forward|forward pass|fw|time/forward|前向传播|前向"),
    "backward": (
        "backward|bwd|backward time|bwd time|t backward|backward pass|bw|time/backward|反向传播|反向"
    ),
    "optimizer": (
        "optimizer|optim|opt|optimizer step|opt time|optimizer time|optim step|optimizer update|"
        "t opt|优化器更新|优化器"
    ),
    "transfer": (
        "transfergpu transfer|h2d|to device|copy|to gpu|transfer time|device transfer|cpu->gpu|"
        "host to device|cpu to gpu|传输|cpu->gpu传输"
    ),
    "collective": "allreduce|all reduce|comm|communication|grad sync",
    "evaluation": "eval runtime|eval time|val time|validation time|evaluation time|test time",
    "checkpoint": "checkpoint time|save time|ckpt time|checkpoint save time",
}

_ROLE: Final = {name: role for role, names in NAMES.items() for name in names.split("|")}

#: Roles that are durations and phases of a step at once.
PHASE_ROLES: Final = {
    "data_time": "data_wait",
    "transfer": "transfer",
    "forward": "forward",
    "backward": "backward",
    "optimizer": "optimizer",
    "collective": "collective",
}
_DURATIONS: Final = {"time", "elapsed", "evaluation", "checkpoint", *PHASE_ROLES}
_BYTES: Final = {"device_bytes", "device_limit", "host_bytes", "system_bytes"}
#: What makes a line worth reading.
MEASURED: Final = frozenset(
    {"time", "data_time", "rate", "sample_rate", "token_rate", "loss", "hit_rate", "gpu_util", "workers",
     "evaluation", "evaluated", "checkpoint", "device_bytes", "host_bytes", "system_bytes", "system_share",
     *PHASE_ROLES}
)  # fmt: skip

_SECONDS: Final = {
    "ns": 1e-9, "us": 1e-6, "µs": 1e-6, "ms": 1e-3, "msec": 1e-3, "s": 1.0, "sec": 1.0, "secs": 1.0,
    "seconds": 1.0, "second": 1.0, "毫秒": 1e-3, "秒": 1.0, "min": 60.0, "mins": 60.0, "h": 3600.0,
}  # fmt: skip
_SIZES: Final = {
    "b": 1.0, "k": 2.0**10, "kb": 2.0**10, "kib": 2.0**10, "m": 2.0**20, "mb": 2.0**20, "mib": 2.0**20,
    "g": 2.0**30, "gb": 2.0**30, "gib": 2.0**30, "tb": 2.0**40, "tib": 2.0**40,
}  # fmt: skip
RATES: Final = frozenset({"rate", "sample_rate", "token_rate"})
THOUSANDS: Final = {"k": 1e3, "m": 1e6, "g": 1e9, "t": 1e12}
_RATE_UNIT: Final = re.compile(r"^(?:(k|m)?(it|iter|iters|step|steps|batch|batches|ba|update|updates)"
    r"|(sample|samples|img|imgs|image|images|example|examples|frame|frames|seq|seqs|sequence|sequences|clip|clips)"
    r"|(tok|tokens|token|toks)|)/(?:s|sec|second)$")  # fmt: skip
_TIME_UNIT: Final = re.compile(r"^(ms|s|secs?)/(it|iter|step|batch|ba)$")
_KEY_UNIT: Final = re.compile(r"[ _(\[]+(ms|s|sec|secs|seconds|us|mb|gb|mib|gib|%|w)[)\]]?$")
_MODE: Final = re.compile(
    r"\b(?:val|valid|validation|validating|eval|evaluation|evaluating|test|testing|inference|predict)\b"
    r"|\bclass +images\b|验证|评估"
)
#: The machine's memory as a share; of memory alone nobody knows whose it is.
_MACHINE: Final = re.compile(r"\b(?:system|host) (?:memory|ram)\b|\bram usage\b|系统内存")
_CAMEL: Final = re.compile(r"(?<=[a-z])(?=[A-Z][a-z])")
_WHOLE: Final = re.compile(r"\b(?:total|sum|overall)\b")
_NO_STAGE: Final = re.compile(r"\b(?:eta|remaining|left|timeout|in|after|for|took)\b")
#: Leading words that a key may carry: ``train/loss``, ``Avg data time``.
_LEADING: Final = re.compile(
    r"^(?:train(?:ing)?|trainer|perf(?:ormance)?|avg\.?|average|mean|curr|current|timing|timer|time|stats|metrics?|cache)"
    r"[ /]+|^平均"
)


def normal(key: str) -> str:
    """A key as the tables spell it: lower case, words apart by one blank, without quotes and colons."""
    text = _CAMEL.sub(" ", key.strip(" \t'\"`*:=>-#—–~≈│|•")).lower()
    return re.sub(r"[\s_.]+", " ", text.replace("-", " ") if "->" not in text else text).strip(" '\"")


def evaluating(text: str) -> bool:
    """Whether words speak of evaluation and not of training."""
    words = text.lower().replace("_", " ").replace("/", " ")
    return bool(_MODE.search(words)) and not re.search(r"\btrain", words)


def role_of(key: str, unit: str) -> tuple[str, float] | None:
    """The role of a number and the factor to the role's unit; None where the name says nothing.

    ``key`` is the text before the number, ``unit`` the text right behind it.
    """
    name = normal(key)
    unit = unit.lower().rstrip(".")
    if unit == "%" and _MACHINE.search(name):
        return "system_share", 0.01
    found = _of_unit(unit)
    if found is not None:
        return found
    role = _lookup(name)
    if role is None and (match := _KEY_UNIT.search(name)):
        name, unit = name[: match.start()].strip(" ([_"), unit or match[1]
        role = _lookup(name)
    if role is None:
        return _stage(name, unit)
    return _scaled(role, name, unit)


def _of_unit(unit: str) -> tuple[str, float] | None:
    if match := _TIME_UNIT.match(unit):
        return "time", 1e-3 if match[1] == "ms" else 1.0
    if not (match := _RATE_UNIT.match(unit)):
        return None
    if match[2]:
        return "rate", {"k": 1e3, "m": 1e6}.get(match[1] or "", 1.0)
    return ("token_rate" if match[4] else "sample_rate"), 1.0


def _lookup(name: str) -> str | None:
    for _ in range(4):
        if name in _ROLE:
            return _ROLE[name]
        shorter = _LEADING.sub("", name)
        if shorter == name:
            break
        name = shorter
    return _ROLE.get(name)


def _scaled(role: str, name: str, unit: str) -> tuple[str, float] | None:
    if role in _DURATIONS:
        if unit and unit not in _SECONDS:
            return None
        # Without a unit: `data_time: 0.05`, MetricLogger's `data`.
        is_time = role not in PHASE_ROLES or role == "data_time" or "time" in name or name.startswith("t ")
        if not unit and not is_time:
            return None
        return role, _SECONDS.get(unit, 1.0)
    if role in _BYTES:
        # A bare number is megabytes in every framework that prints one (mmcv, detectron2, torchvision).
        bare = 2.0**20 if role == "device_bytes" else 0.0
        scale = _SIZES.get(unit, bare if not unit else 0.0)
        return (role, scale) if scale else None
    if role in RATES and unit in THOUSANDS:
        return role, THOUSANDS[unit]
    if role == "hit_rate":
        return role, 0.01 if unit == "%" else 1.0
    if role == "gpu_util":
        return role, 0.01
    if unit in _SECONDS and name in ("step", "iter", "iteration", "batch"):
        return "time", _SECONDS[unit]
    if unit in _SECONDS and role in ("step", "epoch", "batch_size", "loss"):
        return "stage:" + name, _SECONDS[unit]
    return role, 1.0


def _stage(name: str, unit: str) -> tuple[str, float] | None:
    """A duration under a name of the file's own; ``stage:total`` for what says it is the whole."""
    known = unit in _SECONDS and unit not in ("min", "mins", "h")
    if not known or not 0 < len(name) <= 40 or _NO_STAGE.search(name):
        return None
    return "stage:" + ("total" if _WHOLE.search(name) else name), _SECONDS[unit]


Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

#: So many times as few rows are kept once there are too many: odd, as little that recurs does so that often.
_FEWER: Final = 5
#: Rows that are left of a stream then.
_MAX_ROWS: Final = 1 << 13
#: Larger numbers are damage: no step, second or byte counts that far.
_LARGEST: Final = 1e15


@dataclass(kw_only=True)
class Stream:
    """[n] columns by role, in the order of the file. One row of ``stride`` in the file is kept."""

    name: str
    mode: str = "train"
    unit: str = "it"
    rank: int | None = None
    stride: int = 1
    num_rows: int = 0
    bar: bool = False
    _parts: list[dict[str, Floats]] = field(default_factory=list)
    _kept: int = 0

    def add(self, columns: dict[str, Floats]) -> None:
        """Append rows; columns may differ from call to call."""
        self.num_rows += len(columns["line"])
        columns = {
            role: np.where(np.abs(column) < _LARGEST, column, np.nan)[:: self.stride]
            for role, column in columns.items()
        }
        self._parts.append(columns)
        self._kept += len(columns["line"])
        if self._kept > _FEWER * _MAX_ROWS:
            fewer = {role: column[::_FEWER] for role, column in self.columns.items()}
            self._parts, self._kept = [fewer], len(fewer["line"])
            self.stride *= _FEWER

    @property
    def columns(self) -> dict[str, Floats]:
        """All rows; NaN where a row has no value for a role."""
        if len(self._parts) > 1:
            roles = list(dict.fromkeys(role for part in self._parts for role in part))
            sizes = [len(next(iter(part.values()))) for part in self._parts]
            # Shapes of line that take turns come as parts of a chunk; a line may hold many updates of a bar.
            order = np.argsort(
                np.concatenate([part.get("at", part["line"]) for part in self._parts]), kind="stable"
            )
            self._parts = [
                {
                    role: np.concatenate(
                        [
                            part.get(role, np.full(size, np.nan))
                            for part, size in zip(self._parts, sizes, strict=True)
                        ]
                    )[order]
                    for role in roles
                }
            ]
        return self._parts[0] if self._parts else {}

    def get(self, role: str) -> Floats | None:
        """A column, None where no row has a value."""
        column = self.columns.get(role)
        return column if column is not None and np.isfinite(column).any() else None

    def __len__(self) -> int:
        return self._kept
