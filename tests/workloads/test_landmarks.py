"""The landmarks workload: its files, its variants against each other, resuming, bad input."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from tests.running import python
from tests.workloads.scripts import WITHOUT_HOTLOOP, Modules, losses, on_two_ranks, train
from tests.workloads.scripts import test_another_checkpoint_is_refused as test_another_checkpoint_is_refused
from tests.workloads.scripts import test_made_once_and_alike as test_made_once_and_alike

pytest.importorskip("torch")
pytest.importorskip("yaml")

import numpy as np
import torch

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "workloads" / "landmarks"
MODULES = ("config", "data", "model", "as_found", "cured", "train")


def batch_of(modules: Modules, folder: Path, **options: Any) -> dict[str, torch.Tensor]:
    sample: dict[str, torch.Tensor] = modules["data"].NpyBatches(folder, "train", **options)[0]
    return sample


def test_files_are_what_the_format_says(folder: Path) -> None:
    images = np.load(folder / "images" / "train" / "train_0000.npy")
    labels = folder / "labels" / "train"
    heatmaps = np.load(labels / "train_0000_heatmaps.npy")
    offsets = np.load(labels / "train_0000_offsets.npy")
    meta = json.loads((labels / "train_0000_meta.json").read_text())
    assert (images.shape, images.dtype) == ((16, 4, 64, 128), np.float32)
    assert heatmaps.shape == (16, 2, 16, 32)
    assert offsets.shape == (16, 4, 16, 32)
    assert set(np.unique(images[:, 3])) <= {0.0, 1.0}
    assert set(meta) == {"batch_size", "grid_coords", "offsets_meta", "distractors", "angles"}
    assert meta["batch_size"] == len(meta["angles"]) == 16
    for sample, row in enumerate(meta["grid_coords"]):
        for k, name in enumerate("ab"):
            x, y = row[name]
            assert heatmaps[sample, k, y, x] == 1.0
            assert (heatmaps[sample, k] == 1).sum() == 1
            np.testing.assert_array_equal(
                offsets[sample, 2 * k : 2 * k + 2, y, x], np.float32(meta["offsets_meta"][sample][name])
            )
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 20e6


def test_coordinates_come_back_from_the_files(modules: Modules, folder: Path) -> None:
    batch = batch_of(modules, folder)
    decoded = modules["model"].decode_predictions(batch)
    truth = modules["model"].to_pixels(batch["cells"], batch["cell_offsets"])
    torch.testing.assert_close(decoded, truth)


def test_full_size_model_is_as_small_as_the_guide_says(modules: Modules) -> None:
    """3.5 million parameters, 0.45 G multiply-adds (as the literature counts) for one 256 x 512 picture."""
    from torch.utils.flop_counter import FlopCounterMode

    config = modules["config"].load_config(FOLDER / "configs" / "full.yaml")
    with torch.device("meta"):
        model = modules["model"].LandmarkNet(**config["model"])
        images = torch.empty(1, 4, 256, 512)
    with FlopCounterMode(display=False) as counter:
        outputs = model(images)
    assert outputs["heatmaps"].shape == (1, 2, 64, 128)
    assert outputs["offsets"].shape == (1, 4, 64, 128)
    assert sum(p.numel() for p in model.parameters()) == pytest.approx(3.5e6, rel=0.02)
    assert counter.get_total_flops() / 2 == pytest.approx(0.45e9, rel=0.02)


def test_redrawn_targets_lose_every_positive_cell(modules: Modules, folder: Path) -> None:
    """X16: dropping the redrawing changes the loss; with identical targets it changes the time alone."""
    batch = batch_of(modules, folder)
    redraw = modules["as_found"].generate_targets
    cells, offsets = batch["cells"], batch["cell_offsets"]
    subpixel, maps = redraw(cells, offsets, (16, 32), around_cells=False)
    assert (int(subpixel.eq(1).sum()), int(batch["heatmaps"].eq(1).sum())) == (0, 32)
    identical, _ = redraw(cells, offsets, (16, 32), around_cells=True)
    torch.testing.assert_close(identical, batch["heatmaps"], rtol=0, atol=1e-6)
    assert torch.equal(identical.eq(1), batch["heatmaps"].eq(1))
    assert torch.equal(maps, batch["offsets"])


def test_mask_pool_is_the_same_weights_slowly(modules: Modules, folder: Path) -> None:
    """X15: what the regression computes cell by cell is in the files, and is one pooling of a channel."""
    batch, slow = batch_of(modules, folder), batch_of(modules, folder, mask_pool=True)
    assert torch.equal(batch["weights"], slow["weights"])
    compact = {
        name: value[None] for name, value in modules["data"].CompactBatches(folder, "train")[0].items()
    }
    expanded = modules["cured"].expand(compact)
    assert torch.equal(expanded["weights"], batch["weights"])
    assert torch.equal(expanded["images"], batch["images"])


def test_guide_is_as_found_on_identical_targets(modules: Modules, folder: Path, tmp_path: Path) -> None:
    found = train(modules, folder, tmp_path / "found", "--identical_targets", "--epochs", "1")
    guide = train(modules, folder, tmp_path / "guide", "--variant", "guide", "--epochs", "1")
    assert len(found) == 4
    np.testing.assert_allclose(losses(guide), losses(found), rtol=1e-5)
    assert {"data_wait", "h2d", "fwd", "bwd", "opt", "other", "samples_per_s"} <= set(found[0])


def test_cured_is_the_guide_within_rounding(modules: Modules, folder: Path, tmp_path: Path) -> None:
    """The parts that only carry and wait less are exact; the fused optimizer adds in another order."""
    guide = train(modules, folder, tmp_path / "guide", "--variant", "guide")
    cured = train(modules, folder, tmp_path / "cured", "--variant", "cured")
    exact = train(modules, folder, tmp_path / "exact", "--variant", "cured", "--ablate", "fused_optimizer")
    np.testing.assert_allclose(losses(cured), losses(guide), rtol=0.02)
    np.testing.assert_allclose(losses(exact), losses(guide), rtol=1e-5)


def test_resuming_is_the_run_that_was_not_stopped(modules: Modules, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "inline.yaml"
    tiny = (FOLDER / "configs" / "tiny.yaml").read_text()
    path.write_text(tiny.replace("num_workers: 1", "num_workers: 0"))
    flags = ("--variant", "guide", "--config", str(path))
    through = train(modules, folder, tmp_path / "through", *flags, "--epochs", "3")
    stopped = tmp_path / "stopped"
    train(modules, folder, stopped, *flags, "--epochs", "1")
    rest = train(modules, folder, stopped, *flags, "--epochs", "3", "--resume", str(stopped / "last.pt"))
    assert losses(rest) == losses(through)[4:]


def test_configured_workers_reach_the_loader_of_guide_alone(modules: Modules, folder: Path) -> None:
    parse = modules["train"].parse_args
    config = modules["config"].load_config(FOLDER / "configs" / "cpu.yaml")
    assert config["data"]["num_workers"] == 24
    config["data"]["root"], cpu = folder, torch.device("cpu")
    found, _ = modules["as_found"].make_loaders(parse(["--variant", "as_found"]), config, cpu)
    assert (found.num_workers, found.batch_size) == (2, 1)
    config["data"]["num_workers"] = 1  # torch warns of 24 on a small machine
    guide, _ = modules["cured"].make_loaders(parse(["--variant", "guide"]), config, cpu)
    assert (guide.num_workers, guide.prefetch_factor) == (1, 4)


def test_cured_reads_its_workers_from_its_own_file(modules: Modules, folder: Path) -> None:
    train = modules["train"]
    args, cpu = train.parse_args(["--variant", "cured", "--scale", "cpu"]), torch.device("cpu")
    config = modules["config"].load_config(train.default_config(args))
    assert config["data"]["num_workers"] == "auto"
    config["data"]["root"] = folder
    loader, _ = modules["cured"].make_loaders(args, config, cpu)
    assert loader.loader.sizing is not None
    config["data"].update(num_workers=1, prefetch_factor=3)
    loader, _ = modules["cured"].make_loaders(args, config, cpu)
    assert (loader.loader.num_workers, loader.loader.prefetch_factor) == (1, 3)


def test_ignored_settings_are_ignored_as_found_and_honoured_by_the_guide(modules: Modules) -> None:
    parse = modules["train"].parse_args
    config = modules["config"].load_config(FOLDER / "configs" / "full.yaml")
    cudnn = torch.backends.cudnn
    modules["as_found"].set_flags(parse(["--variant", "as_found"]), config)
    assert (cudnn.deterministic, cudnn.benchmark) == (True, False)
    modules["cured"].set_flags(parse(["--variant", "guide"]), config)
    assert (cudnn.deterministic, cudnn.benchmark, cudnn.allow_tf32) == (False, True, True)


def test_a_part_can_be_left_out(modules: Modules, capsys: pytest.CaptureFixture[str]) -> None:
    parse = modules["train"].parse_args
    assert "bf16" not in parse(["--variant", "cured", "--ablate", "bf16"]).parts
    with pytest.raises(SystemExit):
        parse(["--variant", "guide", "--ablate", "compact"])
    assert "the parts of guide are precomputed_targets" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("num_workers:", "num_worker:", "unknown key data.num_worker: did you mean data.num_workers?"),
        ("training:", "trainning:", "unknown key trainning: did you mean training?"),
        ("  ema_decay: 0.9\n", "", "training.ema_decay is missing"),
        ("num_workers: 1", "num_workers: many", "data.num_workers is 'many': expected a whole number from 0"),
        ("model:", "model: [", "while parsing"),
        ("lr: 3.0e-3", "lr: 3e-3", "training.lr is '3e-3': expected a number (YAML wants a point: 3.0e-4)"),
        ("channels: [8, 16, 24, 32]", "channels: [8, 16, many]", "model: "),
    ],
)
def test_a_configuration_with_a_mistake_is_named(
    modules: Modules, folder: Path, tmp_path: Path, old: str, new: str, says: str
) -> None:
    path = tmp_path / "own.yaml"
    path.write_text((FOLDER / "configs" / "tiny.yaml").read_text().replace(old, new))
    with pytest.raises(SystemExit, match=re.escape(says)) as raised:
        modules["train"].main(["--config", str(path), "--data", str(folder)])
    assert str(raised.value).startswith(f"error: {path}")


def spoil(own: Path, kind: str) -> str:
    """Spoil the second training file; return what the message must say."""
    labels = own / "labels" / "train"
    heatmaps = labels / "train_0001_heatmaps.npy"
    if kind == "missing":
        heatmaps.unlink()
        return f"{heatmaps} is missing"
    if kind == "truncated":
        heatmaps.write_bytes(heatmaps.read_bytes()[:-100])
        return f"{heatmaps} is truncated"
    if kind == "empty":
        heatmaps.write_bytes(b"")
        return f"{heatmaps} is truncated"
    if kind == "shape":
        np.save(heatmaps, np.load(heatmaps)[:, :, :8])
        return f"{heatmaps} has shape (16, 2, 8, 32): (16, 2, 16, 32) goes with train_0001.npy"
    if kind == "samples":
        np.save(heatmaps, np.load(heatmaps)[:15])
        return f"{heatmaps} has shape (15, 2, 16, 32)"
    if kind == "dtype":
        np.save(heatmaps, np.load(heatmaps).astype(np.float64))
        return f"{heatmaps} holds float64: expected float32"
    if kind == "picture":
        images = own / "images" / "train" / "train_0001.npy"
        np.save(images, np.load(images)[..., :100])
        return f"{images} has shape (16, 4, 64, 100)"
    meta = labels / "train_0001_meta.json"
    note = json.loads(meta.read_text())
    if kind == "outside":
        note["grid_coords"][3]["b"] = [32, 5]
    else:
        note["grid_coords"] = note["grid_coords"][:-1]
    meta.write_text(json.dumps(note))
    return f"{meta} has {'grid_coords outside of 32 x 16' if kind == 'outside' else '15 grid_coords for 16'}"


@pytest.mark.parametrize(
    "kind", ["missing", "truncated", "empty", "shape", "samples", "dtype", "picture", "outside", "note"]
)
@pytest.mark.parametrize("variant", ["as_found", "cured"])
def test_a_spoilt_file_stops_training_before_it_begins(
    modules: Modules, own: Path, tmp_path: Path, kind: str, variant: str
) -> None:
    says = spoil(own, kind)
    with pytest.raises(SystemExit, match=re.escape(says)) as raised:
        train(modules, own, tmp_path / "out", "--variant", variant)
    assert str(raised.value).startswith("error: ")


@pytest.mark.nightly
@pytest.mark.parametrize("variant", ["as_found", "cured"])
@pytest.mark.parametrize(
    ("kind", "value"), [("heatmaps", np.nan), ("images", np.inf), ("offsets", np.nan), ("weights", -np.inf)]
)
def test_an_array_that_is_not_finite_is_named_and_not_trained_on(
    modules: Modules, own: Path, tmp_path: Path, kind: str, value: float, variant: str
) -> None:
    folder = own / "images" if kind == "images" else own / "labels"
    path = folder / "train" / ("train_0001.npy" if kind == "images" else f"train_0001_{kind}.npy")
    array = np.load(path)
    array[3, ..., 5] = value
    np.save(path, array)
    if variant == "cured" and kind in ("offsets", "weights"):  # these it does not read
        assert np.isfinite(losses(train(modules, own, tmp_path / "out", "--variant", variant))).all()
        return
    says = rf"{re.escape(str(path))} has \d+ values that are not finite, {value} at \[3, .* the first: make "
    with pytest.raises(SystemExit, match=says):
        train(modules, own, tmp_path / "out", "--variant", variant)


def test_a_loss_that_is_not_finite_ends_the_run_and_keeps_the_checkpoint(
    modules: Modules, folder: Path, tmp_path: Path
) -> None:
    out, path = tmp_path / "out", tmp_path / "own.yaml"
    path.write_text((FOLDER / "configs" / "tiny.yaml").read_text().replace("lr: 3.0e-3", "lr: 1.0e+30"))
    train(modules, folder, out, "--variant", "cured", "--epochs", "1")
    kept = (out / "last.pt").read_bytes()
    with pytest.raises(SystemExit, match=r"own\.yaml: the loss of epoch 1 is nan: go on with --resume"):
        train(modules, folder, out, "--variant", "cured", "--config", str(path))
    assert (out / "last.pt").read_bytes() == kept


def test_no_data_is_one_sentence(modules: Modules, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"no files train_NNNN\.npy in"):
        modules["train"].main(["--data", str(tmp_path), "--scale", "tiny"])


def test_pictures_that_bytes_cannot_hold_are_not_rounded(modules: Modules, own: Path, tmp_path: Path) -> None:
    images = own / "images" / "train" / "train_0001.npy"
    np.save(images, np.load(images) * np.float32(0.7))
    with pytest.raises(SystemExit, match="uint8 would change it") as raised:
        train(modules, own, tmp_path / "out", "--variant", "cured")
    assert "train_0001.npy" in str(raised.value)
    assert train(modules, own, tmp_path / "out", "--variant", "cured", "--ablate", "compact", "--epochs", "1")


def test_a_batch_that_does_not_fit_is_said(
    modules: Modules, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # the allocator's own words
    monkeypatch.setattr(modules["model"].LandmarkNet, "forward", lambda *_: torch.empty(1 << 60))
    with pytest.raises(SystemExit, match="a batch does not fit"):
        train(modules, folder, tmp_path / "out")


def test_the_compact_files_are_made_once_and_again_when_the_data_changes(
    modules: Modules, own: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compact = modules["cured"].compact
    first, made = compact(own, "train")[1], (own / "train.baked").stat().st_ino
    compact(own, "val")
    assert compact(own, "train")[1].keys() == first.keys()
    assert (own / "train.baked").stat().st_ino == made
    heatmaps = own / "labels" / "train" / "train_0001_heatmaps.npy"
    np.save(heatmaps, np.load(heatmaps) / 2)
    assert torch.equal(compact(own, "train")[1]["heatmaps"], first["heatmaps"] / 2)
    for version in (2, 3):  # by another hotloop
        monkeypatch.setattr("hotloop.feed.baking.manifest.VERSION", version)
        compact(own, "train")
        assert f'"hotloop_bake": {version}' in next((own / "train.baked").glob("*.json")).read_text()


@pytest.mark.nightly
def test_two_ranks_make_the_compact_files_once_and_train_on_half_each(own: Path, tmp_path: Path) -> None:
    said, num_steps = on_two_ranks(FOLDER / "train.py", own, tmp_path, "--epochs", "1")
    assert "2 files a rank" in said and num_steps == 2
    assert said.count("Epoch 1/1") == 1  # one rank speaks


def test_cured_without_hotloop_says_what_it_needs(folder: Path, tmp_path: Path) -> None:
    given = ["--scale", "tiny", "--data", folder, "--out", tmp_path, "--epochs", "1", "--variant", "cured"]
    cured = python("train.py", FOLDER / "train.py", *given, folder=tmp_path, script=WITHOUT_HOTLOOP)
    assert cured.returncode == 1
    assert cured.stderr == "error: compact needs hotloop.feed: pip install hotloop, or --ablate compact\n"
