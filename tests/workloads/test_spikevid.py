"""The spikevid workload: its files, caches and variants, the guide's keys, resuming, a student, bad input."""

from __future__ import annotations

import json
import re
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest
from tests.workloads import scripts
from tests.workloads.scripts import Modules, losses
from tests.workloads.scripts import test_made_once_and_alike as test_made_once_and_alike
from tests.workloads.scripts import (
    test_psnr_and_ssim_of_pictures as test_psnr_and_ssim_of_pictures,
)

pytest.importorskip("torch")
pytest.importorskip("PIL")
pytest.importorskip("yaml")

import numpy as np
import torch
from torch.utils._pytree import tree_leaves

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "workloads" / "spikevid"
MODULES = ("config", "data", "model", "perceptual", "loaders", "steps", "as_found", "cured", "train")
PLANS = FOLDER / "configs" / "deblur"
#: What makes the variants the same training: one model, one order.
SAME = (
    "MODEL.VRT_DEPTHS=[8,8,8,8,4,4,4,8]", "MODEL.WINDOW_SIZE=8", "DATA.GROUP_SEQUENCES=0",
    "DATALOADER.TOTAL_WORKERS=0",
)  # fmt: skip
#: Four clips in an epoch, not eight.
LONG = "DATA.CLIP_LEN=7"


