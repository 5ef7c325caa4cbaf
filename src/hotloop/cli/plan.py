"""``hotloop plan RUN``: four ways to run it, predicted from one run, for its machine or for another."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from hotloop import language
from hotloop.cli import arguments
from hotloop.cli.output import progress, terminal_width
from hotloop.errors import UsageError

if TYPE_CHECKING:
    from hotloop.diagnose.evidence import Evidence
    from hotloop.tune.plans.batch import Planned
    from hotloop.tune.plans.choose import Machine


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop plan``."""
    arguments.add_run(parser)
    there = parser.add_argument_group("another machine", "what is not given is as in the run")
    words = "cores of the machine, for all ranks together"
    arguments.add_number(there, "--cores", words, arguments.cores)
    there.add_argument(
        "--memory", metavar="SIZE", help="host memory of the machine: 512GiB, 256GB, 50%% of the run's"
    )
    arguments.add_number(there, "--gpus", "ranks on the machine, one for each GPU")
    words = "the step's own time there, without waiting: 12ms"
    arguments.add_time(there, "--step-time", None, words, "T")
    there.add_argument("--device-memory", metavar="SIZE", help="memory of each GPU there: 24GiB")
    words = "a run of another batch size, precision or model, planned as well: which to choose"
    arguments.add_many(parser, "--beside", "RUN", words, Path)
    arguments.add_json(parser, "the plans as JSON")


def main(options: argparse.Namespace) -> int:
    """Returns 0 where there are plans."""
    from hotloop.report.plan import render
    from hotloop.tune.plans.batch import choices, chosen

    if options.beside and options.step_time:
        raise UsageError(
            "--step-time is of one batch size, --beside of several", hint="leave one of them out"
        )
    runs = [_planned(run, options) for run in (arguments.run_of(options.run), *options.beside)]
    told = {**runs[0].document, "batch": chosen(runs)}
    if options.beside:
        told["choices"] = choices(runs)
    if options.json:
        print(json.dumps(told, indent=1))
    else:
        sys.stdout.write(language.plain(render(told, width=terminal_width())))
    return 0


def _planned(run: Path, options: argparse.Namespace) -> Planned:
    from hotloop.flow.examine import examine, read
    from hotloop.footprint.training import device_memory
    from hotloop.tune.calibrate import calibrate
    from hotloop.tune.plans.batch import Planned
    from hotloop.tune.plans.choose import make
    from hotloop.tune.plans.document import document

    examination = examine(read(run))
    evidence, recording = examination.evidence, examination.recording
    if evidence is None:
        raise UsageError(f"{run} holds no training process", hint="run the training command first")
    device = device_memory(recording, recording.ranks[0])
    if options.device_memory and device is None:
        raise UsageError(f"--device-memory: {run} used no device", hint="leave it out, or give --memory")
    own = (device or {}).get("capacity_bytes")
    room_bytes = arguments.size(options.device_memory, own or None, of="--device-memory")
    pipeline = calibrate(evidence)
    machine = _machine(options, evidence)
    with progress("planning") as advance:
        made = make(pipeline, machine, examination.findings, advance)
    return Planned(
        document=document(made, evidence.steps, recording),
        plans=made,
        steps=evidence.steps,
        recording=recording,
        room_bytes=room_bytes,
    )


def _machine(options: argparse.Namespace, evidence: Evidence) -> Machine:
    """The machine asked about; what is not said is the run's."""
    from hotloop.diagnose.memory_use import limit_of
    from hotloop.tune.plans.choose import Machine

    own = limit_of(evidence.machine) or 0.0
    memory = arguments.size(options.memory, whole_bytes=own) or own
    if not memory:
        raise UsageError("the run does not say how much memory its machine has", hint="give --memory 64GiB")
    asked = (options.cores, options.memory, options.gpus, options.step_time)
    return Machine(
        cores=options.cores or evidence.cores,
        memory_bytes=memory,
        ranks=options.gpus or len(evidence.ranks),
        step_s=options.step_time,
        other=any(value is not None for value in asked),
    )
