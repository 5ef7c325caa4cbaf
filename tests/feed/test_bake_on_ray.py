"""The parts of a bake as tasks of a real Ray of two nodes, where it is installed."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from bake_datasets import Images, Killed
from test_bake import contents, described

from hotloop.feed import bake

ray: Any = pytest.importorskip("ray")


@pytest.fixture(scope="module", autouse=True)
def cluster() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Ray's own, about files it leaves open
        here = Path(__file__).resolve().parent
        paths = f"{here}{os.pathsep}{here.parents[1] / 'src'}"
        from ray.cluster_utils import Cluster

        nodes = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
        nodes.add_node(num_cpus=1)
        ray.init(address=nodes.address, runtime_env={"env_vars": {"PYTHONPATH": paths}})
        yield
        ray.shutdown()
        nodes.shutdown()


def test_ray_writes_the_same_bytes_as_processes(tmp_path: Path) -> None:
    dataset = Images(odd_every=5)
    baked = bake(dataset, tmp_path / "ray", ray=True, verify="full")
    bake(dataset, tmp_path / "here", num_workers=0)
    assert contents(tmp_path / "ray") == contents(tmp_path / "here")
    assert [described(sample) for sample in baked] == [described(dataset[k]) for k in range(96)]


def test_a_task_whose_process_was_killed_is_run_again(tmp_path: Path) -> None:
    dataset = Killed(40, str(tmp_path / "once"))
    bake(dataset, tmp_path / "out", ray=True, source=[])
    assert (tmp_path / "once").exists()
