"""The bev workload: its files and geometry, its variants, dead keys, resuming, bad input."""

from __future__ import annotations

import json
import re
import shutil
import sys
from functools import partial
from pathlib import Path

import pytest
from tests.workloads import scripts
from tests.workloads.scripts import Modules, finished, losses, on_two_ranks
from tests.workloads.scripts import test_made_once_and_alike as test_made_once_and_alike

pytest.importorskip("torch")
pytest.importorskip("PIL")

import numpy as np
import torch
from PIL import Image

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "workloads" / "bev"
MODULES = ("config", "data", "model", "loaders", "steps", "train")
BASELINE = FOLDER / "configs" / "baseline"
#: What makes the variants the same training: constant learning rate, one batch size, no random brightness.
SAME = (
    "lr_config.policy=fixed", "optimizer.lr=2e-4", "data.samples_per_gpu=2", "data.workers_per_gpu=0",
    "data.brightness_delta=0.0", "data.contrast=0.0", "evaluation.interval=1000",
)  # fmt: skip


@pytest.fixture(scope="module")
def small(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data with a single validation picture, to train on in little time."""
    return with_few(folder, tmp_path_factory.mktemp("small"), "val", 1)


@pytest.fixture(scope="module")
def few(small: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Eight training pictures: epochs of four batches."""
    return with_few(small, tmp_path_factory.mktemp("few"), "train", 8)


def with_few(folder: Path, room: Path, mode: str, num: int) -> Path:
    """A copy of the data with the first pictures only."""
    copy = Path(shutil.copytree(folder, room / "data"))
    for image in sorted((copy / "img_dir" / mode).iterdir())[num:]:
        image.unlink()
    return copy


def train(
    modules: Modules, folder: Path, out: Path, variant: str, *options: str, more: tuple[str, ...] = ()
) -> list[dict[str, float]]:
    flags = ("--variant", variant, *more, "--options", *SAME, *options)
    return scripts.train(modules, folder, out, *flags, into="--work-dir")


def test_files_are_what_the_format_says(modules: Modules, folder: Path) -> None:
    images = sorted((folder / "img_dir" / "train").iterdir())
    calib = json.loads((folder / "calib.json").read_text())
    assert len(images) == 16
    assert set(calib) == {path.stem for path in folder.glob("img_dir/*/*")}
    labels = np.asarray(Image.open(folder / "ann_bev_dir" / "train" / images[0].name)).astype(np.int32)
    assert labels.shape == (196, 200)
    assert labels.max() < 2**15
    assert (labels & 1).any()  # road
    hidden = (labels >> 14) & 1
    assert 0.1 < hidden.mean() < 0.9
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 20e6


def test_the_map_lies_where_the_intrinsics_say(modules: Modules, folder: Path) -> None:
    """Visible road cells, projected into the picture, are of the colour of road."""
    data = modules["data"]
    files = data.BevFiles(folder, "train", (192, 144))
    share = []
    for index in range(len(files)):
        labels, calib = files.labels(index), files.calibs[files.kinds[index]].numpy()
        rows, columns = np.nonzero(labels == 1)  # road, nothing on it, visible
        z, x = 1 + (rows + 0.5) / 4, -25 + (columns + 0.5) / 4
        u, v = calib[0, 0] * x / z + calib[0, 2], calib[1, 1] * data.CAMERA_HEIGHT / z + calib[1, 2]
        inside = (u < 192) & (v < 144) & (z < 25)
        colours = files.picture(index)[v[inside].astype(int), u[inside].astype(int)].astype(int)
        share.append((abs(colours - data.GROUND[1]).max(axis=1) < 12).mean())
    assert np.mean(share) > 0.8


def test_full_size_model_has_the_published_parameters(modules: Modules) -> None:
    config = modules["config"].Config.fromfile(BASELINE / "lss_swin_nuscenes.py")
    with torch.device("meta"):
        model = modules["model"].BevNet(config["data.img_scale"], **config["model"])
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(29.56e6, rel=0.005)


def test_remembered_cells_give_the_same_map_and_gradients(modules: Modules) -> None:
    torch.manual_seed(0)
    data, model = modules["data"], modules["model"]
    calibs = torch.from_numpy(np.stack([data.intrinsics(k, 128, 96) for k in range(3)])).float()
    numbers = torch.tensor([2, 0])
    anew = model.LiftSplat(8, 4, (128, 96))
    kept = model.LiftSplat(8, 4, (128, 96))
    kept.load_state_dict(anew.state_dict())
    kept.remember(calibs, (3, 4))
    features = torch.randn(2, 8, 3, 4)
    weights = torch.randn(2, 4, *model.MAP_SHAPE)
    maps = [lift(features, cameras) for lift, cameras in ((anew, calibs[numbers]), (kept, numbers))]
    torch.testing.assert_close(maps[1], maps[0], rtol=1e-4, atol=1e-4)
    assert (maps[0] != 0).any()
    for lift, made in zip((anew, kept), maps, strict=True):
        (made * weights).sum().backward()
        assert lift.depthnet.weight.grad is not None
    torch.testing.assert_close(kept.depthnet.weight.grad, anew.depthnet.weight.grad, rtol=1e-3, atol=1e-3)


def test_every_point_lands_in_its_cell(modules: Modules) -> None:
    """Against the arithmetic written out for single points."""
    data, model = modules["data"], modules["model"]
    calib = data.intrinsics(1, 128, 96)
    points = model.frustum((128, 96), (3, 4))
    cells = model.cells_of(points, torch.from_numpy(calib).float()[None])[0].reshape(points.shape[:3])
    for depth, i, j in ((0, 0, 0), (10, 2, 1), (30, 1, 2), (48, 2, 3)):
        u, _, z = points[depth, i, j].tolist()
        x = (u - calib[0, 2]) * z / calib[0, 0]
        row, column = int((z - 1) // 0.5), int((x + 25) // 0.5)
        inside = 0 <= row < 98 and 0 <= column < 100
        assert cells[depth, i, j] == (row * 100 + column if inside else -1)


def test_compact_samples_expand_to_those_of_the_pipeline(modules: Modules, folder: Path) -> None:
    data, mean, std = modules["data"], (123.675, 116.28, 103.53), (58.395, 57.12, 57.375)
    found = data.PipelineDataset(folder, "train", (128, 96), mean, std)
    compact = data.CompactDataset(folder, "train", (128, 96))
    expand = modules["loaders"].Expand(mean, std, 0.0, 0.0, torch.device("cpu"))
    for index in (0, 7):
        small = compact[index]
        batch = expand({name: value[None] for name, value in small.items()})
        torch.testing.assert_close(batch["image"][0], found[index]["image"], rtol=0, atol=1e-5)
        assert torch.equal(batch["labels"][0], found[index]["labels"])
        assert torch.equal(batch["valid"][0], found[index]["valid"])
        torch.testing.assert_close(compact.calibs[small["cameras"]], found[index]["cameras"])
        sizes = [sum(v.nbytes for v in sample.values()) for sample in (small, found[index])]
        assert sizes[0] * 10 < sizes[1]


def test_variants_compute_the_same_losses(modules: Modules, small: Path, tmp_path: Path) -> None:
    found, guide, cured = (
        train(modules, small, tmp_path / variant, variant, "runner.max_iters=3")
        for variant in ("as_found", "guide", "cured")
    )
    assert len(found) == 3
    assert {"data_wait", "h2d", "fwd", "bwd", "opt", "other", "samples_per_s"} <= set(found[0])
    assert losses(guide) == losses(found)  # on a CPU the guide's fixes touch nothing
    np.testing.assert_allclose(losses(cured), losses(found), rtol=2e-3)
    exact = train(
        modules, small, tmp_path / "exact", "cured", "runner.max_iters=2",
        more=("--ablate", "fused_optimizer", "--ablate", "cached_index"),
    )  # fmt: skip
    np.testing.assert_allclose(losses(exact), losses(found)[:2], rtol=1e-5)


@pytest.mark.nightly
def test_the_learning_rate_is_applied_by_cured_alone(
    modules: Modules, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """X25: as found and in the guide, warm-up, poly and scaling rules have no effect."""
    options = (
        "lr_config.policy=poly",
        "lr_config.warmup_iters=2",
        "runner.max_iters=4",
        "log_config.interval=1",
    )
    rates = {}
    for variant in ("guide", "cured"):
        train(modules, small, tmp_path / variant, variant, *options)
        printed = capsys.readouterr().out
        rates[variant] = [float(rate) for rate in re.findall(r"lr: (\S+),", printed)]
        assert ("samples/s" in printed) == (variant == "cured")
    assert rates["guide"] == [2e-4] * 4
    assert rates["cured"] == pytest.approx([7.76e-5, 1.08e-4, 5.83e-5, 1e-6], rel=0.05)


def test_dead_keys_of_the_project_are_said(
    modules: Modules, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """X24: as found and in the guide they are accepted and named; cured reads all that it accepts."""
    said = {}
    for variant in ("as_found", "guide", "cured"):
        train(modules, small, tmp_path / variant, variant, "runner.max_iters=1")
        found = re.search(r"read by nothing: (.*)", capsys.readouterr().err)
        said[variant] = set(found[1].split(", ")) if found else set()
    loader = {"data.pin_memory", "data.persistent_workers"}
    assert said["as_found"] == loader | {"evaluation.efficient_test", "evaluation.pre_eval"}
    assert said["guide"] == said["as_found"] | {"data.prefetch_factor", "runner.accumulative_counts"}
    assert not said["cured"]


def test_accumulation_is_live_in_cured(modules: Modules, small: Path, tmp_path: Path) -> None:
    """X24: ``accumulative_counts=2`` steps every other iteration, where it used to do nothing."""
    options = ("runner.max_iters=3", "runner.accumulative_counts=2")
    rows = train(modules, small, tmp_path / "cured", "cured", *options)
    assert [row["opt"] > 0 for row in rows] == [False, True, False]
    (row,) = train(modules, small, tmp_path / "guide", "guide", *options, "runner.max_iters=1")
    assert row["opt"] > 0


@pytest.mark.parametrize(
    ("variant", "option", "says"),
    [
        ("as_found", "data.sample_per_gpu=4", "read by nothing: did you mean data.samples_per_gpu?"),
        ("cured", "runner.max_iter=4", "runner.max_iter is read by nothing: did you mean runner.max_iters?"),
        ("as_found", "data.samples_per_gpu=four", "is 'four': expected a whole number from 1"),
        ("as_found", "data.samples_per_gpu=17", "samples_per_gpu is 17: a rank has 16 training samples"),
        ("cured", "lr_config.policy=cosine", "lr_config knows policy='poly' and 'fixed'"),
        ("as_found", "loss.priors=(0.5,)", "loss.priors: expected 14 shares between 0 and 1"),
        ("as_found", "data.img_scale=(8,6)", "data.img_scale is (8, 6): expected (width, height)"),
        ("as_found", "runner", "--options runner: expected KEY=VALUE"),
    ],
)  # fmt: skip
def test_a_key_with_a_mistake_is_named(
    modules: Modules, folder: Path, tmp_path: Path, variant: str, option: str, says: str
) -> None:
    with pytest.raises(SystemExit, match=re.escape(says)) as raised:
        train(modules, folder, tmp_path / "out", variant, option)
    assert str(raised.value).startswith("error: ")


def test_every_configuration_of_the_guide_trains(
    modules: Modules, small: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The guide's command as it stands, shrunk; configuration 2 is a change of the first."""
    speed = ("data.samples_per_gpu=4", "data.workers_per_gpu=16", "data.prefetch_factor=8")
    settings = [("optimized", 6, 12, ()), ("high_memory", 8, 8, ()), ("optimized", 4, 16, speed)]
    for name, batch_size, num_workers, options in settings:
        command = [
            str(BASELINE / f"lss_swin_nuscenes_{name}.py"),
            "--work-dir",
            str(tmp_path),
            "--gpu-ids",
            "0",
        ]
        args = modules["train"].parse_args([*command, "--options", "runner.max_iters=100", *options])
        config = modules["train"].load_config(args)
        assert args.scale == "full"
        assert (config["data.samples_per_gpu"], config["data.workers_per_gpu"]) == (batch_size, num_workers)
        assert (config["runner.max_iters"], config["evaluation.interval"]) == (100, 40_000)
        assert config["fp16.loss_scale"] == 512.0
    path = str(BASELINE / "lss_swin_nuscenes_high_memory.py")
    modules["train"].main(
        [path, "--scale", "tiny", "--data", str(small), "--work-dir", str(tmp_path), "--gpu-ids", "0",
         "--options", "runner.max_iters=1", "data.workers_per_gpu=0"]
    )  # fmt: skip
    assert (tmp_path / "best.pt").exists()
    assert "will use FP32" in capsys.readouterr().out


def test_the_guides_table_has_its_original_and_its_rates_are_linear(modules: Modules) -> None:
    """Original: batch 4 and 8 workers; the rate grows with the batch, 2e-4 for 4."""
    keys = ("data.samples_per_gpu", "data.workers_per_gpu", "optimizer.lr")
    found = {}
    for name in ("original", "optimized", "high_memory"):
        config = modules["config"].Config.fromfile(BASELINE / f"lss_swin_nuscenes_{name}.py")
        found[name] = tuple(config[key] for key in keys)
        assert found[name][2] == pytest.approx(2e-4 * found[name][0] / 4)
    assert found["original"][:2] == (4, 8)


def test_the_guides_script_runs(tmp_path: Path) -> None:
    """As far as its first update; what follows the script is handed on."""
    python = f"PYTHON={sys.executable}"
    script = [FOLDER / "run_baseline_optimized.sh", "--scale", "tiny", "--work-dir", tmp_path, "--dry-run"]
    done = finished(["env", python, *script])
    assert done.returncode == 0, done.stderr[-2000:]
    assert "dry run: bev, guide, tiny scale" in done.stdout and "here 1 of 6 pictures" in done.stdout


@pytest.mark.nightly
@pytest.mark.parametrize("variant", ["as_found", "cured"])
def test_resuming_is_the_run_that_was_not_stopped(
    modules: Modules, few: Path, tmp_path: Path, variant: str
) -> None:
    """Stopped within an epoch of four batches; the rest of its order comes next, then another."""
    through = train(modules, few, tmp_path / "through", variant, "runner.max_iters=5")
    stopped = tmp_path / "stopped"
    train(modules, few, stopped, variant, "runner.max_iters=2")
    more = ("--resume", str(stopped / "last.pt"))
    rest = train(modules, few, stopped, variant, "runner.max_iters=5", more=more)
    assert losses(rest) == losses(through)[2:]


@pytest.mark.nightly
def test_gradients_that_are_not_finite_end_the_run_and_keep_the_checkpoint(
    modules: Modules, small: Path, tmp_path: Path
) -> None:
    for variant, says in (
        ("as_found", "gradient of backbone"),
        ("cured", "not finite in the last 2 iterations"),
    ):
        out = tmp_path / variant
        train(modules, small, out, variant, "runner.max_iters=1")
        kept = (out / "last.pt").read_bytes()
        with pytest.raises(SystemExit, match=says):
            train(modules, small, out, variant, "runner.max_iters=3", "optimizer.lr=1e30")
        assert (out / "last.pt").read_bytes() == kept


def spoil(own: Path, kind: str) -> str:
    """Spoil a training sample; return what the message must say."""
    image = sorted((own / "img_dir" / "train").iterdir())[1]
    annotation, calib = own / "ann_bev_dir" / "train" / image.name, own / "calib.json"
    matrices = json.loads(calib.read_text())
    if kind == "missing":
        annotation.unlink()
        return f"{annotation} is missing"
    if kind == "truncated":
        image.write_bytes(image.read_bytes()[:-500])
        return f"{image} is truncated"
    if kind == "empty":
        image.write_bytes(b"")
        return f"{image} is no picture"
    if kind == "shape":
        Image.fromarray(np.zeros((200, 196), np.uint16)).save(annotation)
        return f"{annotation} is 200 x 196: expected 196 rows of 200"
    if kind == "no intrinsics":
        calib.write_text(json.dumps({k: v for k, v in matrices.items() if k != image.stem}))
        return f"{calib} has no intrinsics for {image.stem}"
    if kind == "wrong intrinsics":
        calib.write_text(json.dumps({**matrices, image.stem: [[0, 0, 0]] * 3}))
        return f"{calib} has no 3 x 3 intrinsics with focal lengths for {image.stem}"
    calib.write_text("{")
    return f"{calib} is no JSON"


@pytest.mark.parametrize("variant", ["as_found", "cured"])
@pytest.mark.parametrize(
    "kind", ["missing", "truncated", "empty", "shape", "no intrinsics", "wrong intrinsics", "json"]
)
def test_a_spoilt_file_stops_training_before_it_begins(
    modules: Modules, own: Path, tmp_path: Path, kind: str, variant: str
) -> None:
    says = spoil(own, kind)
    with pytest.raises(SystemExit, match=re.escape(says)) as raised:
        train(modules, own, tmp_path / "out", variant)
    assert str(raised.value).startswith("error: ")
    assert not (tmp_path / "out" / "last.pt").exists()


@pytest.mark.parametrize("variant", ["as_found", "cured"])
def test_labels_with_a_bit_that_no_class_has_are_named(
    modules: Modules, own: Path, tmp_path: Path, variant: str
) -> None:
    path = sorted((own / "ann_bev_dir" / "train").iterdir())[1]
    labels = np.asarray(Image.open(path)).astype(np.uint16)
    labels[7, 9] |= 1 << 15
    Image.fromarray(labels).save(path)
    says = f"{path} has {labels[7, 9]} in row 7, column 9: labels have 14 bits for classes"
    with pytest.raises(SystemExit, match=re.escape(says)):
        train(modules, own, tmp_path / "out", variant)


def test_a_checkpoint_of_something_else_is_one_sentence(
    modules: Modules, small: Path, tmp_path: Path
) -> None:
    other = tmp_path / "other.pt"
    torch.save({"model": {}}, other)
    for _ in range(2):
        with pytest.raises(SystemExit, match=r"other\.pt is no last\.pt of this variant and scale"):
            train(modules, small, tmp_path / "out", "as_found", more=("--resume", str(other)))
        other.write_bytes(b"nothing")


def test_a_batch_that_does_not_fit_is_said(
    modules: Modules, small: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the allocator's own words
    monkeypatch.setattr(modules["model"].BevNet, "forward", lambda *_: torch.empty(1 << 60))
    with pytest.raises(SystemExit, match=r"a batch does not fit[\s\S]*data\.samples_per_gpu=N"):
        train(modules, small, tmp_path / "out", "as_found")


def test_sweep_says_both_speeds(
    modules: Modules, small: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    """X23: iterations a second fall with the batch by construction; the table has samples beside them."""
    short = partial(modules["train"].sweep, num_steps=2, num_rounds=1)
    monkeypatch.setattr(modules["train"], "sweep", short)
    train(modules, small, tmp_path / "out", "cured", more=("--sweep", "1,3"))
    head, *rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert head == ["batch", "iter/s", "samples/s", "iter/s", "samples/s"]
    assert [row[0] for row in rows] == ["1", "3"]
    for batch, iterations, samples, *_ in rows:
        assert float(samples) == pytest.approx(int(batch) * float(iterations), rel=0.05)
    assert rows[0][3:] == ["+0.0%", "+0.0%"]


@pytest.mark.nightly
def test_two_ranks_train_on_half_the_pictures_each(small: Path, tmp_path: Path) -> None:
    flags = ("--options", *SAME, "runner.max_iters=2")
    said, num_steps = on_two_ranks(FOLDER / "train.py", small, tmp_path, *flags)
    assert "4 batches an epoch" in said and num_steps == 2
    assert said.count("Iter 2 mIoU") == 1  # one rank speaks
