"""The tcn_state workload: its files, its variants against each other, resuming, its flags."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
from tests.workloads.scripts import imported

pytest.importorskip("torch")
pytest.importorskip("sklearn")
h5py = pytest.importorskip("h5py")

import numpy as np  # noqa: E402
import torch  # noqa: E402

FOLDER = Path(__file__).parents[2] / "workloads" / "tcn_state"


@pytest.fixture(scope="module")
def modules() -> Iterator[dict[str, ModuleType]]:
    """The workload's modules, imported as the script imports them and forgotten afterwards."""
    with imported(FOLDER, "data", "model", "train") as found:
        yield found


@pytest.fixture(scope="module")
def folder(modules: dict[str, ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = modules["data"].make_data("tiny", seed=3, root=tmp_path_factory.mktemp("tcn"))
    return made


@pytest.fixture(autouse=True)
def torch_state() -> Iterator[None]:
    """Leave torch's random state as it was."""
    state = torch.get_rng_state()
    yield
    torch.set_rng_state(state)


def train(modules: dict[str, ModuleType], folder: Path, out: Path, *flags: str) -> list[dict[str, float]]:
    log = out / "steps.jsonl"
    out.mkdir(exist_ok=True)
    command = ["--scale", "tiny", "--data", str(folder), "--out", str(out), "--step_log", str(log), *flags]
    modules["train"].main(command)
    return [json.loads(line) for line in log.read_text().splitlines()]


def test_files_are_matlab_v73(modules: dict[str, ModuleType], folder: Path) -> None:
    files = modules["data"].find_files(folder / "data_simulation_*")
    assert len(files) == 4
    assert Path(files[0]).read_bytes()[:21] == b"MATLAB 7.3 MAT-file, "
    with h5py.File(files[0]) as file:
        group = file["simulation_data"]
        assert set(group) == {*modules["data"].INPUTS, *modules["data"].TRAJECTORY, *modules["data"].QUALITY}
        assert {group[name].shape for name in group} == {(1, 600)}
        assert all(np.isfinite(group[name][:]).all() for name in group)


def test_same_seed_same_data_and_made_once(modules: dict[str, ModuleType], tmp_path: Path) -> None:
    make = modules["data"].make_data
    first, second = make("tiny", 5, tmp_path / "a"), make("tiny", 5, tmp_path / "b")
    other = make("tiny", 6, tmp_path / "a")
    name = "data_simulation_01/layer_001.mat"
    load = modules["data"].load_mat
    assert np.array_equal(load(first / name)["x_ref"], load(second / name)["x_ref"])
    assert not np.array_equal(load(first / name)["x_ref"], load(other / name)["x_ref"])
    stamp = (first / name).stat().st_mtime_ns
    assert make("tiny", 5, tmp_path / "a") == first
    assert (first / name).stat().st_mtime_ns == stamp


def test_older_mat_files_are_read(modules: dict[str, ModuleType], folder: Path, tmp_path: Path) -> None:
    from scipy.io import savemat

    new = modules["data"].find_files(folder / "data_simulation_*")[0]
    signals = modules["data"].load_mat(new)
    savemat(tmp_path / "old.mat", {"simulation_data": signals})
    old = modules["data"].load_mat(tmp_path / "old.mat")
    assert all(np.array_equal(signals[name], old[name]) for name in signals)


def test_datasets_agree_on_every_window(modules: dict[str, ModuleType], folder: Path) -> None:
    data = modules["data"]
    files = data.find_files(folder / "data_simulation_*")
    scaler = data.fit_scaler(files)
    found = data.PrinterDataset(files, scaler)
    assert len(found) == 144
    others = [
        data.PrenormalisedDataset(files, scaler),
        data.PrenormalisedDataset(files, scaler, cache_data=True),
        data.GatheredDataset(files, scaler),
    ]
    for other in others:
        assert len(other) == len(found)
        for index in (0, 35, 36, 143):
            for name in ("input_features", "quality_targets"):
                torch.testing.assert_close(other[index][name], found[index][name], rtol=0, atol=1e-6)


def test_full_size_model_has_the_published_parameters(modules: dict[str, ModuleType]) -> None:
    assert sum(p.numel() for p in modules["model"].ImplicitStateTCN().parameters()) == 896_030


@pytest.mark.parametrize("variant", ["guide", "cured"])
def test_variants_compute_the_same_losses(
    modules: dict[str, ModuleType], folder: Path, tmp_path: Path, variant: str
) -> None:
    found = train(modules, folder, tmp_path / "found", "--variant", "as_found")
    other = train(modules, folder, tmp_path / "other", "--variant", variant)
    assert len(found) == len(other) == 6
    np.testing.assert_allclose([row["loss"] for row in other], [row["loss"] for row in found], rtol=1e-4)


def test_resuming_is_the_run_that_was_not_stopped(
    modules: dict[str, ModuleType], folder: Path, tmp_path: Path
) -> None:
    through = train(modules, folder, tmp_path / "through", "--epochs", "3")
    # Stop after the first epoch: the schedule must know all three, so the stop is an exception.
    stopped = tmp_path / "stopped"
    original = modules["train"].save_checkpoint

    class StopError(Exception):
        pass

    def save_and_stop(*args: object) -> None:
        original(*args)
        raise StopError

    modules["train"].save_checkpoint = save_and_stop
    try:
        with pytest.raises(StopError):
            train(modules, folder, stopped, "--epochs", "3")
    finally:
        modules["train"].save_checkpoint = original
    rest = train(modules, folder, stopped, "--epochs", "3", "--resume", str(stopped / "last.pt"))
    assert [row["loss"] for row in rest] == [row["loss"] for row in through[3:]]


def test_flags_are_real_booleans(modules: dict[str, ModuleType]) -> None:
    parse = modules["train"].parse_args
    assert parse([]).use_torch_compile is False
    assert parse(["--use_torch_compile"]).use_torch_compile is True
    assert parse(["--use_torch_compile=False"]).use_torch_compile is False
    assert parse(["--use_amp", "yes", "--cache_data", "0"]).use_amp is True
    with pytest.raises(SystemExit):
        parse(["--use_amp=perhaps"])


def test_loader_flags_reach_the_loader(modules: dict[str, ModuleType], folder: Path) -> None:
    parse, make = modules["train"].parse_args, modules["train"].make_loaders
    flags = ["--scale", "tiny", "--data_dir", str(folder / "data_simulation_*"), "--batch_size", "16"]
    cpu = torch.device("cpu")
    loader, _, _ = make(parse([*flags, "--variant", "as_found"]), cpu)
    assert (loader.batch_size, loader.num_workers, loader.persistent_workers) == (16, 0, False)
    guide = [*flags, "--variant", "guide", "--num_workers", "2", "--prefetch_factor", "8", "--cache_data"]
    loader, _, _ = make(parse(guide), cpu)
    assert (loader.num_workers, loader.prefetch_factor, loader.persistent_workers) == (2, 8, True)
    assert loader.dataset.cache_data is True


def test_a_part_can_be_left_out(
    modules: dict[str, ModuleType], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cured = train(modules, folder, tmp_path / "cured", "--variant", "cured")
    without = train(modules, folder, tmp_path / "without", "--variant", "cured", "--ablate", "gather")
    np.testing.assert_allclose([row["loss"] for row in without], [row["loss"] for row in cured], rtol=1e-4)
    args = modules["train"].parse_args(
        ["--scale", "tiny", "--data", str(folder), "--variant", "cured", "--ablate", "gather"]
    )
    loader, _, _ = modules["train"].make_loaders(args, torch.device("cpu"))
    assert isinstance(loader.dataset, modules["data"].PrenormalisedDataset)
    with pytest.raises(SystemExit):
        modules["train"].parse_args(["--variant", "as_found", "--ablate", "gather"])
    assert "parts of as_found are none" in capsys.readouterr().err


def test_as_found_keeps_the_misleading_throughput_line(
    modules: dict[str, ModuleType], folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(modules, folder, tmp_path / "out", "--variant", "as_found", "--epochs", "4")
    rates = [float(rate) for rate in re.findall(r"Throughput: (\d+) samples/s", capsys.readouterr().out)]
    assert len(rates) == 4
    assert rates == sorted(rates, reverse=True)  # time since training began only grows


def test_no_data_is_one_sentence(modules: dict[str, ModuleType], tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no \.mat files"):
        modules["data"].find_files(tmp_path / "nothing_*")
