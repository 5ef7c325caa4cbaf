from __future__ import annotations

from typing import Any

import numpy as np

from hotloop.record import rows as r
from hotloop.record.raw import Facts, assign
from hotloop.record.recording import ROW_DTYPE


def facts(pid: int, *, start: int = 0, ppid: int = 1, active: bool = True, **more: Any) -> Facts:
    return Facts(key=f"{pid}-{start}", pid=pid, ppid=ppid, start_ns=start, active=active, **more)


def roles(*everyone: Facts) -> dict[int, tuple[str, int, str | None]]:
    seats = assign(everyone).items()
    return {int(key.partition("-")[0]): (seat.role, seat.rank, seat.owner) for key, seat in seats}


def test_torchrun_agent_is_no_rank_and_ranks_keep_their_numbers() -> None:
    found = roles(
        facts(10, active=False, rank=0),
        facts(11, ppid=10, start=1, rank=1),
        facts(12, ppid=10, start=1, rank=0),
    )
    assert found == {10: ("other", 0, None), 11: ("main", 1, None), 12: ("main", 0, None)}


def test_a_script_that_did_no_training_work_is_a_rank_but_not_its_launcher() -> None:
    found = roles(facts(10, active=False), facts(11, ppid=10, start=1, active=False))
    assert found[10][0] == "other"
    assert found[11][0] == "main"


def test_workers_belong_to_the_process_whose_iterator_started_them() -> None:
    found = roles(
        facts(10, rank=0, worker_pids={20}),
        facts(11, rank=1, worker_pids={21}),
        facts(20, start=5, role="worker", ppid=11, active=True),
        facts(21, start=5, role="worker", ppid=999),
    )
    assert found[20] == ("worker", 0, "10-0")
    assert found[21] == ("worker", 1, "11-0")


def test_a_forked_worker_belongs_to_the_process_it_was_forked_from() -> None:
    found = roles(facts(10), facts(20, start=5, role="worker", ppid=1, parent_main_pid=10))
    assert found[20] == ("worker", 0, "10-0")


def test_a_forkserver_that_reached_torch_has_no_workers() -> None:
    found = roles(
        facts(10), facts(15, ppid=10, start=2, active=False), facts(20, start=5, role="worker", ppid=15)
    )
    assert found[20] == ("worker", 0, "10-0")
    assert found[15][0] == "other"


def test_a_worker_without_a_trail_goes_to_its_rank() -> None:
    found = roles(facts(10, rank=0), facts(11, rank=1), facts(20, start=5, role="worker", ppid=77, rank=1))
    assert found[20] == ("worker", 1, "11-0")


def test_a_pid_that_came_again_means_the_process_of_that_time() -> None:
    found = roles(
        facts(10, start=1, last_ns=50),
        facts(10, start=100),
        facts(20, start=20, role="worker", ppid=10),
        facts(21, start=120, role="worker", ppid=10),
    )
    assert found[20][2] == "10-1"
    assert found[21][2] == "10-100"


def test_processes_started_side_by_side_without_a_rank_are_counted_and_later_ones_begin_again() -> None:
    found = roles(
        facts(10, ppid=5, start=1, last_ns=100),
        facts(11, ppid=5, start=2, last_ns=100),
        facts(12, ppid=5, start=200, last_ns=300),
    )
    assert [found[pid][1] for pid in (10, 11, 12)] == [0, 1, 0]


def test_steps_are_counted_while_rows_come_in() -> None:
    def rows(*kinds: tuple[int, int]) -> np.ndarray[Any, Any]:
        made = np.zeros(len(kinds), ROW_DTYPE)
        for i, (kind, obj) in enumerate(kinds):
            made[i]["kind"], made[i]["obj"] = kind, obj
        return made

    backward, generator, critic = (r.BACKWARD, 0), (r.OPTIMIZER, 1), (r.OPTIMIZER, 2)
    unfed = Facts(key="2-0", pid=2, start_ns=0)
    unfed.look_at(rows(backward, critic, critic))
    unfed.look_at(rows(backward, generator, critic))
    assert unfed.steps == 3
    bare = Facts(key="3-0", pid=3, start_ns=0)
    bare.look_at(rows(backward, backward))
    assert bare.steps == 2
