"""Lines and warnings from samples whose truth is known."""

from __future__ import annotations

from typing import Any

from hotloop.footprint.watch import MemoryWatch

GB = 1e9
MACHINE = {"ram_bytes": int(256 * GB)}


class Watched:
    """A watch fed half a second at a time."""

    def __init__(self, machine: dict[str, Any], every: int | None = None) -> None:
        self.said: list[str] = []
        self.machine = machine
        self.watch = MemoryWatch(machine, say=self.said.append, every=every)
        self.t = 0.0

    def sample(self, used_gb: float, *, step: int = 0, rss_gb: float = 10.0) -> None:
        self.t += 0.5
        sample = {"t_ns": self.t * 1e9}
        if "memory_limit_bytes" in self.machine:
            sample |= {"cgroup_working_set_bytes": used_gb * GB, "memory_available_bytes": 250 * GB}
        else:
            sample |= {"memory_available_bytes": self.machine["ram_bytes"] - used_gb * GB}
        processes = [{"pid": 7.0, "rss_bytes": rss_gb * GB, "shared_bytes": 0.0}]
        self.watch.look([sample], processes, pid=7, step=step)


def test_the_line_has_the_guides_form() -> None:
    watched = Watched(MACHINE, every=100)
    watched.sample(125.4, step=99, rss_gb=15.6789)
    assert watched.said == []
    watched.sample(125.4, step=103, rss_gb=15.6789)
    watched.sample(125.4, step=140, rss_gb=15.6789)
    assert watched.said == ["[step 100] process 14,952.6 MiB (6.1 %), system 116.8/238.4 GiB (49.0 %)"]


def test_a_cgroup_that_is_tighter_is_what_counts() -> None:
    watched = Watched({"ram_bytes": int(256 * GB), "memory_limit_bytes": int(20 * GB)}, every=1)
    watched.sample(5, step=1)
    assert watched.said == ["[step 1] process 9,536.7 MiB (50.0 %), cgroup 4.7/18.6 GiB (25.0 %)"]
    watched.sample(19, step=1)
    assert "warning: memory of the cgroup is at 95.0 %" in watched.said[1]


def test_it_warns_once_at_90_percent() -> None:
    watched = Watched(MACHINE)
    for used in (229, 231, 235, 200, 240):
        watched.sample(used)
    assert len(watched.said) == 1
    assert "at 90.2 % (215.1 of 238.4 GiB; this run holds 9.3 GiB)" in watched.said[0]
