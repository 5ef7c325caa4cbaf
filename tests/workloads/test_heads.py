"""The heads workload: its variants are one training, its flags, precision, ranks, resuming, the viewer."""

from __future__ import annotations

import json
import shutil
import sys
from itertools import chain
from pathlib import Path
from typing import Any

import pytest
from tests.running import succeeded
from tests.workloads.scripts import TORCHRUN, Modules, finished, losses
from tests.workloads.scripts import (
    test_psnr_and_ssim_of_pictures as test_psnr_and_ssim_of_pictures,
)

pytest.importorskip("torch")
pytest.importorskip("PIL")
pytest.importorskip("scipy")

import numpy as np
import torch

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "workloads" / "heads"
MODULES = (
    "avatar", "data", "flags", "gaussians", "loaders", "losses", "network_gui", "ply", "raster", "report",
    "rig", "rotation", "tiles", "train", "trainer",
)  # fmt: skip
#: Steps that tell something in little time: no Gaussian is split in them.
SHORT = ("--iterations", "8", "--interval", "100", "--densify_from_iter", "50")
ONE = ("--cameras_per_step", "1")
#: Gaussians are split and pruned from the start.
SPLIT = ("--densify_from_iter", "2", "--densification_interval", "4")
PERCEPTUAL = ("--lambda_perceptual", "0.05", "--use_vgg_loss")
BY_REGION = ("--use_adaptive_densification", "--adaptive_densify_ratio", "1.5")
EXTRAS = (*PERCEPTUAL, *BY_REGION, "--use_temporal_consistency", "--lambda_temporal", "0.01")


