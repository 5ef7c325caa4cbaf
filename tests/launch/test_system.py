from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from hotloop.launch import system
from hotloop.launch.system import Sampler


@contextmanager
def family() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A parent with a child that holds 64 MB; yields the parent and the child's pid."""
    child = (
        "import sys; block = bytearray(64 << 20); block[::4096] = bytes([1]) * (64 << 8);"
        " print(1, flush=True); sys.stdin.read()"
    )
    code = (
        "import subprocess as s, sys; p = s.Popen([sys.executable, '-c', sys.argv[1]], stdin=s.PIPE,"
        " stdout=s.PIPE); p.stdout.readline(); print(p.pid, flush=True); sys.stdin.readline();"
        " p.stdin.close(); p.wait(); print('alone', flush=True); sys.stdin.readline()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", code, child], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    try:
        yield parent, int(parent.stdout.readline())
    finally:
        parent.communicate("\n\n", timeout=60)


def test_every_process_of_the_tree_is_sampled_until_it_ends() -> None:
    sampler = Sampler(interval_s=0.0)
    with family() as (parent, child):
        _, rows = sampler.sample(parent.pid)
        assert {int(row["pid"]) for row in rows} == {parent.pid, child}
        memory = {int(row["pid"]): row["rss_bytes"] for row in rows}
        assert memory[child] > 64 << 20
        assert memory[child] > memory[parent.pid] + (40 << 20)
        assert parent.stdin is not None and parent.stdout is not None
        parent.stdin.write("\n")
        parent.stdin.flush()
        assert parent.stdout.readline() == "alone\n"
        _, rows = sampler.sample(parent.pid)
        assert {int(row["pid"]) for row in rows} == {parent.pid}
    assert sampler.sample(parent.pid)[1] == []


def test_every_column_is_documented() -> None:
    documented = set(re.findall(r"``([a-zA-Z0-9_]+)``", system.__doc__ or ""))
    sampler = Sampler(interval_s=0.0)
    with family() as (parent, _):
        taken = [row for _ in range(2) for rows in sampler.sample(parent.pid) for row in rows]
    names = {re.sub(r"^gpu\d+_", "gpuN_", name) for row in taken for name in row}
    assert names - {"t_ns", "pid"} <= documented