@pytest.fixture(autouse=True)
def own_caches(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """No cache of the same frames around the tests."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))  # where caches of the same samples meet


def train(
    modules: Modules,
    folder: Path,
    out: Path,
    variant: str,
    *options: str,
    more: tuple[str, ...] = ("--epochs", "1"),
) -> list[dict[str, float]]:
    words = [word for option in (*SAME, *options) for word in ("--options", option)]
    return scripts.train(modules, folder, out, "--variant", variant, *more, *words)


# -- data ---------------------------------------------------------------------------------------------------


def test_files_are_what_the_format_says(modules: Modules, folder: Path) -> None:
    names = sorted(path.relative_to(folder / "train").as_posix() for path in folder.glob("train/*/*/*"))
    assert len(names) == 2 * 8 * 3 and names[0] == "seq_000/blur/00000000.png"
    spikes = np.fromfile(folder / "train" / "seq_000" / "spike" / "00000003.dat", np.uint8)
    assert spikes.size == 10 * 66 * 80 and set(spikes.tolist()) == {0, 1}
    frames = modules["data"].Frames(folder, "train", (10, 66, 80))
    blur, sharp = (frames.picture(0, 3, kind).astype(float) for kind in ("blur", "sharp"))
    assert blur.shape == (128, 160, 3)
    edges = [abs(np.diff(picture, axis=1)).mean() for picture in (blur, sharp)]
    assert edges[0] < edges[1]  # blurred along the motion
    # A pixel fires in proportion to the light of that time, which the blurred picture shows.
    light = blur[np.ix_(np.arange(66) * 128 // 66, np.arange(80) * 160 // 80)].mean(axis=2) / 255
    rate = frames.spikes(0, 3).mean(axis=0)
    assert rate.mean() == pytest.approx(light.mean() / modules["data"].THRESHOLD, rel=0.05)
    assert np.corrcoef(rate.ravel(), light.ravel())[0, 1] > 0.7
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 20e6


def test_a_bit_per_spike_and_a_byte_per_spike_are_the_same(
    modules: Modules, folder: Path, tmp_path: Path
) -> None:
    """Bit b of byte i is pixel 8 i + b, rows from the bottom up."""
    data = modules["data"]
    spikes = data.Frames(folder, "train", (10, 66, 80)).spikes(0, 0)
    packed = tmp_path / "packed.dat"
    packed.write_bytes(data.pack_spikes(spikes))
    assert packed.stat().st_size == 10 * 66 * 80 // 8
    byte = packed.read_bytes()[3]  # the bottom row, pixels 24 to 31
    assert [byte >> bit & 1 for bit in range(8)] == spikes[0, -1, 24:32].tolist()
    np.testing.assert_array_equal(data.read_spikes(packed, (10, 66, 80)), spikes)


def test_ten_steps_fill_ten_of_32_bins(modules: Modules, folder: Path) -> None:
    bins = modules["data"].to_bins(modules["data"].Frames(folder, "train", (10, 66, 80)).spikes(0, 0))
    assert bins.shape == (32, 66, 80)
    assert (bins.reshape(32, -1).sum(axis=1) > 0).sum() == 10


def test_a_frame_takes_what_the_guide_says(modules: Modules, tmp_path: Path) -> None:
    """133.59 MiB as floats, 2,222 of them, from one frame on disk; a seventeenth of it as bytes."""
    made = modules["data"].make_data("links", root=tmp_path)
    frames = modules["data"].Frames(made, "train", (10, 396, 640))
    clips = modules["loaders"].FloatClips(frames, 1, 32)
    live = sum(value.nbytes for value in clips.load_frame(0, 0).values())
    assert (len(clips), round(live / 2**20, 2)) == (2222, 133.59)
    stored = sum(value.nbytes for value in modules["loaders"].FrameBytes(frames)[2221].values())
    assert live / stored == pytest.approx(17.4, abs=0.1)
    assert len({path.stat().st_ino for path in made.glob("train/*/*/*")}) == 3


@pytest.mark.parametrize("draw", [0, 5, 12345, 2**39 + 7])
def test_bytes_of_a_crop_expand_to_the_crop_of_floats(modules: Modules, folder: Path, draw: int) -> None:
    frames = modules["data"].Frames(folder, "train", (10, 66, 80))
    loaders = modules["loaders"]
    wanted = loaders.FloatClips(frames, 3, 32)[7, draw]
    cropped = loaders.ByteClips(frames, 3, 32, loaders.FrameBytes(frames))[7, draw]
    sizes = [sum(value.nbytes for value in sample.values()) for sample in (wanted, cropped)]
    assert sizes[1] < sizes[0] / 15
    batch = torch.utils.data.default_collate([cropped, cropped])
    found = loaders.Expand(frames, 32, torch.device("cpu"))(batch)
    for name, value in wanted.items():
        torch.testing.assert_close(found[name][1], value, rtol=0, atol=2e-6)


# -- caches and order ---------------------------------------------------------------------------------------


def test_precomputed_voxels_are_the_live_ones(modules: Modules, own: Path) -> None:
    data, loaders = modules["data"], modules["loaders"]
    frames = data.Frames(own, "train", (10, 66, 80))
    for sequence, names in enumerate(frames.places):
        for number in range(len(names)):
            path = frames.path(sequence, number, "spike_vox")
            path.parent.mkdir(exist_ok=True)
            np.save(path, data.to_bins(frames.spikes(sequence, number)))
    live, stored = (loaders.FloatClips(frames, 2, 32, precomputed=kind)[3, 99] for kind in (False, True))
    assert all(torch.equal(live[name], stored[name]) for name in live)
    np.save(path, np.full((32, 66, 80), np.nan, np.float32))
    with pytest.raises(data.DataError, match=rf"{path.name} holds values that are no finite numbers"):
        frames.stored_bins(sequence, number)


def test_the_lru_keeps_its_limit_and_the_dictionary_its_cap(
    modules: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaders = modules["loaders"]
    frame = {"blur": np.zeros(2**18, np.float32)}  # 1 MiB
    cache = loaders.LRUCache(3 / 1024)
    for key in (0, 1, 2, 0, 3):
        if cache.get(key) is None:
            cache.put(key, frame)
    assert (sorted(cache.cache), cache.current_memory) == ([0, 2, 3], 3 * 2**20)
    assert (cache.hits, cache.misses) == (1, 4)
    monkeypatch.setattr(loaders, "DICT_CAP_BYTES", 2 * 2**20)
    unlimited = loaders.LRUCache(None)
    for key in range(4):
        unlimited.put(key, frame)
    assert sorted(unlimited.cache) == [0, 1]


def test_the_guides_hit_rate_needs_grouping(modules: Modules) -> None:
    """X11: 374 of 2,222 frames in an LRU hit 14 % of shuffled clips, 79 % of grouped ones."""
    sampler = modules["loaders"].ClipSampler
    rates = []
    for group in (0, 2):
        cache: dict[int, None] = {}
        hits = reads = 0
        order = sampler([97] * 22, 0, group)
        for epoch in range(2):
            order.epoch = epoch
            for number, _ in order:
                for frame in range(number // 97 * 101 + number % 97, number // 97 * 101 + number % 97 + 5):
                    hits, reads = hits + (frame in cache), reads + 1
                    cache.pop(frame, None)
                    cache[frame] = None
                    if len(cache) > 374:
                        del cache[next(iter(cache))]
        rates.append(hits / reads)
    assert rates[0] == pytest.approx(0.14, abs=0.02)
    assert rates[1] == pytest.approx(0.79, abs=0.03)


@pytest.mark.parametrize("group", [0, 1, 2])
def test_every_order_has_every_clip_once(modules: Modules, group: int) -> None:
    sampler = modules["loaders"].ClipSampler([3, 5, 4], 0, group)
    first = list(sampler)
    sampler.epoch = 1
    second = list(sampler)
    assert sorted(number for number, _ in first) == sorted(number for number, _ in second) == list(range(12))
    assert first != second


# -- model and steps ----------------------------------------------------------------------------------------


def small_model(modules: Modules, **changed: object) -> torch.nn.Module:
    chunks = {
        "heads": 2, "adaptive_chunk": True, "max_batch_tokens": 4096, "chunk_size": 64,
        "chunk_shape": "square",
    }  # fmt: skip
    settings = {
        "dim": 8, "heads": 2, "depths": [1] * 8, "window": 8, "fuse": chunks, "spike_tsa": chunks, **changed,
    }  # fmt: skip
    torch.manual_seed(0)
    model: torch.nn.Module = modules["model"].SpikeVRT(**settings)
    torch.nn.init.normal_(model.conv_last.weight)  # from zero nothing before it would matter
    return model


@pytest.mark.nightly
def test_chunks_and_recomputation_change_nothing(modules: Modules) -> None:
    blur, voxel = torch.rand(1, 3, 3, 32, 48), torch.rand(1, 3, 32, 32, 48)
    chunks = {"heads": 2, "adaptive_chunk": False, "max_batch_tokens": 1}
    ways = [
        {},
        {"checkpoint_attn": True, "checkpoint_ffn": True},
        {"fuse": {**chunks, "chunk_size": 7, "chunk_shape": "square"}},
        {"spike_tsa": {**chunks, "chunk_size": 5, "chunk_shape": "rows"}},
    ]
    found = []
    for way in ways:
        model = small_model(modules, **way)
        out = model(blur, voxel)
        out.sum().backward()
        found.append((out.detach(), model.conv_first.weight.grad))
    for out, grad in found[1:]:
        torch.testing.assert_close(out, found[0][0], rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(grad, found[0][1], rtol=1e-3, atol=1e-2)


def test_depths_of_eight_make_one_group_of_stage_8(modules: Modules) -> None:
    """X14: the guide's list has 8 entries, the original's 13."""
    for depths, groups in (([8] * 4 + [4] * 4, 1), ([8] * 7 + [4] * 6, 6)):
        with torch.device("meta"):
            model = small_model(modules, depths=depths)
        assert [len(stage.blocks) for stage in model.stages] == depths[:7]
        assert len(model.stage8) == groups


def test_stage_times_are_those_of_the_device(modules: Modules, monkeypatch: pytest.MonkeyPatch) -> None:
    """A simulated device on which the second stage takes long while the host has long gone on."""
    device = {"ms": 0.0}

    class Event:
        def __init__(self, enable_timing: bool) -> None:
            assert enable_timing

        def record(self) -> None:
            self.at = device["ms"]

        def elapsed_time(self, other: Event) -> float:
            return other.at - self.at

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda: None)
    for kind, slowest in (("DeviceTimer", "Stage 8 900.00ms (90.0%)"), ("StageTimer", None)):
        timer = getattr(modules["steps"], kind)()
        for name, ms in (("Stage 1", 100.0), ("Stage 8", 900.0)):
            with timer(name):
                device["ms"] += ms
        timer.step()
        means = timer.table()
        line = modules["steps"].timing_line(7, means)
        assert (slowest in line) if slowest else means["Stage 8"] < 90


def test_the_memory_line_is_the_guides_and_warns_when_it_is_nearly_full(
    modules: Modules, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = modules["steps"]
    share = r"\(\d+\.\d%\)"
    line = rf"\[Step 100\] Memory - Process: [\d.]+MB {share}, System: [\d.]+/[\d.]+GB {share}"
    assert re.fullmatch(line, steps.memory_line("Step 100").splitlines()[0])
    monkeypatch.setattr(steps, "CRITICAL_SHARE", 1.1)
    assert len(steps.memory_line("Step 100").splitlines()) == 1
    monkeypatch.setattr(steps, "CRITICAL_SHARE", 0.0)
    said = steps.memory_line("Step 100").splitlines()
    assert re.fullmatch(rf"⚠️  WARNING: System memory usage is critically high {share}!", said[1])
    assert said[2].strip() == "Consider reducing CACHE_SIZE_GB or TOTAL_WORKERS in config."


# -- training -----------------------------------------------------------------------------------------------


@pytest.mark.nightly
def test_the_variants_are_the_same_training(
    modules: Modules, folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    found = train(modules, folder, tmp_path / "as_found", "as_found")
    said = capfd.readouterr().out
    assert len(found) == 8 and found[-1]["loss"] != found[0]["loss"]
    assert "dead in as_found: TRAIN.AMP_ENABLED" in said and "dead in as_found: MODEL.VRT_DEPTHS" in said
    assert "[After dataset creation] Memory - Process:" in said
    for variant in ("guide", "cured"):
        rows = train(modules, folder, tmp_path / variant, variant)
        np.testing.assert_allclose(losses(rows), losses(found), rtol=2e-2)
        assert rows[0]["loss"] == pytest.approx(found[0]["loss"], rel=1e-5)
        said = capfd.readouterr().out
        assert f"dead in {variant}: MODEL.VRT_DEPTHS" not in said
    assert "Hit Rate 60.00% (24 hits / 16 misses)" in said  # each of 16 frames was read from its file once


def test_what_a_run_prints_and_writes_as_it_goes(
    modules: Modules, folder: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(modules["train"], "MEMORY_EVERY", 4)
    every = ("LOG.TIMING_CONSOLE_INTERVAL=3", "LOG.TIMING_FILE_INTERVAL=4")
    pytest.importorskip("tensorboard")
    more = ("--epochs", "1", "--tensorboard")
    train(modules, folder, tmp_path, "as_found", *every, more=more)
    said = capfd.readouterr().out
    (log,) = (tmp_path / "logs").glob("train_*.log")
    assert [line for line in said.splitlines() if line] == log.read_text().splitlines()
    assert "[FloatClips] Cache Stats:" in log.read_text()  # what `hotloop analyze` reads
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(tmp_path / "tensorboard")).Reload()
    assert {"loss", "psnr", "ssim", "ms/Stage 8"} <= set(events.Tags()["scalars"])
    steps = {word: re.findall(rf"\[Step (\d)\] {word}", said) for word in ("Memory", "Avg data", "Forward")}
    assert steps == {"Memory": ["4", "8"], "Avg data": ["3", "6"], "Forward": ["3", "6"]}
    rows = [json.loads(line) for line in (tmp_path / "timing.jsonl").read_text().splitlines()]
    assert [row["step"] for row in rows] == [4, 8]
    assert {"Stage 1", "Stage 1 fusion", "Stage 8", "Flow", "Spike TSA 4"} < set(rows[0])


@pytest.mark.nightly
def test_one_cache_for_all_workers_is_seen_from_the_main_process(
    modules: Modules, folder: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    more = "DATALOADER.TOTAL_WORKERS=2"
    train(modules, folder, tmp_path / "cured", "cured", more, more=("--epochs", "2"))
    rates = re.findall(r"Hit Rate (\S+)%", capfd.readouterr().out)
    first, both = (float(rate) for rate in rates)  # 16 frames, 40 reads an epoch; two may read one at once
    assert first >= 20
    assert both == pytest.approx((first + 100) / 2, abs=0.1)  # everything is there from then on
    train(modules, folder, tmp_path / "found", "as_found", more)
    assert "0 hits / 0 misses" in capfd.readouterr().out  # the workers' own caches are not seen


@pytest.mark.nightly
def test_resuming_goes_on_as_if_never_stopped(modules: Modules, folder: Path, tmp_path: Path) -> None:
    whole = train(modules, folder, tmp_path / "whole", "cured", LONG, more=("--epochs", "2"))
    train(modules, folder, tmp_path / "part", "cured", LONG)
    resume = ("--epochs", "2", "--resume", str(tmp_path / "part" / "last.pt"))
    rest = train(modules, folder, tmp_path / "part", "cured", LONG, more=resume)
    np.testing.assert_allclose(losses(rest), losses(whole)[4:], rtol=1e-4)


@pytest.mark.nightly
def test_a_student_learns_from_a_checkpoint(modules: Modules, folder: Path, tmp_path: Path) -> None:
    deep = ("MODEL.DEPTH_DIVISOR=4", LONG)
    train(modules, folder, tmp_path / "teacher", "cured", *deep)
    teacher = str(tmp_path / "teacher" / "last.pt")
    rows = train(modules, folder, tmp_path, "cured", *deep, more=("--epochs", "1", "--student", teacher))
    state = torch.load(tmp_path / "last.pt", weights_only=True)
    assert state["model_settings"]["depths"] == [1] * 8
    plain = train(modules, folder, tmp_path, "cured", "MODEL.DEPTH_DIVISOR=8", LONG)
    assert rows[0]["loss"] > plain[0]["loss"]  # the teacher's part is in it


@pytest.mark.nightly
def test_crops_grow_with_the_epochs_and_batches_accumulate(
    modules: Modules, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    crops: list[int] = []
    make = modules["train"].make_loaders

    def seen(*arguments: object) -> object:
        crops.append(int(str(arguments[4])))
        return make(*arguments)

    monkeypatch.setattr(modules["train"], "make_loaders", seen)
    steps: list[int] = []
    step = torch.optim.AdamW.step
    monkeypatch.setattr(torch.optim.AdamW, "step", lambda *a, **k: (steps.append(1), step(*a, **k))[1])
    options = ("DATA.CROP_SCHEDULE=[[0,16],[1,32]]", "TRAIN.GRADIENT_ACCUMULATION_STEPS=4", "DATA.CLIP_LEN=6")
    rows = train(modules, folder, tmp_path, "guide", *options, more=("--epochs", "2"))
    assert (crops, len(rows), len(steps)) == ([16, 32], 12, 4)


def test_the_guides_first_two_rows_are_the_baseline_without_and_with_amp(
    modules: Modules, tmp_path: Path
) -> None:
    """1789 ms and 1100-1200 ms: one file, one model, and the precision alone between them."""
    plan, off = PLANS / "vrt_spike_baseline.yaml", "TRAIN.AMP_ENABLED=false"
    found = []
    for options in ([], [off]):
        flags = ["--variant", "guide", "--config", str(plan), "--scale", "full", "--out", str(tmp_path)]
        args = modules["train"].parse_args([*flags, *(f"--options={option}" for option in options)])
        config = modules["config"].Config(modules["train"].plans(args), args.options)
        settings = modules["train"].model_settings(args, config)
        found.append((settings, config.switch("TRAIN.AMP_ENABLED", True)))
    assert found[0][0] == found[1][0]
    assert found[0][0]["depths"] == modules["as_found"].DEPTHS and found[0][0]["window"] == 8
    assert [amp for _, amp in found] == [True, False]


@pytest.mark.parametrize("plan", ["baseline", "opt", "fast", "lowmem", "cured"])
def test_every_key_of_a_plan_is_read_or_reported(
    modules: Modules, folder: Path, plan: str, tmp_path: Path
) -> None:
    """The guide's keys are live in its variant, but for the precision level, which torch does not know."""
    variant = "cured" if plan == "cured" else "guide"
    args = modules["train"].parse_args(["--variant", variant, "--scale", "tiny", "--out", str(tmp_path)])
    tiny = FOLDER / "configs" / "scales" / "tiny.yaml"
    config = modules["config"].Config([PLANS / f"vrt_spike_{plan}.yaml", tiny])
    modules["train"].Trainer(args, config, torch.device("cpu"))
    modules["cured"].crop_schedule(config)
    modules["loaders"].make_loaders(args, config, folder, torch.device("cpu"), 32, {})
    in_train = {"TRAIN.EPOCHS", "DATA.ROOT"}
    as_found = {"DATA.CROP_SIZE"}
    dead = set(config.dead_keys()) - in_train
    assert dead == config.written & ({"TRAIN.AMP_OPT_LEVEL"} | as_found)


# -- the perceptual loss ------------------------------------------------------------------------------------


def test_target_features_are_kept_for_crops_that_come_again(modules: Modules) -> None:
    plain, kept = (modules["perceptual"].PerceptualLoss(4, keep) for keep in (False, True))
    clip = torch.tensor([[3, 0, 16], [4, 8, 8]])
    wanted = torch.rand(2, 2, 3, 16, 16)
    for _ in range(2):
        found = torch.rand(2, 2, 3, 16, 16, requires_grad=True)
        gradients = [torch.autograd.grad(one(found, wanted, clip), found)[0] for one in (plain, kept)]
        torch.testing.assert_close(*gradients)
    assert (len(kept.kept), kept.hits) == (2, 2)
    kept(found, wanted, clip + 1)
    assert (len(kept.kept), kept.hits) == (4, 2)


@pytest.mark.nightly
def test_the_perceptual_loss_is_the_same_in_all_variants(
    modules: Modules, folder: Path, tmp_path: Path
) -> None:
    options = (
        "TRAIN.PERCEPTUAL_WEIGHT=0.1", "TRAIN.PERCEPTUAL_CHANNELS=4", "DATA.CROPS_PER_CLIP=1", LONG,
    )  # fmt: skip
    more = ("--epochs", "2")
    found = train(modules, folder, tmp_path / "as_found", "as_found", *options, more=more)
    rows = train(modules, folder, tmp_path / "cured", "cured", *options, more=more)
    np.testing.assert_allclose(losses(rows), losses(found), rtol=2e-2)
    without = train(modules, folder, tmp_path / "without", "cured", *options[2:])
    assert rows[0]["loss"] > without[0]["loss"] * 1.001


def test_eight_bits_of_state_are_trained_with_where_the_library_is(
    modules: Modules, folder: Path, tmp_path: Path
) -> None:
    pytest.importorskip("bitsandbytes")
    # Only tensors of 4,096 numbers and more are kept in 8 bits.
    options = ("OPTIM.TYPE=adamw8bit", "MODEL.EMBED_DIM=32", LONG)
    rows = train(modules, folder, tmp_path, "cured", *options)
    state = torch.load(tmp_path / "last.pt", weights_only=True)["optimizer"]["state"]
    kinds = {leaf.dtype for leaf in tree_leaves(state) if isinstance(leaf, torch.Tensor)}
    assert torch.uint8 in kinds
    plain = train(modules, folder, tmp_path / "plain", "cured", *options[1:])
    np.testing.assert_allclose(losses(rows), losses(plain), rtol=2e-2)


def test_without_the_library_of_eight_bits_it_is_named(
    modules: Modules, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "bitsandbytes.optim", None)
    with pytest.raises(SystemExit, match=r"OPTIM.TYPE adamw8bit needs bitsandbytes: pip install"):
        train(modules, folder, tmp_path, "cured", "OPTIM.TYPE=adamw8bit")


@pytest.mark.nightly
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor")  # dynamo looks at a block's input
@pytest.mark.parametrize(("asked", "num_graphs"), [("true", 1), ("blocks", 5)])
def test_the_model_is_one_graph_or_one_a_block_for_torch_compile_and_trains_the_same(
    modules: Modules, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    asked: str, num_graphs: int,
) -> None:  # fmt: skip
    """Captured whole, run as captured; code made of it: ``benchmarks/spikevid.py --only compiled``.

    Blocks are of five kinds here: those of Stages 1-7 at four sizes, and Stage 8's.
    """
    graphs = []

    def as_captured(graph: Any, inputs: object) -> Any:
        graphs.append(graph)
        return graph.forward

    def compiled(model: Any, *, mode: str, dynamic: bool | None = None) -> Any:
        assert mode == "default"  # no autotuning on a CPU
        return compile_(model, backend=as_captured, fullgraph=True, dynamic=dynamic)

    compile_ = torch.compile
    monkeypatch.setattr(torch, "compile", compiled)
    torch._dynamo.reset()
    option = f"TRAIN.COMPILE_MODEL={asked}"
    rows = train(modules, folder, tmp_path / "compiled", "cured", LONG, option)
    torch._dynamo.reset()
    monkeypatch.undo()
    plain = train(modules, folder, tmp_path / "plain", "cured", LONG)
    assert len(graphs) == num_graphs
    np.testing.assert_allclose(losses(rows), losses(plain), rtol=1e-6)


# -- bad input ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("MODEL.WINDOW_SIZ=6", "did you mean MODEL.WINDOW_SIZE?"),
        ("MODEL.WINDOW_SIZE=big", "MODEL.WINDOW_SIZE is 'big'"),
        ("MODEL.VRT_DEPTHS=[8,8]", "stages 1-7, then Stage 8"),
        ("DATA.CROP_SCHEDULE=[[5,64]]", "expected [[0, 128], [40, 256]]"),
        ("DATA.TRAIN_CROP_SIZE=144", "a crop of 144"),
        ("DATA.SPIKE_SHAPE=[10,66,81]", "(DATA.SPIKE_SHAPE) take"),
        ("DATA.CACHE_POLICY=fifo", "keep"),
        ("OPTIM.TYPE=sgd", "adamw, adamw8bit"),
        ("nonsense", "expected KEY=VALUE"),
    ],
)
def test_mistakes_in_the_configuration_are_named(
    modules: Modules, folder: Path, tmp_path: Path, option: str, said: str
) -> None:
    with pytest.raises(SystemExit) as caught:
        train(modules, folder, tmp_path, "cured", option)
    assert said in str(caught.value)