@pytest.fixture(scope="module")
def folder(modules: Modules, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = modules["data"].make_data(tmp_path_factory.mktemp("heads") / "tiny", "tiny", 3)
    return made


def words(folder: Path, out: Path, variant: str, *more: str) -> list[str]:
    """A command line that needs no worker and no free port, and logs its steps."""
    common = ["--variant", variant, "--scale", "tiny", "-s", str(folder), "-m", str(out), "--port", "0"]
    quiet = ["--step_log", str(out / "steps.jsonl"), "--no-tensorboard"]
    workers = ["--dataloader_workers", "0"] if variant != "as_found" else []
    return [*common, *quiet, *workers, *more]


def train(modules: Modules, folder: Path, out: Path, variant: str, *more: str) -> list[dict[str, float]]:
    out.mkdir(exist_ok=True)
    modules["train"].main(words(folder, out, variant, *more))
    return [json.loads(line) for line in (out / "steps.jsonl").read_text().splitlines()]


# -- losses -------------------------------------------------------------------------------------------------


def test_features_of_true_pictures_are_kept_while_there_is_room(modules: Modules) -> None:
    measure = modules["losses"]
    found, wanted = torch.rand(2, 3, 3, 32, 32)
    plain = measure.Perceptual(4, torch.device("cpu"))
    numbers = [len(layer[0]) for layer in plain.features(wanted)]
    assert numbers == [4, 8, 16, 32, 32]  # after layers 1, 6, 11, 20 and 29
    one_row = sum(feature.nbytes for feature in plain.features(wanted[:1]))
    keeping = measure.Perceptual(4, torch.device("cpu"), 2 * one_row)
    for _ in range(2):
        assert float(keeping(found, wanted, [7, 8, 9])) == pytest.approx(
            float(plain(found, wanted, [7, 8, 9]))
        )
    assert set(keeping.kept) == {7, 8} and keeping.num_bytes == 2 * one_row


def test_means_over_masks_are_means_of_what_was_picked(modules: Modules) -> None:
    values, visible = torch.randn(50), torch.rand(3, 50) > 0.6
    visible[2] = False  # a camera that sees nothing
    found = [modules["losses"].mean_excess(values, visible, waits) for waits in (True, False)]
    torch.testing.assert_close(found[0], found[1])


def test_steady_parameters_cost_nothing(modules: Modules) -> None:
    unsteadiness = modules["losses"].unsteadiness
    still, ramp = torch.ones(5, 3), torch.arange(5.0)[:, None] * 2
    assert [float(unsteadiness([still], t)) for t in (1, 2)] == [0, 0]
    assert [float(unsteadiness([ramp], t)) for t in (2, 4)] == [4, 4]  # first differences alone
    assert unsteadiness([ramp], 0).tolist() == 0  # a tensor, as every part of a loss
    jerk = torch.tensor([[0.0], [1.0], [0.0]])
    assert float(unsteadiness([jerk], 1)) == 1 + 4


# -- order --------------------------------------------------------------------------------------------------


def test_cameras_of_a_step_share_a_timestep(modules: Modules) -> None:
    timesteps = [number // 3 for number in range(12)]
    steps = modules["loaders"].Steps(timesteps, 2, seed=0)
    order = list(steps)
    assert (
        sorted(chain.from_iterable(order)) == list(range(12)) and sorted(map(len, order)) == [1] * 4 + [2] * 4
    )
    assert all(len({timesteps[number] for number in step}) == 1 for step in order)
    steps.epoch = 1
    assert list(steps) != order
    steps.epoch, steps.skip = 0, 3
    assert list(steps) == order[3:] and len(steps) == len(order) - 3
    in_order = modules["loaders"].Steps(timesteps, 1)
    assert list(in_order) == [[number] for number in range(12)]


def test_ranks_share_an_epoch(modules: Modules) -> None:
    seen = []
    for rank in range(2):
        steps = modules["loaders"].Steps(list(range(7)), 1, seed=5)
        steps.rank, steps.world_size = rank, 2
        seen.append([number for (number,) in steps])
    assert len(seen[0]) == len(seen[1]) == 3 and not set(seen[0]) & set(seen[1])


# -- training -----------------------------------------------------------------------------------------------


def test_the_variants_are_the_same_training(modules: Modules, folder: Path, tmp_path: Path) -> None:
    """Effect class: rounding. What the pictures are, their order and the losses do not change."""
    found = train(modules, folder, tmp_path / "as_found", "as_found", *SHORT, *EXTRAS)
    assert len(found) == 8 and found[-1]["loss"] != found[0]["loss"]
    for variant in ("guide", "cured"):
        rows = train(modules, folder, tmp_path / variant, variant, *SHORT, *ONE, *EXTRAS)
        np.testing.assert_allclose(losses(rows), losses(found), rtol=2e-4)
        assert rows[0]["loss"] == pytest.approx(found[0]["loss"], rel=1e-6)


def test_cameras_in_one_call_are_cameras_one_by_one(modules: Modules, folder: Path, tmp_path: Path) -> None:
    two = ("--cameras_per_step", "2")
    found, cured = (
        train(modules, folder, tmp_path / name, name, *SHORT, *two) for name in ("as_found", "cured")
    )
    np.testing.assert_allclose(losses(cured), losses(found), rtol=2e-4)


def test_it_learns_and_leaves_what_viewers_read(
    modules: Modules, folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    more = ("--iterations", "60", "--interval", "30", "--opacity_reset_interval", "1000")
    rows = train(modules, folder, tmp_path / "out", "cured", *more)
    assert np.mean(losses(rows)[-5:]) < 0.8 * np.mean(losses(rows)[:5])
    said = capfd.readouterr().out
    scores = [float(line.split("PSNR ")[1].split()[0]) for line in said.splitlines() if "Evaluating" in line]
    assert len(scores) == 4 and scores[-1] > scores[1]
    left = tmp_path / "out" / "point_cloud" / "iteration_60"
    assert {path.name for path in left.iterdir()} == {"point_cloud.ply", "flame_param.npz", "rig.npz"}
    gaussians = modules["gaussians"].load_ply(left / "point_cloud.ply")
    assert len(gaussians.xyz) > 320  # some were split
    assert "fixed" not in said and "dead" not in said


@pytest.mark.parametrize("variant", ["as_found", "guide", "cured"])
def test_what_is_shown_is_the_avatar_before_its_opacities_are_forgotten(
    modules: Modules, folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str],
    variant: str,
) -> None:  # fmt: skip
    """Scores and the PLY of an iteration that resets opacities; the checkpoint goes on from the reset."""
    said, opacities = [], []
    for name, every in (("kept", "1000"), ("reset", "4")):
        more = (
            "--iterations", "4", "--interval", "4", "--densify_until_iter", "9", "--opacity_reset_interval",
            every,
        )  # fmt: skip
        train(modules, folder, tmp_path / name, variant, *more, *ONE)
        said.append([line for line in capfd.readouterr().out.splitlines() if "Evaluating" in line])
        ply = tmp_path / name / "point_cloud" / "iteration_4" / "point_cloud.ply"
        opacities.append(modules["gaussians"].load_ply(ply).opacities())
    assert len(said[0]) == 2 and said[0] == said[1]
    assert torch.equal(*opacities) and opacities[0].max() > 0.05
    state = torch.load(tmp_path / "reset" / "last.pt", weights_only=True)["avatar"]
    assert state["gaussians.opacity"].sigmoid().max() < 0.0101


def test_resuming_goes_on_as_if_never_stopped(
    modules: Modules, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped in the middle of an epoch, after Gaussians were split."""
    more = ("--iterations", "30", "--interval", "9", "--no-eval", *SPLIT)
    whole = train(modules, folder, tmp_path / "whole", "cured", *more, *ONE)

    def stop(self: Any, iteration: int, losses: object) -> None:
        if iteration == 20:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(modules["report"].Metrics, "add", stop)
        train(modules, folder, tmp_path / "part", "cured", *more, *ONE)
    last = str(tmp_path / "part" / "last.pt")
    rest = train(modules, folder, tmp_path / "part", "cured", *more, *ONE, "--resume", last)
    np.testing.assert_allclose(losses(rest), losses(whole)[18:], rtol=1e-5)


def test_the_guides_mixed_precision_hands_on_scaled_gradients(
    modules: Modules, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """X5: gradients 65,536 times too large; cured divides by the scale."""
    sizes: list[float] = []
    add = modules["gaussians"].Gaussians.add_statistics

    def seen(self: Any, gradient: torch.Tensor, radii: torch.Tensor) -> None:
        sizes.append(float(gradient.norm()))
        add(self, gradient, radii)

    monkeypatch.setattr(modules["gaussians"].Gaussians, "add_statistics", seen)
    first = {}
    for name, variant, more in (
        ("float32", "cured", ()),
        ("cured", "cured", ("--use_amp",)),
        ("guide", "guide", ("--use_amp",)),
    ):
        sizes.clear()
        one = ("--iterations", "1", "--interval", "9", "--densify_until_iter", "9", *ONE)
        train(modules, folder, tmp_path / name, variant, *one, *more)
        first[name] = sizes[0]
    assert first["guide"] == pytest.approx(65536 * first["float32"], rel=0.3)
    assert first["cured"] == pytest.approx(first["float32"], rel=0.3)


def test_eyes_mouth_and_nose_are_refined_first(modules: Modules, folder: Path, tmp_path: Path) -> None:
    split = (
        "--densify_from_iter", "2", "--densification_interval", "15", "--densify_grad_threshold", "0.0012",
    )  # fmt: skip
    more = ("--iterations", "16", "--interval", "100", "--no-eval", *split)
    counts = {}
    for name, extra in (("alike", ()), ("by_region", BY_REGION)):
        train(modules, folder, tmp_path / name, "cured", *more, *extra)
        state = torch.load(tmp_path / name / "last.pt", weights_only=True)["avatar"]
        counts[name] = torch.bincount(state["gaussians.binding"], minlength=320)
    rig = modules["rig"].Rig.load(folder / "rig.npz")
    special = torch.cat(list(rig.regions.values())).unique()
    assert counts["by_region"][special].sum() > counts["alike"][special].sum()


def test_evaluation_makes_its_loaders_once(
    modules: Modules, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[str] = []
    make = modules["report"].make_feed
    monkeypatch.setattr(
        modules["report"], "make_feed", lambda args, folder, splits, *more, **options: (
            made.append(splits[0]), make(args, folder, splits, *more, **options)
        )[1],
    )  # fmt: skip
    for variant, count in (("as_found", 4), ("cured", 2)):
        made.clear()
        train(modules, folder, tmp_path / variant, variant, "--iterations", "4", "--interval", "2")
        assert len(made) == count and set(made) == {"val", "test"}


def test_tensorboard_gets_every_step(
    modules: Modules, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As found at once, cured every 50 steps and at the end: the same scalars."""
    kept: dict[str, list[tuple[str, int]]] = {}

    class Writer:
        def __init__(self, folder: str) -> None:
            self.seen = kept.setdefault(Path(folder).name, [])

        def add_scalar(self, name: str, value: float, step: int) -> None:
            self.seen.append((name, step))

        def add_images(self, name: str, picture: torch.Tensor, step: int) -> None:
            self.seen.append((name.partition("_")[0] + " pictures", step))

        def close(self) -> None:
            pass

    monkeypatch.setattr(modules["train"], "open_writer", lambda args: Writer(args.model_path))
    for variant in ("as_found", "cured"):
        train(modules, folder, tmp_path / variant, variant, *SHORT, *ONE, "--num_vis_img", "2")
    scalars = [[one for one in kept[name] if one[0].startswith("train")] for name in ("as_found", "cured")]
    assert len(scalars[0]) == 5 * 8 and scalars[0] == scalars[1]
    pictures = [[one for one in kept[name] if one[0] == "test pictures"] for name in ("as_found", "cured")]
    assert [len(one) for one in pictures] == [3 * 4, 3 * 2]  # all four as found: it has 10 in its code


def test_pinning_a_camera_does_nothing(modules: Modules, folder: Path) -> None:
    """X1: torch hands a module through as it is."""
    from torch.utils.data._utils.pin_memory import pin_memory

    camera = modules["data"].Heads(folder, "train", style="as_found")[0]
    assert pin_memory(camera) is camera
    assert {type(value) for value in modules["data"].Heads(folder, "train")[0].values()} <= {
        torch.Tensor,
        int,
    }


# -- processes ----------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_two_ranks_train_one_avatar(folder: Path, tmp_path: Path) -> None:
    """Gradients and what decides who is split are those of both."""
    more = words(folder, tmp_path, "cured", "--epochs", "1", *SPLIT, *ONE)
    done = succeeded(finished([*TORCHRUN, FOLDER / "train.py", *more]))
    rows = [json.loads(line) for line in (tmp_path / "steps.jsonl").read_text().splitlines()]
    assert len(rows) == 10  # of 20 pictures
    assert done.stdout.count("Evaluating test") == 1
    state = torch.load(tmp_path / "last.pt", weights_only=True)
    assert len(state["avatar"]["gaussians.xyz"]) > 320


@pytest.mark.nightly
def test_a_viewer_looks_on(folder: Path, tmp_path: Path) -> None:
    more = words(folder, tmp_path, "as_found", *SHORT, "--viewer")
    done = succeeded(finished([sys.executable, FOLDER / "train.py", *more]))
    shown = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert shown and shown[0]["frames"] >= 4


# -- the command line ---------------------------------------------------------------------------------------

SUBJECT = (
    "data/306/UNION10_306_EMO1234EXP234589_v16_DS2-0.5x_lmkSTAR_teethV3_SMOOTH_offsetS_whiteBg_maskBelowLine"
)
GUIDE = (
    "-s", SUBJECT, "-m", "output/optimized_306", "--eval", "--bind_to_mesh", "--white_background",
    "--port", "60000", *PERCEPTUAL, "--use_adaptive_densification", "--use_temporal_consistency",
)  # fmt: skip


@pytest.mark.parametrize(
    ("more", "wanted"),
    [
        ("--adaptive_densify_ratio 1.5 --lambda_temporal 0.01 --dataloader_workers 12 --prefetch_factor 3 "
         "--interval 120000", (12, 3, 120000)),
        ("--dataloader_workers 6 --prefetch_factor 2 --interval 120000", (6, 2, 120000)),
        ("--adaptive_densify_ratio 1.5 --lambda_temporal 0.01 --dataloader_workers 48 --prefetch_factor 4 "
         "--interval 150000", (48, 4, 150000)),
    ],
)  # fmt: skip
def test_the_guides_commands(modules: Modules, more: str, wanted: tuple[int, int, int]) -> None:
    parse = modules["flags"].parse_args
    args = parse([*GUIDE, *more.split(), "--variant", "guide", "--scale", "full"])
    assert (args.dataloader_workers, args.prefetch_factor, args.interval) == wanted
    assert (args.source_path, args.port, args.iterations) == (SUBJECT, 60000, 600_000)
    assert (args.lambda_perceptual, args.lambda_temporal, args.adaptive_densify_ratio) == (0.05, 0.01, 1.5)
    assert args.eval and args.bind_to_mesh and args.white_background and not args.dead
    dead = parse([*GUIDE, *more.split()]).dead
    assert dead == dict.fromkeys(("--dataloader_workers", "--prefetch_factor"), "in as_found")


def test_flags_that_nothing_reads_are_told(modules: Modules) -> None:
    parse = modules["flags"].parse_args
    assert parse(["--use_amp"]).dead == {"--use_amp": "in as_found"}
    assert parse(["--use_amp", "--variant", "cured"]).dead == {}
    assert parse(["--lambda_perceptual", "0.1"]).dead == {"--lambda_perceptual": "without --use_vgg_loss"}
    assert parse(["--as-upstream"]).dataloader_workers == 8 and parse([]).dataloader_workers == 0
    assert (parse(["--variant", "guide"]).interval, parse([]).interval) == (800, 400)
    assert (parse(["--variant", "guide"]).num_vis_img, parse([]).num_vis_img) == (5, 10)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--dataloader_worker 4", "unknown argument --dataloader_worker: did you mean --dataloader_workers?"),
        ("--lambda_perceptal=0.1", "did you mean --lambda_perceptual?"),
        ("--interval 0", "argument --interval: 0 is below 1"),
        ("--interval many", "argument --interval: invalid int value: 'many'"),
        ("--lambda_dssim -1", "-1 is below 0"),
        ("--ablate byte_cache", "the parts of as_found are none"),
        ("--variant cured --ablate bytecache", "the parts of cured are workers, "),
        ("--variant cured --as-upstream", "--as-upstream is as_found with 8 workers"),
    ],
)
def test_mistakes_on_the_command_line_are_named(
    modules: Modules, words: str, said: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as caught:
        modules["flags"].parse_args(words.split())
    assert caught.value.code == 2 and said in capfd.readouterr().err


# -- bad input ----------------------------------------------------------------------------------------------


def test_spoilt_data_is_named(modules: Modules, folder: Path, tmp_path: Path) -> None:
    own = Path(shutil.copytree(folder, tmp_path / "own"))

    def said(*more: str) -> str:
        with pytest.raises(SystemExit) as caught:
            train(modules, own, tmp_path / "out", "cured", *SHORT, *more)
        return str(caught.value)

    picture = sorted((own / "images").iterdir())[0]
    whole = picture.read_bytes()
    picture.write_bytes(whole[:200])
    assert f"error: {picture} cannot be read as a picture" in said("--epochs", "1")
    picture.unlink()
    assert f"error: {picture} is missing" in said()
    picture.write_bytes(whole)
    (own / "rig.npz").unlink()
    assert "rig.npz is missing" in said()
    assert "transforms_train.json is missing" in said("-s", str(tmp_path))


def test_a_wrong_checkpoint_is_named(modules: Modules, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "broken.pt"
    path.write_bytes(b"\x80" + bytes(63))
    with pytest.raises(SystemExit, match=r"broken\.pt is no checkpoint"):
        train(modules, folder, tmp_path, "cured", "--resume", str(path))
    for value in ([1], {"avatar": {}}):
        torch.save(value, path)
        with pytest.raises(SystemExit, match=r"broken\.pt has no \w+: --resume takes the last\.pt"):
            train(modules, folder, tmp_path, "cured", "--resume", str(path))
    with pytest.raises(SystemExit, match=r"none\.pt is missing"):
        train(modules, folder, tmp_path, "cured", "--resume", str(tmp_path / "none.pt"))


def test_a_training_that_fell_apart_stops(modules: Modules, folder: Path, tmp_path: Path) -> None:
    with pytest.raises(SystemExit, match=r"the loss is nan at iteration \d+: .*position_lr_init"):
        train(modules, folder, tmp_path, "cured", *SHORT, "--feature_lr", "1e38")


def test_out_of_memory_ends_with_what_to_lower(
    modules: Modules, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def step(self: Any, batch: Any) -> None:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    monkeypatch.setattr(modules["trainer"].Trainer, "step", step)
    with pytest.raises(SystemExit) as caught:
        train(modules, folder, tmp_path, "cured", *SHORT)
    said = str(caught.value)
    assert said.startswith("error: out of memory: CUDA out of memory. Tried to allocate 2.00 GiB.\nhint: ")
    assert "--prefetch_factor 2" in said and "--densify_grad_threshold (0.0003)" in said


def test_without_the_library_the_cure_says_what_to_install(
    modules: Modules, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hotloop.feed", None)
    with pytest.raises(SystemExit, match=r"pip install hotloop, or --ablate byte_cache"):
        train(modules, folder, tmp_path, "cured", *SHORT)
    assert len(train(modules, folder, tmp_path, "cured", *SHORT, "--ablate", "byte_cache")) == 8
