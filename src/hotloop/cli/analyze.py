"""``hotloop analyze FILE...``: text logs, TensorBoard events, histories, GPU samples, profiler traces."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
import time
from pathlib import Path

from hotloop.cli.run import terminal_width
from hotloop.cli.streams import takes_color
from hotloop.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop analyze``."""
    parser.add_argument(
        "files",
        metavar="FILE",
        nargs="+",
        type=Path,
        help="logs, event files, traces, folders of them; - is standard input",
    )
    parser.add_argument(
        "--pattern",
        metavar="REGEX",
        help="how to read a text log of a shape of its own: named groups step, epoch, time_ms, data_time, "
        "sample_rate, loss, clock, ...",
    )
    parser.add_argument("--html", metavar="OUT", type=Path, help="write the analysis as one HTML file")
    parser.add_argument("--json", action="store_true", help="the analysis as JSON on standard output")


def main(options: argparse.Namespace) -> int:
    """Returns 0, or 2 where none of the files could be read."""
    import json

    from hotloop.cli.published import publish
    from hotloop.logs.analyze import analyze
    from hotloop.report.analysis import render

    with tempfile.TemporaryDirectory() as folder:
        files = [_on_disk(path, Path(folder)) for path in options.files]
        progress = _Progress(files) if sys.stderr.isatty() else None
        done = analyze(files, pattern=options.pattern, progress=progress)
    if progress is not None:
        progress.clear()
    if options.html:
        from hotloop.report import analysis_html

        publish(options.html, analysis_html.render(done))
    if options.json:
        sys.stdout.write(json.dumps(_finite(done.to_json()), indent=1, ensure_ascii=False) + "\n")
    elif not options.html:
        color = takes_color(sys.stdout)
        sys.stdout.write(render(done, width=terminal_width() if color else 80, color=color))
    return 2 if all(part.source.kind == "unreadable" for part in done.parts) else 0


def _on_disk(path: Path, folder: Path) -> Path:
    """The file itself; what a shell hands over as a pipe is written to ``folder`` first."""
    piped = str(path) in ("-", "/dev/stdin") or str(path).startswith("/dev/fd/")
    if not piped:
        return path
    copy = folder / ("standard-input" if path.name in ("-", "stdin") else f"pipe-{path.name}")
    try:
        source = sys.stdin.buffer if path.name in ("-", "stdin") else path.open("rb")
        with source, copy.open("wb") as out:
            shutil.copyfileobj(source, out, 1 << 20)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from error
    return copy


class _Progress:
    """One line on a terminal after two seconds: how far through all bytes."""

    def __init__(self, files: list[Path]) -> None:
        self._total = sum(path.stat().st_size for path in files if path.is_file())
        self._done, self._start, self._last = 0, time.monotonic(), 0.0
        self._shown = False

    def __call__(self, file: str, num_bytes: int) -> None:
        self._done += num_bytes
        now = time.monotonic()
        if now - self._start < 2 or now - self._last < 0.2:
            return
        self._last, self._shown = now, True
        share = min(1.0, self._done / self._total) if self._total else 0.0
        bar = "#" * int(share * 30)
        sys.stderr.write(
            f"\r[{bar:<30}] {share:4.0%}  {self._done / 1e6:,.0f} MB  {Path(file).name[:30]:<30}"
        )
        sys.stderr.flush()

    def clear(self) -> None:
        """Leave the line empty."""
        if self._shown:
            sys.stderr.write("\r\x1b[K")


def _finite(item: object) -> object:
    """JSON has no NaN: such numbers become null."""
    if isinstance(item, float):
        return item if item == item and abs(item) != float("inf") else None
    if isinstance(item, dict):
        return {key: _finite(value) for key, value in item.items()}
    if isinstance(item, list | tuple):
        return [_finite(value) for value in item]
    return item
