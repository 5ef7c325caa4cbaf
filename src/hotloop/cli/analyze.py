"""``hotloop analyze FILE...``: text logs, TensorBoard events, histories, GPU samples, profiler traces."""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from hotloop import language
from hotloop.cli import arguments
from hotloop.cli.output import progress, publish, takes_color, terminal_width
from hotloop.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop analyze``."""
    words = "logs, event files, traces, folders of them; - is standard input"
    parser.add_argument("files", metavar="FILE", nargs="+", type=Path, help=words)
    words = (
        "how to read a text log of a shape of its own: named groups step, epoch, time_ms, data_time, "
        "sample_rate, loss, clock, ..."
    )
    parser.add_argument("--pattern", metavar="REGEX", help=words)
    arguments.add_path(parser, "--html", "write the analysis as one HTML file", "OUT")
    arguments.add_json(parser, "the analysis as JSON")


def main(options: argparse.Namespace) -> int:
    """Returns 0, or 2 where nothing was recognized in any file."""
    import json

    from hotloop.logs.analyze import analyze
    from hotloop.report.analysis import render
    from hotloop.report.values import plain

    with tempfile.TemporaryDirectory() as folder:
        files = [_on_disk(path, Path(folder)) for path in options.files]
        with progress("reading") as advance:
            done = analyze(files, pattern=options.pattern, advance=advance)
    if options.html:
        from hotloop.report import analysis_html

        publish(options.html, analysis_html.render(done))
    if options.json:
        sys.stdout.write(json.dumps(plain(done.to_json()), indent=1, ensure_ascii=False) + "\n")
    elif not options.html:
        color = takes_color(sys.stdout)
        sys.stdout.write(language.plain(render(done, width=terminal_width(), color=color)))
    return 0 if any(part.verdict for part in done.parts) else 2


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
