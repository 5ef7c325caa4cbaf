"""``hotloop audit PATH...``: static rules over source, configuration and machine; nothing is executed."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path
from typing import Any

from hotloop import language
from hotloop.cli import arguments
from hotloop.cli.output import progress, publish, say, takes_color, terminal_width
from hotloop.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop audit``."""
    parser.add_argument(
        "paths", metavar="PATH", nargs="*", type=Path, help="Python files, or folders of them (default: .)"
    )
    words = "a configuration the code reads: YAML, JSON, TOML or mmcv-style Python"
    arguments.add_many(parser, "--config", "FILE", words, Path)
    words = (
        "a run's folder: every configured value beside what was in effect, and who decided otherwise; "
        "audits the run's files where no PATH is given"
    )
    arguments.add_path(parser, "--run", words, "RUN")
    arguments.add_json(parser, "findings as JSON")
    arguments.add_path(parser, "--sarif", "write SARIF 2.1.0 to FILE")
    arguments.add_switch(parser, "--github", "annotations for GitHub Actions")
    parser.add_argument(
        "--fail-on",
        metavar="SEVERITY",
        choices=("info", "low", "medium", "high"),
        help="exit with 1 on a finding this severe or worse: info, low, medium, high",
    )
    words = "usable cores of the training machine (default: this one's)"
    arguments.add_number(parser, "--cores", words, arguments.cores)
    words = "its GPUs, which share the cores (default: not known)"
    arguments.add_number(parser, "--gpus", words, arguments.whole, 0)


def main(options: argparse.Namespace) -> int:
    """Returns 1 where ``--fail-on`` is reached, else 0."""
    from hotloop.audit import render
    from hotloop.audit.audit import audit
    from hotloop.audit.program import Machine
    from hotloop.findings import SEVERITIES
    from hotloop.launch.machine import usable_cores
    from hotloop.report import audit as text

    machine = Machine(cores=options.cores or usable_cores(), gpus=options.gpus)
    run, files, configs = _of_run(options.run) if options.run else (None, [Path()], [])
    paths = options.paths or files
    with progress("auditing") as advance:
        done = audit(paths, options.config + configs, machine, advance)
    if not (done.num_files or done.skipped or options.config):
        raise UsageError(
            f"no Python file in {', '.join(map(str, paths)) or options.run}",
            hint="give the files of the training",
        )
    if options.sarif:
        publish(options.sarif, render.as_sarif(done))
    if options.json:
        sys.stdout.write(render.as_json(done, run["settings"] if run else None))
    elif options.github:
        sys.stdout.write(render.as_github(done))
    else:
        color = takes_color(sys.stdout)
        if run:
            sys.stdout.write(
                text.configured(render.configured(run["settings"]), run["cwd"] or "", width=terminal_width())
            )
        sys.stdout.write(language.plain(text.render(done, width=terminal_width(), color=color)))
    if options.fail_on is None:
        return 0
    worst = SEVERITIES[: SEVERITIES.index(options.fail_on) + 1]
    return int(any(finding.severity in worst for finding in done.findings))


def _of_run(folder: Path) -> tuple[dict[str, Any], list[Path], list[Path]]:
    """The report of a run, the files that it loaded, and the configuration files that it read."""
    from hotloop.flow.examine import build_report, examine, read

    recording = read(folder)
    report = build_report(examine(recording))
    notes = [process.notes for process in recording.ranks]
    named = {str(file) for kinds in notes for note in kinds.get("files", ()) for file in note["files"]}
    configured = {
        str(note.get("file"))
        for kinds in notes
        for note in kinds.get("config", ())
        if note["source"] != "argparse"
    }
    end = recording.start_unix_s + recording.wall_s
    there = [path for path in map(Path, sorted(named | configured)) if os.path.isfile(path)]  # noqa: PTH113
    if changed := sum(path.stat().st_mtime > end for path in there):
        say(f"{changed} of the run's files changed since; findings speak of them as they are now")
    return (
        report,
        [path for path in there if str(path) in named],
        [path for path in there if str(path) not in named],
    )
