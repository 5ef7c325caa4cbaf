"""A run in other tools, each read back with that tool's own reader."""

from __future__ import annotations

import json
import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from urllib.request import urlopen

import pytest
from tests.running import hotloop, succeeded
from tests.waiting import waiting

from hotloop.cli.main import main
from hotloop.errors import UsageError
from hotloop.flow.examine import Examination, examine, read
from hotloop.flow.export import _MOST_WAITING, Live, Prometheus, export, made
from hotloop.flow.metrics import METRICS, Point
from hotloop.flow.observe import new_run_folder, observe

SCRIPT = waiting(1600, 0.001, batch_size=16)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was exported while it went on."""
    tmp_path = tmp_path_factory.mktemp("export")
    (tmp_path / "train.py").write_text(SCRIPT)
    folder = new_run_folder(tmp_path / "run", ["train.py"])
    said: list[str] = []
    exports = Live([f"jsonl={tmp_path / 'live.jsonl'}", "prometheus=:0", "parquet=later"], said.append)
    (server,) = [one.exporter for one in exports._open if isinstance(one.exporter, Prometheus)]
    pages: list[str] = []

    def tick() -> None:
        with urlopen(f"http://127.0.0.1:{server.port}/metrics", timeout=5) as page:
            pages.append(page.read().decode())

    command = [sys.executable, str(tmp_path / "train.py")]
    assert observe(command, folder, exports=exports, watch_tick=tick).exit_code == 0
    exports.close()
    assert not said
    assert exports.later == ["parquet=later"]
    (tmp_path / "metrics.txt").write_text(pages[-1])
    return folder


@pytest.fixture(scope="module")
def examination(run: Path) -> Examination:
    return examine(read(run))


def test_metrics_are_served_while_a_run_goes_on(run: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    families = {
        one.name: one for one in text_string_to_metric_families((run.parent / "metrics.txt").read_text())
    }
    assert {"hotloop_steps", "hotloop_samples_per_second", "hotloop_cpu_ratio"} <= families.keys()
    assert 0 < families["hotloop_steps"].samples[0].value <= 100
    assert all(one.name.removeprefix("hotloop_") in METRICS for one in families.values())
    lines = [json.loads(line) for line in (run.parent / "live.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines] == sorted(line["step"] for line in lines)
    assert {"time", "samples_per_second", "step_seconds", "loss", "memory_used_bytes"} <= lines[-1].keys()


def test_steps_as_lines_and_as_a_table(run: Path, examination: Examination, tmp_path: Path) -> None:
    from pyarrow import parquet

    assert main(["export", str(run), "--to", f"jsonl={tmp_path / 'a.jsonl'}"]) == 0
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert export(examination, f"parquet={tmp_path / 'a.parquet'}") == len(lines) == 100
    table = parquet.read_table(tmp_path / "a.parquet")
    assert {"rank", "start_s", "end_s", "samples", "steady", "data_wait", "forward"} <= set(
        table.column_names
    )
    assert table["samples"].to_pylist() == [16] * 100
    assert lines[-1]["samples"] == 1600
    assert lines[7]["forward_seconds"] == pytest.approx(table["forward"][7].as_py())
    begun = examination.recording.start_unix_s
    assert begun < lines[0]["time"] < lines[-1]["time"] < begun + examination.recording.wall_s + 1


def test_tensorboard_reads_the_scalars(examination: Examination, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    export(examination, f"tensorboard={tmp_path}")
    events = EventAccumulator(str(tmp_path))
    events.Reload()
    steps = events.Tensors("hotloop/step_seconds")
    assert [one.step for one in steps] == sorted(one.step for one in steps)
    assert steps[-1].step == 100


def test_a_finished_run_as_a_text_file_of_prometheus(examination: Examination, tmp_path: Path) -> None:
    from prometheus_client.parser import text_string_to_metric_families

    export(examination, f"prometheus={tmp_path / 'run.prom'}")
    found = {
        one.name: one.samples[0].value
        for one in text_string_to_metric_families((tmp_path / "run.prom").read_text())
    }
    assert found["hotloop_steps"] == 100
    assert found["hotloop_samples"] == 1600
    assert found["hotloop_samples_per_second"] == pytest.approx(16 / found["hotloop_step_seconds"])
    assert 0 < found["hotloop_forward_seconds"] < found["hotloop_step_seconds"]


def test_a_collector_gets_gauges_with_units(examination: Examination) -> None:
    from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest

    bodies: list[bytes] = []

    class Collector(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            if self.headers.get("Content-Encoding") == "gzip":
                import gzip

                body = gzip.decompress(body)
            bodies.append(body)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Collector)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        export(examination, f"otel=http://127.0.0.1:{server.server_port}/v1/metrics")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    (resource,) = ExportMetricsServiceRequest.FromString(bodies[-1]).resource_metrics
    metrics = {one.name: one for one in resource.scope_metrics[0].metrics}
    assert metrics["hotloop_steps"].gauge.data_points[0].as_double == 100
    assert metrics["hotloop_step_seconds"].unit == "s"


def test_what_cannot_be_exported_is_said_with_the_way_out(
    examination: Examination, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match="there is no exporter 'csv'"):
        export(examination, "csv=a.csv")
    with pytest.raises(UsageError, match="is no address"):
        made("prometheus=9400", live=True)
    with pytest.raises(UsageError, match="Is a directory"):
        made(f"jsonl={tmp_path}", live=True)
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(UsageError) as raised:
        made("prometheus=:0", live=True)
    assert raised.value.hint == "pip install 'hotloop[export]'"


def test_an_exporter_that_fails_leaves_the_run_alone(tmp_path: Path) -> None:
    said: list[str] = []
    exports = Live([f"jsonl={tmp_path / 'a.jsonl'}"], said.append)
    (one,) = exports._open
    one.exporter.close()
    for _ in range(2):
        one.put(Point(0.0, 1, {}))
    exports.close()
    assert len(said) == 1
    assert "stopped: ValueError" in said[0]
    with pytest.raises(UsageError):  # what was made before one that cannot be made is closed
        Live([f"jsonl={tmp_path / 'b.jsonl'}", "prometheus=9400"], said.append)
    assert not [one.name for one in threading.enumerate() if "b.jsonl" in one.name]
    assert not Live([], said.append)


def test_a_server_that_answers_late_delays_nobody(tmp_path: Path) -> None:
    """A reader that takes nothing until every point was handed over."""
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    said: list[str] = []
    exports = Live([f"jsonl={tmp_path / 'pipe'}"], said.append)
    (one,) = exports._open
    many = Point(0.0, 1, {("samples_per_second", str(number)): 1.0 for number in range(9_000)})
    for _ in range(_MOST_WAITING + 10):  # each is more than the pipe holds
        one.put(many)
    os.set_blocking(reader, True)
    text = os.fdopen(reader, encoding="utf-8")
    lines: list[str] = []
    taker = threading.Thread(target=lambda: lines.extend(text))
    taker.start()
    exports.close()
    taker.join()
    text.close()
    assert _MOST_WAITING <= len(lines) <= _MOST_WAITING + 1
    assert "points were left out" in said[0]


@pytest.mark.parametrize("kind", ["jsonl", "parquet"])
def test_a_file_that_exists_is_not_overwritten(kind: str, examination: Examination, tmp_path: Path) -> None:
    there = tmp_path / "there"
    there.write_text("mine")
    for go in (lambda spec: Live([spec], print), lambda spec: export(examination, spec)):
        with pytest.raises(UsageError, match="there exists"):
            go(f"{kind}={there}")
    assert there.read_text() == "mine"


def test_the_command_begins_where_every_export_can_be_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    command = ["--", sys.executable, "-c", "print('ran')"]
    assert main(["run", "--json", "--export", "jsonl=-", *command]) == 2
    assert "both write to standard output" in capfd.readouterr().err
    monkeypatch.setitem(sys.modules, "pyarrow.parquet", None)
    assert main(["run", "--export", "parquet=a.parquet", *command]) == 2
    told = capfd.readouterr()
    assert "pip install 'hotloop[export]'" in told.err
    assert "ran" not in told.out
    assert not list(tmp_path.iterdir())


def test_an_export_that_fails_comes_after_the_report(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT.replace("1600", "160"))
    command = ["run", "--export", "parquet=none/a.parquet", "--", sys.executable, "train.py"]
    err = succeeded(hotloop(*command, folder=tmp_path)).stderr
    assert "could not be made" not in err
    assert err.index("report.html") < err.index("export parquet=none/a.parquet failed: ")


@pytest.mark.nightly
def test_a_watcher_that_fails_stops_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    for broken in ("flow.course.Course.follow", "footprint.watch.MemoryWatch.look"):
        monkeypatch.setattr(f"hotloop.{broken}", fail)
    (tmp_path / "train.py").write_text(SCRIPT)
    folder, ticks = new_run_folder(tmp_path / "run", ["train.py"]), []
    outcome = observe(
        [sys.executable, str(tmp_path / "train.py")], folder, patience=1.0,
        watch_tick=lambda: ticks.append("gpus" in read(folder).machine), told=["a rule went on"],
    )  # fmt: skip
    recording = read(folder)
    assert len(ticks) > 2 and all(ticks)
    assert len(recording.system["t_s"]) > 1
    assert sorted(outcome.warnings) == sorted(recording.warnings)
    assert sorted(recording.warnings) == [
        "a rule went on",
        "hotloop stopped following the run: ZeroDivisionError: ",
        "hotloop stopped watching memory: ZeroDivisionError: ",
    ]  # fmt: skip


@pytest.mark.nightly
def test_wandb_offline_and_mlflow(
    examination: Examination, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    mlflow = pytest.importorskip("mlflow")
    pytest.importorskip("wandb")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("MLFLOW_ALLOW_FILE_STORE", "true")
    assert export(examination, "wandb=p") == 100
    assert list(tmp_path.glob("wandb/offline-run-*/*.wandb"))
    where = (tmp_path / "mlruns").as_uri()
    assert export(examination, f"mlflow={where}") == 100
    client = mlflow.MlflowClient(tracking_uri=where)
    (done,) = client.search_runs([client.get_experiment_by_name("hotloop").experiment_id])
    assert done.data.metrics["steps"] == 100


def test_the_guide_names_every_metric() -> None:
    guide = (Path(__file__).resolve().parents[2] / "docs" / "guides" / "while-it-runs.md").read_text()
    for name, (unit, words) in METRICS.items():
        if words.startswith("of the step: "):
            continue
        assert f"| `{name}` | `{unit}` | {words} |" in guide
