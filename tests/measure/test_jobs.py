"""Ranks of one job are told from trainings that a command runs one after the other, or beside each other."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from tests.scenarios.loops import SCENARIOS

from hotloop.measure.measure import main_job, measure
from hotloop.measure.steps import Steps
from hotloop.record.recording import Process, Recording

PLAIN = SCENARIOS["plain"]().process
SECOND = 1_000_000_000


def training(pid: int, rank: int, start_s: int, end_s: int, world: int | None = None) -> Process:
    notes = {**PLAIN.notes, "process": [{**PLAIN.first("process"), "world_size": world}]}
    start_ns = PLAIN.start_ns + start_s * SECOND
    end_ns = PLAIN.start_ns + end_s * SECOND
    return replace(PLAIN, pid=pid, rank=rank, start_ns=start_ns, end_ns=end_ns, notes=notes)


def chosen(
    *processes: Process, spans: dict[int, float] | None = None, beside: float = 0.0
) -> tuple[list[int], int]:
    """Pids of the ranks that the report is about, and how many trainings were seen."""
    whole = measure(PLAIN)

    def steps(process: Process) -> Steps:
        end = (spans or {}).get(process.pid, 1.0)
        return replace(whole, pid=process.pid, rank=process.rank, span=(0.0, end))

    more: dict[str, Any] = {"machine": {}, "system": {}, "command": (), "exit_code": 0, "wall_s": 9.0}
    recording = Recording(
        folder=None, start_ns=PLAIN.start_ns, start_unix_s=0.0, ranks=tuple(processes), **more
    )
    only, ranks = main_job(recording, [steps(process) for process in processes])
    assert [process.pid for process in only.ranks] == [one.pid for one in ranks]
    assert only.num_beside == beside
    return [one.pid for one in ranks], only.num_jobs


def test_ranks_that_run_together_are_one_job() -> None:
    assert chosen(training(1, 0, 0, 9, 2), training(2, 1, 1, 9, 2)) == ([1, 2], 1)


def test_of_trainings_one_after_the_other_the_longest_is_told() -> None:
    first, second = training(1, 0, 0, 3), training(2, 0, 3, 9)
    assert chosen(first, second, spans={1: 2.0, 2: 5.0}) == ([2], 2)
    assert chosen(first, second, spans={1: 5.0, 2: 2.0}) == ([1], 2)


def test_trainings_beside_each_other_are_no_ranks() -> None:
    assert chosen(training(1, 0, 0, 9), training(2, 0, 0, 9), spans={2: 3.0}, beside=1.0) == ([2], 2)


def test_a_restarted_job_is_a_second_one_with_all_its_ranks() -> None:
    tried = [training(1, 0, 0, 3, 2), training(2, 1, 0, 3, 2)]
    again = [training(3, 1, 4, 9, 2), training(4, 0, 4, 9, 2)]
    assert chosen(*tried, *again, spans={3: 4.0, 4: 4.0}) == ([3, 4], 2)


def test_a_process_that_trained_nothing_is_no_training() -> None:
    idle = replace(training(2, 0, 0, 9), rows=PLAIN.rows[:0])
    measured = [measure(PLAIN), measure(idle)]
    recording = Recording(
        folder=None, command=(), exit_code=0, wall_s=9.0, start_ns=0, start_unix_s=0.0, ranks=(PLAIN, idle),
        machine={}, system={},
    )  # fmt: skip
    only, ranks = main_job(recording, measured)
    assert (only.num_jobs, only.ranks, ranks) == (1, (PLAIN,), (measured[0],))
    nothing, none = main_job(replace(recording, ranks=(idle,)), measured[1:])
    assert (nothing.ranks, none) == ((idle,), (measured[1],))