@pytest.mark.nightly
def test_spoilt_files_are_named(modules: Modules, own: Path, tmp_path: Path) -> None:
    first = own / "train" / "seq_000"
    options = ("DATALOADER.TOTAL_WORKERS=0", "DATA.CLIP_LEN=8")

    def said() -> str:
        with pytest.raises(SystemExit) as caught:
            train(modules, own, tmp_path, "as_found", *options)
        return str(caught.value)

    dat = first / "spike" / "00000002.dat"
    whole = dat.read_bytes()
    dat.write_bytes(whole[:100])
    assert "00000002.dat has 100 bytes: 10 x 66 x 80 spikes" in said()
    dat.write_bytes(whole[:-1] + b"\x07")
    assert "00000002.dat holds a 7: spikes of a byte each are 0 or 1" in said()
    dat.unlink()
    assert "00000002.dat is missing" in said()
    dat.write_bytes(whole)
    png = first / "sharp" / "00000004.png"
    png.write_bytes(b"no picture")
    assert "00000004.png cannot be read as a picture" in said()
    options = ("DATALOADER.TOTAL_WORKERS=1", "DATA.CLIP_LEN=8")
    assert re.fullmatch(
        r"error: \S*00000004\.png cannot be read as a picture: [^\n]*", said()
    )  # no traceback
    shutil.rmtree(own / "val")
    assert "no SEQ/blur in" in said()


