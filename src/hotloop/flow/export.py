"""Runs in other tools: ``KIND`` or ``KIND=WHERE``, while they go on (``hotloop run --export``) or later.

Each is a few lines around a library that is imported where it is used. An exporter
never fails or delays a run: each has its thread, and is dropped with a warning on its first error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from math import isfinite
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, Any, Final, Protocol, TextIO

import numpy as np

from hotloop.errors import UsageError
from hotloop.flow.course import Course
from hotloop.flow.metrics import METRICS, Point, flat, now, points, summary
from hotloop.record.publish import write_bytes_atomic
from hotloop.record.samples import Samples

if TYPE_CHECKING:  # takes a while: a command starts first
    from hotloop.flow.examine import Examination

#: Points that wait for an exporter at most, and seconds that all have together once the run is over.
_MOST_WAITING: Final = 64
_CLOSE_S: Final = 30.0
_HINT: Final = "pip install 'hotloop[export]'"


class Exporter(Protocol):
    """Takes points in the order of time."""

    def put(self, point: Point) -> None:
        """One moment of the run."""

    def close(self) -> None:
        """Nothing more comes."""


class JsonLines:
    """One JSON object a line: ``time``, ``step``, and every metric under its flat name."""

    def __init__(self, where: str, live: bool) -> None:
        path = Path(where or "hotloop.jsonl")
        self._file: TextIO = sys.stdout if where == "-" else _new(path).open("w", encoding="utf-8")

    def put(self, point: Point) -> None:
        """Write a line; a loss that is not finite is null."""
        values = {flat(key): value if isfinite(value) else None for key, value in point.values.items()}
        line = {"time": round(point.unix_s, 6), "step": point.step, **values}
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def close(self) -> None:
        """Close the file."""
        if self._file is not sys.stdout:
            self._file.close()


class TensorBoard:
    """Scalars ``hotloop/NAME``, written by TensorBoard's own writer."""

    def __init__(self, where: str, live: bool) -> None:
        from tensorboard.summary import Writer

        self._writer = Writer(where or "hotloop-tensorboard")

    def put(self, point: Point) -> None:
        """Add a scalar for each metric."""
        for key, value in point.values.items():
            self._writer.add_scalar(f"hotloop/{flat(key)}", value, point.step, wall_time=point.unix_s)

    def close(self) -> None:
        """Write what waits."""
        self._writer.close()


class Prometheus:
    """Gauges at ``[HOST]:PORT`` while a run goes on, for this machine alone if no HOST is given;
    afterwards a text file.
    """

    def __init__(self, where: str, live: bool) -> None:
        import prometheus_client as library

        self._library, self._live, self._where = library, live, where
        self._registry = library.CollectorRegistry()
        self._gauges: dict[str, Any] = {}
        if not live:
            return
        host, colon, port = (where or ":9400").rpartition(":")
        if not colon or not port.isdecimal() or int(port) > 65535:
            raise UsageError(f"prometheus={where} is no address", hint="prometheus=:9400")
        host = host.strip("[]") or "127.0.0.1"
        try:
            self._server, _ = library.start_http_server(int(port), host, self._registry)
        except OSError as error:
            raise UsageError(
                f"prometheus: {host}:{port} cannot be served: {error.strerror}", hint="take another port"
            ) from error
        self.port = int(self._server.server_port)

    def put(self, point: Point) -> None:
        """Set every gauge."""
        for (name, gpu), value in point.values.items():
            if name not in self._gauges:
                labels = ["gpu"] if gpu else []
                self._gauges[name] = self._library.Gauge(
                    f"hotloop_{name}", METRICS[name][1], labels, registry=self._registry
                )
            gauge = self._gauges[name]
            (gauge.labels(gpu) if gpu else gauge).set(value)

    def close(self) -> None:
        """Stop serving, or write the file."""
        if self._live:
            self._server.shutdown()
            self._server.server_close()
        else:
            text = self._library.generate_latest(self._registry)
            write_bytes_atomic(Path(self._where or "hotloop.prom"), text)


