"""The tcn_state workload: its files, its variants against each other, resuming, its flags, bad input."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.running import python
from tests.workloads.scripts import WITHOUT_HOTLOOP, Modules, on_two_ranks, train
from tests.workloads.scripts import test_another_checkpoint_is_refused as test_another_checkpoint_is_refused

pytest.importorskip("torch")
pytest.importorskip("sklearn")
h5py = pytest.importorskip("h5py")

import numpy as np  # noqa: E402
import torch  # noqa: E402

FOLDER = Path(__file__).parents[2] / "workloads" / "tcn_state"
MODULES = ("data", "model", "train")


def test_files_are_matlab_v73(modules: Modules, folder: Path) -> None:
    files = modules["data"].find_files(folder / "data_simulation_*")
    assert len(files) == 4
    assert Path(files[0]).read_bytes()[:21] == b"MATLAB 7.3 MAT-file, "
    with h5py.File(files[0]) as file:
        group = file["simulation_data"]
        assert set(group) == {*modules["data"].INPUTS, *modules["data"].TRAJECTORY, *modules["data"].QUALITY}
        assert {group[name].shape for name in group} == {(1, 600)}
        assert all(np.isfinite(group[name][:]).all() for name in group)


def test_same_seed_same_data_and_made_once(modules: Modules, tmp_path: Path) -> None:
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


def test_datasets_agree_on_every_window(modules: Modules, folder: Path) -> None:
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


def test_full_size_model_has_the_published_parameters(modules: Modules) -> None:
    assert sum(p.numel() for p in modules["model"].ImplicitStateTCN().parameters()) == 896_030


@pytest.mark.parametrize("variant", ["guide", "cured"])
def test_variants_compute_the_same_losses(
    modules: Modules, folder: Path, tmp_path: Path, variant: str
) -> None:
    found = train(modules, folder, tmp_path / "found", "--variant", "as_found")
    other = train(modules, folder, tmp_path / "other", "--variant", variant)
    assert len(found) == len(other) == 6
    np.testing.assert_allclose([row["loss"] for row in other], [row["loss"] for row in found], rtol=1e-4)


def test_resuming_is_the_run_that_was_not_stopped(modules: Modules, folder: Path, tmp_path: Path) -> None:
    through = train(modules, folder, tmp_path / "through", "--epochs", "3")
    # Stop after the first epoch: the schedule must know all three, so the stop is an exception.
    stopped = tmp_path / "stopped"
    original = modules["train"].save_checkpoint

    class StopError(Exception):
        pass

    def save_and_stop(path: Path, **state: object) -> None:
        original(path, **state)
        raise StopError

    modules["train"].save_checkpoint = save_and_stop
    try:
        with pytest.raises(StopError):
            train(modules, folder, stopped, "--epochs", "3")
    finally:
        modules["train"].save_checkpoint = original
    rest = train(modules, folder, stopped, "--epochs", "3", "--resume", str(stopped / "last.pt"))
    assert [row["loss"] for row in rest] == [row["loss"] for row in through[3:]]


def test_resuming_with_more_epochs_goes_on(modules: Modules, folder: Path, tmp_path: Path) -> None:
    """The schedule is that of all epochs: at the end of the old one the rate was 0."""
    short = train(modules, folder, tmp_path / "short", "--epochs", "2")
    more = ("--epochs", "6", "--resume", str(tmp_path / "short" / "last.pt"))
    rest = train(modules, folder, tmp_path / "short", *more)
    assert len(rest) == 12
    losses = [row["loss"] for row in (short[-1], rest[2], rest[-1])]
    assert losses[0] > losses[1] > losses[2]
    rates = torch.load(tmp_path / "short" / "last.pt")["scheduler"]
    assert (rates["T_max"], rates["last_epoch"]) == (6, 6)
    assert rates["_last_lr"] == pytest.approx([0.0], abs=1e-9)


def test_flags_that_nothing_reads_are_told(
    modules: Modules, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = ("--cache_data", "--num_workers=0", "--prefetch_factor", "2", "--epochs", "1")
    train(modules, folder, tmp_path / "out", "--variant", "cured", *given)
    said = re.findall(r"dead in cured: (\S+) is set, and nothing reads it", capsys.readouterr().out)
    assert said == ["--cache_data", "--num_workers", "--prefetch_factor"]
    parse = modules["train"].parse_args
    assert parse(["--variant", "guide", *given]).dead == ["--prefetch_factor"]
    assert parse(["--variant", "as_found", "--cache_data", "--num_workers", "2"]).dead == ["--cache_data"]


def test_flags_are_real_booleans(modules: Modules) -> None:
    parse = modules["train"].parse_args
    assert parse([]).use_torch_compile is False
    assert parse(["--variant", "guide"]).use_torch_compile is torch.cuda.is_available()
    assert parse(["--use_torch_compile"]).use_torch_compile is True
    assert parse(["--use_torch_compile=False"]).use_torch_compile is False
    assert parse(["--use_amp", "yes", "--cache_data", "0"]).use_amp is True
    with pytest.raises(SystemExit):
        parse(["--use_amp=perhaps"])


def test_loader_flags_reach_the_loader(modules: Modules, folder: Path) -> None:
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
    modules: Modules, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
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
    modules: Modules, folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    train(modules, folder, tmp_path / "out", "--variant", "as_found", "--epochs", "4")
    rates = [float(rate) for rate in re.findall(r"Throughput: (\d+) samples/s", capsys.readouterr().out)]
    assert len(rates) == 4
    assert rates == sorted(rates, reverse=True)  # time since training began only grows


#: The guide's commands as they stand, but for the script's name: its own was deleted with the guide (X20).
BASIC = (
    "--data_dir data_simulation_* --epochs 100 --batch_size 512 --lr 1e-3 --lambda_physics 0.5 "
    "--num_workers 8 --prefetch_factor 8 --use_amp"
)
FAST = f"{BASIC} --cache_data --use_torch_compile"


def test_the_guides_commands_work_to_the_letter(
    modules: Modules, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    args = modules["train"].parse_args(["--variant", "guide", *FAST.split()])
    assert args.scale == "full" and args.dead == []  # the 896,030 parameters, not the small ones of a test
    assert (args.epochs, args.batch_size, args.lr, args.lambda_physics) == (100, 512, 1e-3, 0.5)
    assert (args.num_workers, args.prefetch_factor) == (8, 8)
    assert args.use_amp is args.cache_data is args.use_torch_compile is True
    # The same, shrunk by what comes after, in the folder that holds the data.
    monkeypatch.chdir(folder)
    small = "--scale tiny --epochs 1 --batch_size 32 --num_workers 1 --use_torch_compile=False"
    log = tmp_path / "steps.jsonl"
    rest = ["--variant", "guide", "--out", str(tmp_path), "--step_log", str(log)]
    modules["train"].main([*FAST.split(), *small.split(), *rest])
    assert len(log.read_text().splitlines()) == 3
    assert (tmp_path / "best.pt").exists()


def test_compiling_is_asked_for_by_mode_and_its_failure_is_one_sentence(
    modules: Modules, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from torch._dynamo.exc import TorchRuntimeError

    asked = []

    def compile_(model: object, *, mode: str) -> object:
        asked.append(mode)
        if mode == "max-autotune":
            raise TorchRuntimeError("no compiler\nmany more lines")
        return model

    monkeypatch.setattr(torch, "compile", compile_)
    flags = ["--variant", "guide", "--epochs", "1", "--use_torch_compile"]
    assert train(modules, folder, tmp_path / "out", *flags)
    with pytest.raises(
        SystemExit, match=r"torch\.compile failed [^\n]*: no compiler\nhint: --use_torch_comp"
    ):
        train(modules, folder, tmp_path / "out", *flags, "--compile_mode", "max-autotune")
    assert asked == ["reduce-overhead", "max-autotune"]


def test_the_loss_without_branches_is_the_same_in_every_branch(modules: Modules) -> None:
    train, names = modules["train"], modules["model"].HEADS
    torch.manual_seed(0)
    targets = torch.rand(16, len(names))
    cases = {
        "inside": torch.rand(16, 5) * 0.4 + 0.5,
        "below and above": torch.randn(16, 5) * 3,
        "all alike": torch.full((16, 5), 0.4),
        "quality below adhesion": torch.tensor([0.9, 0.5, 0.5, 0.5, 0.1]) + torch.rand(16, 5) * 0.1,
    }
    physics = {}
    for case, values in cases.items():
        outputs = dict(zip(names, values.unbind(1), strict=True))
        found = train.loss_as_found(outputs, targets, 0.5)
        for one, other in zip(train.loss_on_device(outputs, targets, 0.5), found, strict=True):
            torch.testing.assert_close(one, other)
        physics[case] = float(found[2])
    assert physics.pop("inside") == 0
    assert min(physics.values()) > 0  # every other case takes a branch


@pytest.mark.nightly
def test_two_ranks_train_on_half_the_windows_each(folder: Path, tmp_path: Path) -> None:
    said, num_steps = on_two_ranks(FOLDER / "train.py", folder, tmp_path, "--batch_size", "18")
    assert said.count("Epoch 2/2") == 1  # one rank speaks
    assert num_steps == 2 * 3  # 108 windows, 54 a rank


def test_cured_without_hotloop_says_what_it_needs(folder: Path, tmp_path: Path) -> None:
    given = ["--scale", "tiny", "--data", folder, "--out", tmp_path, "--variant", "cured"]
    cured = python("train.py", FOLDER / "train.py", *given, folder=tmp_path, script=WITHOUT_HOTLOOP)
    assert cured.returncode == 1
    assert cured.stderr == "error: gather needs hotloop.feed: pip install hotloop, or --ablate gather\n"


def spoil(own: Path, kind: str) -> str:
    """Spoil the last layer file; return what the message must say."""
    layer = own / "data_simulation_02" / "layer_004.mat"
    if kind in ("truncated", "empty", "text"):
        content = {"truncated": layer.read_bytes()[:9000], "empty": b"", "text": b"x, y, z\n" * 99}[kind]
        layer.write_bytes(content)
        return f"{layer} is truncated or no .mat file: "
    with h5py.File(layer, "r+") as file:
        if kind == "group":
            file.move("simulation_data", "simulation")
            return f"{layer} has no group simulation_data"
        group = file["simulation_data"]
        if kind == "renamed":
            group.move("T_nozzle", "T_nozle")
            return f"{layer} has no signal T_nozzle: is T_nozle it?"
        wanted = "T_nozzle" if kind in ("shape", "nan", "large") else None
        for name in [wanted] if wanted else list(group):
            values = group[name][:]
            del group[name]
            if kind in ("nan", "large"):
                values[0, 5:8] = {"nan": np.nan, "large": -1e300}[kind]
                group[name] = values
            else:
                group[name] = values[:, :300] if wanted else values[:, :249]
    return {
        "shape": f"{layer}: T_nozzle has shape (1, 300): expected (1, 600), as x_ref has",
        "nan": f"{layer}: T_nozzle has 3 values that are not finite, nan at point 5 the first: mend the file",
        "large": f"{layer}: T_nozzle has 3 values that are not finite, -1e+300 at point 5 the first: mend",
        "short": f"{layer} has 249 points: a window and its target are 250",
    }[kind]


@pytest.mark.parametrize("variant", ["as_found", "cured"])
@pytest.mark.parametrize(
    "kind", ["truncated", "empty", "text", "group", "renamed", "shape", "nan", "large", "short"]
)
def test_a_spoilt_file_stops_training_before_it_begins(
    modules: Modules, own: Path, tmp_path: Path, kind: str, variant: str
) -> None:
    says = spoil(own, kind)
    with pytest.raises(SystemExit, match=re.escape(says)) as raised:
        train(modules, own, tmp_path / "out", "--variant", variant)
    assert str(raised.value).startswith("error: ")
    assert not (tmp_path / "out" / "last.pt").exists()


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--batch_size", "512"], "error: --batch_size 512: a rank has 108 training windows"),
        (["--data_dir", "nothing_*"], "error: no .mat files in folders that match 'nothing_*'"),
        (["--resume", "none.pt"], "error: --resume none.pt is missing"),
    ],
)
def test_a_value_that_cannot_be_meant_is_one_sentence(
    modules: Modules, folder: Path, tmp_path: Path, flags: list[str], says: str
) -> None:
    with pytest.raises(SystemExit, match=re.escape(says)):
        train(modules, folder, tmp_path / "out", *flags)


@pytest.mark.parametrize(
    ("flag", "says"),
    [
        ("--cache_dat=1", "unknown argument --cache_dat=1: did you mean --cache_data?"),
        ("--nonsense", "unknown argument --nonsense: see --help"),
        ("--batch_size=0", "expected a whole number from 1, got '0'"),
        ("--num_workers=-1", "expected a whole number from 1, got '-1'"),
        ("--compile_mode=fast", "invalid choice: 'fast'"),
        ("--seed=-1", "expected a whole number from 1, got '-1'"),
    ],
)
def test_an_unknown_flag_is_named_with_the_nearest(
    modules: Modules, capsys: pytest.CaptureFixture[str], flag: str, says: str
) -> None:
    with pytest.raises(SystemExit) as raised:
        modules["train"].parse_args([flag])
    assert raised.value.code == 2
    assert says in capsys.readouterr().err


def test_one_file_is_too_few(modules: Modules, own: Path, tmp_path: Path) -> None:
    for path in sorted(own.rglob("*.mat"))[1:]:
        path.unlink()
    with pytest.raises(SystemExit, match=r"layer_001\.mat is alone: training and validation need"):
        train(modules, own, tmp_path / "out")


def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_the_checkpoint(
    modules: Modules, folder: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    train(modules, folder, out, "--epochs", "1")
    kept = (out / "last.pt").read_bytes()
    with pytest.raises(SystemExit, match="the loss of epoch 1 is nan: --resume it with a lower --lr"):
        train(modules, folder, out, "--lr", "1e30")
    assert (out / "last.pt").read_bytes() == kept


def test_a_batch_that_does_not_fit_is_said(
    modules: Modules, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the allocator's own words
    monkeypatch.setattr(modules["model"].ImplicitStateTCN, "forward", lambda *_: torch.empty(1 << 60))
    with pytest.raises(SystemExit, match=r"a batch does not fit[\s\S]*smaller --batch_size than 32"):
        train(modules, folder, tmp_path / "out")