def test_without_the_library_the_cure_says_what_to_install(
    modules: Modules, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "hotloop.feed", None)
    with pytest.raises(SystemExit, match=r"pip install hotloop, or --ablate shared_bytes"):
        train(modules, folder, tmp_path, "cured")
    rows = train(modules, folder, tmp_path, "cured", more=("--epochs", "1", "--ablate", "shared_bytes"))
    assert len(rows) == 8


def test_a_wrong_checkpoint_is_named(modules: Modules, folder: Path, tmp_path: Path) -> None:
    path = tmp_path / "broken.pt"
    path.write_bytes(b"\x80" + bytes(63))
    with pytest.raises(SystemExit, match=r"broken\.pt is no checkpoint"):
        train(modules, folder, tmp_path, "cured", more=("--resume", str(path)))
    for value, missing in (([1], "model"), ({"model": {}, "model_settings": {}}, "optimizer")):
        torch.save(value, path)
        with pytest.raises(SystemExit, match=rf"broken\.pt has no {missing}: last\.pt of a training"):
            train(modules, folder, tmp_path, "cured", more=("--resume", str(path)))
    with pytest.raises(SystemExit, match=r"broken\.pt has no model: last"):
        torch.save({}, path)
        train(modules, folder, tmp_path, "cured", more=("--student", str(path)))