class OpenTelemetry:
    """Gauges of the SDK: over OTLP to a collector's URL (HTTP), or ``console``."""

    def __init__(self, where: str, live: bool) -> None:
        from opentelemetry.sdk.metrics import MeterProvider
        from opentelemetry.sdk.metrics.export import ConsoleMetricExporter, PeriodicExportingMetricReader
        from opentelemetry.sdk.resources import Resource

        exporter: Any
        if where == "console":
            exporter = ConsoleMetricExporter(out=sys.stderr)
        else:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter

            exporter = OTLPMetricExporter(endpoint=where or None)  # None: what OTEL_... variables say
        reader = PeriodicExportingMetricReader(exporter, export_interval_millis=10_000)
        self._provider = MeterProvider(
            [reader], resource=Resource.create({"service.name": "hotloop"}), shutdown_on_exit=False
        )
        self._meter = self._provider.get_meter("hotloop")
        self._gauges: dict[str, Any] = {}

    def put(self, point: Point) -> None:
        """Set every gauge."""
        for (name, gpu), value in point.values.items():
            if name not in self._gauges:
                self._gauges[name] = self._meter.create_gauge(f"hotloop_{name}", *METRICS[name])
            self._gauges[name].set(value, {"gpu": gpu} if gpu else None)

    def close(self) -> None:
        """Hand over what waits."""
        self._provider.shutdown(timeout_millis=5_000)


class WeightsAndBiases:
    """A run of wandb's in the project that is named; ``WANDB_MODE=offline`` writes it to ``wandb/``."""

    def __init__(self, where: str, live: bool) -> None:
        import wandb

        self._run = wandb.init(project=where or "hotloop", settings=wandb.Settings(silent=True))

    def put(self, point: Point) -> None:
        """Log under the run's own step, beside ``hotloop/steps``."""
        self._run.log({f"hotloop/{flat(key)}": value for key, value in point.values.items()})

    def close(self) -> None:
        """End the run."""
        self._run.finish()


class MLflow:
    """A run of MLflow's at the tracking URI that is named."""

    def __init__(self, where: str, live: bool) -> None:
        from mlflow import MlflowClient
        from mlflow.entities import Metric

        self._metric = Metric
        self._client = MlflowClient(tracking_uri=where or None)
        known = self._client.get_experiment_by_name("hotloop")
        experiment = known.experiment_id if known else self._client.create_experiment("hotloop")
        self._run = self._client.create_run(experiment).info.run_id

    def put(self, point: Point) -> None:
        """Log one batch of metrics."""
        at = int(point.unix_s * 1e3)
        found = [self._metric(flat(key), value, at, point.step) for key, value in point.values.items()]
        self._client.log_batch(self._run, metrics=found)

    def close(self) -> None:
        """End the run."""
        self._client.set_terminated(self._run)


#: Kind -> how it is made, the package that it needs ("": those of the extra), whether it keeps no past.
_KINDS: Final[Mapping[str, tuple[Callable[[str, bool], Exporter], str, bool]]] = {
    "jsonl": (JsonLines, "", False),
    "tensorboard": (TensorBoard, "tensorboard", False),
    "prometheus": (Prometheus, "", True),
    "otel": (OpenTelemetry, "", True),
    "wandb": (WeightsAndBiases, "wandb", False),
    "mlflow": (MLflow, "mlflow", False),
}
KINDS: Final = (*_KINDS, "parquet")


def parse(spec: str) -> tuple[str, str]:
    """Kind and where. Raises UsageError."""
    kind, _, where = spec.partition("=")
    if kind not in KINDS:
        raise UsageError(
            f"{spec!r}: there is no exporter {kind!r}",
            hint=f"one of {', '.join(KINDS)}, as in jsonl=run.jsonl",
        )
    return kind, where


@contextmanager
def _in_words(spec: str) -> Iterator[None]:
    """What a library raises as a UsageError, with the line that installs one that is missing."""
    kind, _ = parse(spec)
    try:
        yield
    except UsageError:
        raise
    except ImportError as error:
        needs = _KINDS[kind][1] if kind in _KINDS else ""
        raise UsageError(f"{spec}: {error}", hint=f"pip install {needs}" if needs else _HINT) from error
    except Exception as error:  # each library has its own
        words = f"{spec}: {getattr(error, 'strerror', None) or f'{type(error).__name__}: {error}'}"
        raise UsageError(words, hint="see what it says, or name another place") from error


def made(spec: str, *, live: bool) -> Exporter:
    """The exporter of a spec. Raises UsageError."""
    kind, where = parse(spec)
    with _in_words(spec):
        return _KINDS[kind][0](where, live)


