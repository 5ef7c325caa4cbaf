"""A workload's modules, its tiny data and a quiet torch, for the tests of every workload."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.workloads.scripts import Modules, imported


@pytest.fixture(scope="module")
def modules(request: pytest.FixtureRequest) -> Iterator[Modules]:
    """The test file's MODULES of its FOLDER, imported as the script imports them, forgotten afterwards."""
    with imported(request.module.FOLDER, *request.module.MODULES) as found:
        yield found


@pytest.fixture(scope="module")
def folder(modules: Modules, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = modules["data"].make_data("tiny", seed=3, root=tmp_path_factory.mktemp("data"))
    return made


@pytest.fixture
def own(folder: Path, tmp_path: Path) -> Path:
    """A copy of the data to spoil."""
    return Path(shutil.copytree(folder, tmp_path / "own"))


@pytest.fixture(autouse=True)
def torch_state(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """One thread and no rank of a torchrun; random states and flags are restored afterwards."""
    torch = pytest.importorskip("torch")
    monkeypatch.delenv("WORLD_SIZE", raising=False)
    cudnn, matmul = torch.backends.cudnn, torch.backends.cuda.matmul
    state, numpy_state, threads = torch.get_rng_state(), np.random.get_state(), torch.get_num_threads()
    flags = cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
    torch.set_rng_state(state)
    np.random.set_state(numpy_state)
    cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32, matmul.allow_tf32 = flags
