"""``hotloop tune --ray`` on a real Ray of two nodes, where it is installed."""

from __future__ import annotations

import json
import sys
import warnings
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from test_tune_command import SCRIPT
from tests.running import hotloop

pytestmark = pytest.mark.nightly


def test_both_nodes_race_an_arm_beside_the_unmodified_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster: Any = pytest.importorskip("ray.cluster_utils")
    (tmp_path / "train.py").write_text(SCRIPT)
    monkeypatch.setenv("RAY_agent_register_timeout_ms", "150000")  # it starts on busy cores too
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own, about files it leaves open
        nodes = cluster.Cluster(
            initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False}
        )
        nodes.add_node(num_cpus=1)
        monkeypatch.setenv("RAY_ADDRESS", nodes.address)
        words = ("--ray", "--in-place", "--out", "tuned", "--budget", "4m", "--json", "--")
        done = hotloop("tune", *words, sys.executable, "train.py", folder=tmp_path, timeout=400)
        nodes.shutdown()
    assert done.returncode == 0, done.stderr
    assert "launches on 2 nodes of Ray, 1 core each" in done.stderr
    trials = [one for one in json.loads(done.stdout)["trials"] if one["key"].startswith("race-1/0/")]
    lanes: dict[bool, list[Any]] = {False: [], True: []}
    for one in trials:
        run = json.loads((tmp_path / "tuned" / one["folder"] / "run.json").read_text())
        lanes[one["key"].startswith("race-1/0/1: ")].append((run["start_ns"], run["wall_s"], one))
    for lane in lanes.values():
        assert [trial["remedies"] == [] for *_, trial in lane] == [True, *[False] * (len(lane) - 1)]
        assert all(start + wall_s * 1e9 <= later for (start, wall_s, _), (later, *_) in pairwise(lane))