class _Live:
    """An exporter on a thread of its own, behind a queue: a server that is slow delays nobody."""

    def __init__(self, spec: str, warn: Callable[[str], None]) -> None:
        self.exporter = made(spec, live=True)
        self._spec, self._warn = spec, warn
        self._waiting: SimpleQueue[Point | None] = SimpleQueue()
        self._missed, self._stopped = 0, False
        self._thread = Thread(target=self._take, name=f"hotloop export {spec}", daemon=True)
        self._thread.start()

    def put(self, point: Point) -> None:
        """Leave a point for it; none where too many wait."""
        if self._waiting.qsize() < _MOST_WAITING:
            self._waiting.put(point)
        else:
            self._missed += 1

    def end(self) -> None:
        """Nothing more comes."""
        self._waiting.put(None)

    def wait(self, seconds: float) -> None:
        """Until it took everything, as long as this."""
        self._thread.join(max(0.0, seconds))
        if self._thread.is_alive():
            self._warn(f"--export {self._spec}: it did not take everything within {_CLOSE_S:.0f} s")
        elif self._missed and not self._stopped:
            self._warn(f"--export {self._spec}: {self._missed:,} points were left out, it is too slow")

    def _take(self) -> None:
        try:
            while (point := self._waiting.get()) is not None:
                self.exporter.put(point)
            self.exporter.close()
        except Exception as error:  # each library has its own
            self._stopped = True
            self._warn(f"--export {self._spec} stopped: {type(error).__name__}: {error}")


class Live:
    """The exporters of a run that goes on; ``look`` once or twice a second. ``parquet`` waits for its end.

    Raises UsageError where one lacks its library or its place.
    """

    def __init__(self, specs: Sequence[str], warn: Callable[[str], None]) -> None:
        self.later = [spec for spec in specs if parse(spec)[0] == "parquet"]
        for spec in self.later:
            with _in_words(spec):
                import_module("pyarrow.parquet")
                _new(_parquet_path(spec))
        self._open: list[_Live] = []
        try:
            self._open += (_Live(spec, warn) for spec in specs if spec not in self.later)
        except UsageError:
            self.close()  # those that were made before it
            raise

    def __bool__(self) -> bool:
        """Whether any takes points while the run goes on."""
        return bool(self._open)

    def look(self, course: Course, samples: Samples) -> None:
        """Hand over the point of this moment, where the system was sampled."""
        if self._open and samples[0] and (point := now(course, samples[0][-1])):
            for one in self._open:
                one.put(point)

    def close(self) -> None:
        """The run is over: each has the same time to take what waits."""
        for one in self._open:
            one.end()
        until_s = monotonic() + _CLOSE_S
        for one in self._open:
            one.wait(until_s - monotonic())


def export(examination: Examination, spec: str) -> int:
    """Hand a finished run to an exporter; how many points it got. Raises UsageError."""
    kind, _ = parse(spec)
    if examination.lead is None:
        raise UsageError("nothing trained in this run: there is nothing to export", hint="hotloop report RUN")
    if kind == "parquet":
        with _in_words(spec):
            return _parquet(examination, _new(_parquet_path(spec)))
    exporter = made(spec, live=False)
    all_points: Iterable[Point] = points(examination)
    if _KINDS[kind][2]:
        all_points = [one for one in [summary(points(examination))] if one]
    count = 0
    with _in_words(spec):
        for point in all_points:
            exporter.put(point)
            count += 1
        exporter.close()
    return count


def _parquet_path(spec: str) -> Path:
    return Path(parse(spec)[1] or "hotloop.parquet")


def _new(path: Path) -> Path:
    """Raises UsageError where it would overwrite what is there."""
    if path.is_file() and path.stat().st_size:
        raise UsageError(f"{path} exists", hint="name another file, or remove that one")
    return path


def _parquet(examination: Examination, path: Path) -> int:
    """Every step of every rank, a column for its rank and each of ``Steps.columns``."""
    import pyarrow
    from pyarrow import parquet

    tables = []
    for steps in examination.ranks:
        columns = {name: np.asarray(values) for name, values in steps.columns.items()}
        tables.append(pyarrow.table({"rank": np.full(len(steps.end_s), steps.rank, np.int32), **columns}))
    parquet.write_table(pyarrow.concat_tables(tables), path, compression="zstd")
    return sum(table.num_rows for table in tables)
