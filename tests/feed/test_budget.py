"""Cores and memory, read from folders laid out as the kernel lays out its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from hotloop.feed import budget

GIB = 1 << 30

MEMINFO = """MemTotal:       {total} kB
MemFree:         1024 kB
MemAvailable:   {available} kB
Buffers:          230944 kB
"""
STAT_V2 = "anon 1048576\nfile 536870912\nshmem 0\ninactive_file {inactive}\nactive_file 4096\n"
STAT_V1 = "cache 36864\nrss 1773568\ninactive_file 1\ntotal_cache 36864\ntotal_inactive_file {inactive}\n"
PRESSURE = "some avg10={stalled:.2f} avg60=0.00 avg300=0.00 total=12\nfull avg10=0.00 avg60=0.00 total=0\n"
EVENTS = "low 0\nhigh {high}\nmax {max}\noom 0\noom_kill 0\noom_group_kill 0\n"


class Machine:
    """A ``proc`` and a ``sys`` to write into."""

    def __init__(self, root: Path, *, total: int = 64 * GIB, available: int = 48 * GIB) -> None:
        self.root = root
        self.write("proc/meminfo", MEMINFO.format(total=total // 1024, available=available // 1024))
        self.write("proc/self/status", "Name:\tpython\nVmSize:\t  200000 kB\nVmData:\t  100000 kB\n")
        self.write("proc/self/cgroup", "0::/\n")
        self.write("proc/pressure/memory", PRESSURE.format(stalled=0))

    def write(self, path: str, text: str) -> None:
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text)

    def cgroup_v2(self, path: str, *, limit: str = "max", used: int = 0, inactive: int = 0) -> str:
        folder = f"sys/fs/cgroup/{path}"
        self.write(f"{folder}/memory.max", f"{limit}\n")
        self.write(f"{folder}/memory.high", "max\n")
        self.write(f"{folder}/memory.current", f"{used}\n")
        self.write(f"{folder}/memory.stat", STAT_V2.format(inactive=inactive))
        self.write(f"{folder}/memory.events", EVENTS.format(high=0, max=0))
        self.write(f"{folder}/memory.pressure", PRESSURE.format(stalled=0))
        return folder


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_without_cgroup_limits_what_is_available_counts(machine: Machine) -> None:
    assert budget.usable_memory_bytes(root=machine.root) == 48 * GIB
    assert budget.total_memory_bytes(root=machine.root) == 64 * GIB


def test_the_tightest_ancestor_bounds_memory(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "0::/job/rank0\n")
    machine.cgroup_v2("job/rank0", limit=str(40 * GIB), used=10 * GIB)
    machine.cgroup_v2("job", limit=str(32 * GIB), used=24 * GIB, inactive=4 * GIB)
    assert budget.total_memory_bytes(root=machine.root) == 32 * GIB
    # 32 limit - (24 used - 4 of them files that the kernel may drop)
    assert budget.usable_memory_bytes(root=machine.root) == 12 * GIB


@pytest.mark.parametrize("inside", [True, False], ids=["own tree", "container: path of the host's tree"])
def test_cgroup_v1(machine: Machine, inside: bool) -> None:
    machine.write("proc/self/cgroup", "4:memory:/docker/abc\n2:cpu,cpuacct:/docker/abc\n0::/\n")
    within = "/docker/abc" if inside else ""
    memory, cpu = f"sys/fs/cgroup/memory{within}", f"sys/fs/cgroup/cpu,cpuacct{within}"
    machine.write(f"{memory}/memory.limit_in_bytes", f"{16 * GIB}\n")
    machine.write(f"{memory}/memory.usage_in_bytes", f"{6 * GIB}\n")
    machine.write(f"{memory}/memory.stat", STAT_V1.format(inactive=2 * GIB))
    machine.write(f"{cpu}/cpu.cfs_quota_us", "50000\n")
    machine.write(f"{cpu}/cpu.cfs_period_us", "100000\n")
    assert budget.usable_memory_bytes(root=machine.root) == 12 * GIB
    assert budget.usable_cores(root=machine.root, world=1) == 0.5
    machine.write(f"{cpu}/cpu.cfs_quota_us", "-1\n")  # no quota
    assert budget.usable_cores(root=machine.root, world=1) >= 1


def test_cores_are_bounded_by_the_quota_of_any_ancestor(machine: Machine) -> None:
    machine.write("proc/self/cgroup", "0::/job/rank0\n")
    machine.write("sys/fs/cgroup/job/rank0/cpu.max", "max 100000\n")
    machine.write("sys/fs/cgroup/job/cpu.max", "80000 100000\n")
    assert budget.usable_cores(root=machine.root, world=1) == 0.8


def test_ranks_share_the_cores(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = budget.usable_cores(root=machine.root)
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "4")
    assert budget.usable_cores(root=machine.root) == alone / 4
    assert budget.usable_cores(root=machine.root, world=2) == alone / 2


@pytest.mark.parametrize(
    ("spec", "num_bytes"),
    [
        ("10GB", 10 * 10**9),
        ("10GiB", 10 * GIB),
        (" 1.5 gib ", 3 * GIB // 2),
        ("512MiB", 512 << 20),
        ("4096", 4096),
        (4096, 4096),
        (4096.0, 4096),
        (0.25, 12 * GIB),
        ("25%", 12 * GIB),
        ("auto", 24 * GIB),
        (None, 24 * GIB),
        ("50TB", 64 * GIB - 64 * GIB // 10),  # a ceiling: what there is, less the headroom
    ],
)
def test_budget_spec(machine: Machine, spec: str | float | None, num_bytes: int) -> None:
    assert budget.memory_budget(spec, root=machine.root) == num_bytes
    assert budget.memory_budget(spec, world=4, root=machine.root) == num_bytes // 4


@pytest.mark.parametrize(
    "spec", ["", "many", "50XB", "-1GB", "0", 0, -5, 0.0, -0.5, float("nan"), True, "9e9%"]
)
def test_a_budget_that_is_no_size_is_refused(machine: Machine, spec: str | float) -> None:
    with pytest.raises(ValueError, match="memory budget"):
        budget.memory_budget(spec, root=machine.root)


def test_memory_is_short_below_the_headroom(machine: Machine) -> None:
    machine.cgroup_v2("", limit=str(32 * GIB), used=8 * GIB)
    assert not budget.memory_is_short(root=machine.root)
    machine.cgroup_v2("", limit=str(32 * GIB), used=31 * GIB)
    assert budget.memory_is_short(root=machine.root)
