"""Which training processes of a command are ranks of one job, and which trained by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from hotloop.measure.steps import Steps
from hotloop.record.recording import Process, Recording


def main_job(recording: Recording, measured: Sequence[Steps]) -> tuple[Recording, tuple[Steps, ...]]:
    """The recording with the ranks of that job only which trained longest, and their steps.

    ``measured`` are the steps of ``recording.ranks``. Trainings one after the other in a script, or beside
    each other, are no ranks: they do not wait for each other, and their rates do not add up.
    """
    trained = [(process, steps) for process, steps in zip(recording.ranks, measured, strict=True)]
    jobs = _jobs([process for process, steps in trained if steps.num_steps])
    if not jobs:
        return recording, tuple(measured)
    seconds = {id(process): steps.span_s for process, steps in trained}
    longest = max(jobs, key=lambda job: max(seconds[id(process)] for process in job))
    keys = {id(process) for process in longest}
    ranks = [pair for pair in trained if id(pair[0]) in keys]
    only = replace(recording, ranks=tuple(process for process, _ in ranks), num_jobs=len(jobs))
    return only, tuple(steps for _, steps in ranks)


def _jobs(processes: Sequence[Process]) -> list[list[Process]]:
    jobs: list[list[Process]] = []
    for process in sorted(processes, key=lambda process: process.start_ns):
        job = next((job for job in jobs if all(_together(process, other) for other in job)), None)
        if job is None:
            jobs.append([process])
        else:
            job.append(process)
    return jobs


def _together(later: Process, earlier: Process) -> bool:
    return (
        later.rank != earlier.rank
        and later.start_ns < earlier.end_ns
        and later.first("process").get("world_size") == earlier.first("process").get("world_size")
    )
