"""The head of the heads workload and its pictures: the rig, the files, what a sample is, bad input."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.workloads.scripts import Modules

pytest.importorskip("torch")
pytest.importorskip("PIL")
pytest.importorskip("scipy")

import numpy as np
import torch
from PIL import Image

FOLDER = Path(__file__).parents[2] / "workloads" / "heads"
MODULES = ("rotation", "tiles", "raster", "rig", "network_gui", "scene", "data")


@pytest.fixture(scope="module")
def folder(modules: Modules, tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = modules["data"].make_data(tmp_path_factory.mktemp("heads") / "tiny", "tiny", seed=3)
    return made


@pytest.fixture(scope="module")
def rig(modules: Modules) -> Any:
    return modules["rig"].Rig.make(642, seed=1)


def pose(num: int = 1, **parts: Any) -> dict[str, torch.Tensor]:
    """Parameters at rest but for ``parts``."""
    shapes = {"expr": 100, "rotation": 3, "neck_pose": 3, "jaw_pose": 3, "eyes_pose": 6, "translation": 3}
    still = {"shape": torch.zeros(300), **{name: torch.zeros(num, size) for name, size in shapes.items()}}
    return {**still, **{name: torch.as_tensor(value).float() for name, value in parts.items()}}


# -- the rig ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_vertices", "num_faces"), [(162, 320), (642, 1_280), (5_074, 10_144)])
def test_the_mesh_is_a_closed_surface(modules: Modules, num_vertices: int, num_faces: int) -> None:
    rig = modules["rig"].Rig.make(num_vertices)
    assert rig.n_vertices == num_vertices and rig.faces.shape == (num_faces, 3)
    edges = torch.cat([rig.faces[:, [0, 1]], rig.faces[:, [1, 2]], rig.faces[:, [2, 0]]])
    # Every edge once in each direction: closed, and all faces look to the same side.
    there = {tuple(edge) for edge in edges.tolist()}
    assert len(there) == len(edges) and there == {(b, a) for a, b in there}
    a, b, c = rig.template[rig.faces].unbind(1)
    volume = (a * torch.linalg.cross(b, c)).sum() / 6
    assert 0.002 < volume < 0.006  # cubic metres, a head's; positive: outward
    assert {"eyes", "mouth", "nose"} == set(rig.regions)
    assert not set(rig.regions["eyes"].tolist()) & set(rig.regions["mouth"].tolist())


def test_the_same_seed_is_the_same_head(modules: Modules, tmp_path: Path, rig: Any) -> None:
    again, other = (modules["rig"].Rig.make(642, seed=seed) for seed in (1, 2))
    asked = pose(shape=torch.linspace(-1, 1, 300), expr=torch.linspace(-1, 1, 100)[None])
    assert torch.equal(rig.vertices(**asked), again.vertices(**asked))
    assert not torch.allclose(rig.vertices(**asked), other.vertices(**asked))
    rig.save(tmp_path / "rig.npz")
    loaded = modules["rig"].Rig.load(tmp_path / "rig.npz")
    assert torch.equal(rig.vertices(**asked), loaded.vertices(**asked))
    assert all(torch.equal(rig.regions[name], loaded.regions[name]) for name in rig.regions)
    assert [path.name for path in tmp_path.iterdir()] == ["rig.npz"]


def test_at_rest_it_is_the_template_and_a_turn_keeps_its_form(rig: Any) -> None:
    torch.testing.assert_close(rig.vertices(**pose(2))[1], rig.template)
    turned = rig.vertices(**pose(rotation=[[0, math.pi / 2, 0]], translation=[[0.1, 0, 0]]))[0]
    torch.testing.assert_close(
        torch.cdist(turned, turned), torch.cdist(rig.template, rig.template), atol=1e-4, rtol=0
    )
    nose = rig.template[:, 2].argmax()
    assert rig.template[nose, 2] > 0.1 and turned[nose, 0] > 0.2 and abs(turned[nose, 2]) < 0.05


def test_each_parameter_moves_what_its_name_says(rig: Any) -> None:
    def moved(**parts: Any) -> torch.Tensor:
        found: torch.Tensor = (rig.vertices(**pose(**parts))[0] - rig.template).norm(dim=1)
        return found

    high, low = rig.template[:, 1] > 0.03, (rig.template[:, 1] < -0.07) & (rig.template[:, 2] > 0.04)
    jaw = moved(jaw_pose=[[0.3, 0, 0]])
    assert jaw[low].max() > 0.015 and jaw[high].max() < 1e-3
    opened = rig.vertices(**pose(jaw_pose=[[0.3, 0, 0]]))[0]
    assert (opened - rig.template)[low, 1].min() < -0.01  # down
    eyes = moved(eyes_pose=[[0, 0.2, 0, 0, 0, 0]])
    assert rig.template[eyes.argmax(), 0] > 0.01 and eyes[rig.template[:, 0] < -0.01].max() < 1e-3
    face = moved(expr=torch.ones(1, 100))
    back = rig.template[:, 2] < -0.05
    assert face.max() > 0.002 and face[back].max() < face.max() / 10
    assert moved(shape=torch.ones(300))[back].mean() > 0.001
    assert moved(neck_pose=[[0.2, 0, 0]])[high].min() > 0.01
    offset = torch.zeros(1, 642, 3)
    offset[0, 5] = torch.tensor([0.01, 0, 0])
    assert moved(static_offset=offset).argmax() == 5


def test_gradients_reach_the_parameters(rig: Any) -> None:
    asked = {name: value.requires_grad_() for name, value in pose(2).items()}  # at rest, where angles are 0
    rig.vertices(**asked).square().sum().backward()
    for name, value in asked.items():
        assert value.grad is not None and value.grad.isfinite().all() and value.grad.abs().max() > 0, name


# -- the files ----------------------------------------------------------------------------------------------


def test_the_files_are_what_the_format_says(modules: Modules, folder: Path) -> None:
    names = {path.name for path in folder.iterdir()}
    assert names == {
        "canonical_flame_param.npz", "rig.npz", "images", "flame_param",
        "transforms_train.json", "transforms_val.json", "transforms_test.json",
    }  # fmt: skip
    assert sum(path.stat().st_size for path in folder.rglob("*") if path.is_file()) < 20e6
    frames = {split: json.loads((folder / f"transforms_{split}.json").read_text())["frames"] for split in
              ("train", "val", "test")}  # fmt: skip
    assert {split: len(notes) for split, notes in frames.items()} == {"train": 20, "val": 2, "test": 4}
    assert {note["timestep_index"] for note in frames["train"]} == set(range(10))
    assert {note["camera_index"] for note in frames["val"]} == {2}
    with Image.open(folder / frames["train"][0]["file_path"]) as picture:
        assert (picture.size, picture.mode) == ((64, 96), "RGBA")
    with np.load(folder / frames["test"][-1]["flame_param_path"]) as file:
        assert {name: file[name].shape for name in file} == {
            "shape": (300,), "expr": (1, 100), "rotation": (1, 3), "neck_pose": (1, 3), "jaw_pose": (1, 3),
            "eyes_pose": (1, 6), "translation": (1, 3), "static_offset": (1, 162, 3),
        }  # fmt: skip
    parameters = modules["data"].load_parameters(folder)
    assert parameters["expr"].shape == (12, 100) and parameters["shape"].shape == (300,)
    assert parameters["jaw_pose"][:, 0].max() > 0.1  # it speaks


def projected(note: dict[str, Any], vertices: np.ndarray) -> np.ndarray:
    """Pixels (V, 2) as x, y of points in the world, by the words of the format alone."""
    camera = np.linalg.inv(np.array(note["transform_matrix"]))
    x, y, z = (vertices @ camera[:3, :3].T + camera[:3, 3]).T
    assert (z < 0).all()  # OpenGL looks along -z
    focal = note["w"] / 2 / math.tan(note["camera_angle_x"] / 2)
    return np.stack([note["w"] / 2 + focal * x / -z, note["h"] / 2 - focal * y / -z], axis=1)


def test_pictures_show_the_mesh_where_the_cameras_say(modules: Modules, folder: Path) -> None:
    parameters = modules["data"].load_parameters(folder)
    vertices = modules["rig"].Rig.load(folder / "rig.npz").vertices(**parameters).numpy()
    for split in ("train", "val", "test"):
        for note in json.loads((folder / f"transforms_{split}.json").read_text())["frames"]:
            with Image.open(folder / note["file_path"]) as picture:
                rows, columns = np.nonzero(np.array(picture)[..., 3] > 128)
            points = projected(note, vertices[note["timestep_index"]])
            box = np.array([columns.min(), rows.min(), columns.max() + 1, rows.max() + 1])
            mesh = np.array([*points.min(axis=0), *points.max(axis=0)])
            assert abs(box - mesh).max() < 6, note["file_path"]  # the splats reach beyond it
            assert abs((box - mesh).reshape(2, 2).mean(axis=0)).max() < 1.5, note["file_path"]


def test_made_once_whole_and_the_same_for_a_seed(modules: Modules, folder: Path, tmp_path: Path) -> None:
    make = modules["data"].make_data
    before = {path: path.stat().st_mtime_ns for path in folder.rglob("*")}
    assert make(folder, "tiny", seed=3) == folder
    assert {path: path.stat().st_mtime_ns for path in folder.rglob("*")} == before
    again = make(tmp_path / "deep" / "again", "tiny", seed=3)
    for path in folder.rglob("*.png"):
        assert (again / path.relative_to(folder)).read_bytes() == path.read_bytes()
    assert [path.name for path in again.parent.iterdir()] == ["again"]
    other = tmp_path / "other"
    other.mkdir()
    (other / "notes.txt").write_text("mine")
    with pytest.raises(modules["data"].DataError, match="is not empty: name another folder"):
        make(other, "tiny")
    assert [path.name for path in other.iterdir()] == ["notes.txt"]


# -- samples ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("white", [False, True])
@pytest.mark.parametrize("size", [(None, None), (48, 40)])
def test_both_styles_are_the_same_picture(
    modules: Modules, folder: Path, white: bool, size: tuple[int | None, int | None]
) -> None:
    found, cured = (
        modules["data"].Heads(folder, "train", *size, style=style, white_background=white)
        for style in ("as_found", "cured")
    )
    for index in (0, 7, 19):
        camera, sample = found[index], cured[index]
        assert camera.original_image.dtype == torch.float32 and sample["image"].dtype == torch.uint8
        assert torch.equal(camera.original_image, sample["image"] / 255)
        assert torch.equal(camera.world_to_camera, sample["world_to_camera"])
        assert torch.equal(camera.intrinsics, sample["intrinsics"])
        assert (camera.timestep, camera.camera) == (sample["timestep"], sample["camera"])
        assert sample["image"].shape == (3, size[0] or 96, size[1] or 64)


def test_every_value_is_composited_as_in_float64(modules: Modules, own: Path) -> None:
    """All pairs of a value and an alpha in one picture."""
    value, alpha = np.meshgrid(np.arange(256, dtype=np.uint8), np.arange(256, dtype=np.uint8))
    note = json.loads((own / "transforms_val.json").read_text())["frames"][0]
    Image.fromarray(np.stack([value, value[::-1], alpha.T, alpha], 2)).save(own / "all.png")
    (own / "transforms_val.json").write_text(
        json.dumps({"frames": [{**note, "w": 256, "h": 256, "file_path": "all"}]})  # no suffix: png
    )
    for white in (False, True):
        found, cured = (
            modules["data"].Heads(own, "val", style=style, white_background=white)[0]
            for style in ("as_found", "cured")
        )
        assert torch.equal(found.original_image, cured["image"] / 255)


def test_the_camera_follows_the_size(modules: Modules, folder: Path) -> None:
    heads = modules["data"].Heads(folder, "train", 48, 16)
    large, small = modules["data"].Heads(folder, "train")[0]["intrinsics"], heads[0]["intrinsics"]
    torch.testing.assert_close(small, torch.diag(torch.tensor([0.25, 0.5, 1])) @ large)
    assert heads.by_timestep()[3] == [6, 7] and heads.timesteps[6:8] == [3, 3]


# -- bad input ----------------------------------------------------------------------------------------------


def spoil_note(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def spoil(own: Path) -> None:
        path = own / "transforms_train.json"
        notes = json.loads(path.read_text())
        change(notes["frames"][1])
        path.write_text(json.dumps(notes))

    return spoil


def cut(name: str) -> Callable[[Path], None]:
    return lambda own: (own / name).write_bytes((own / name).read_bytes()[:200]) and None


def save_parameters(**change: np.ndarray) -> Callable[[Path], None]:
    def spoil(own: Path) -> None:
        path = own / "flame_param" / "00004.npz"
        with np.load(path) as file:
            arrays = {**dict(file), **change}
        np.savez(path, **{name: array for name, array in arrays.items() if array.size})

    return spoil


BAD = {
    "no list": (lambda own: (own / "transforms_train.json").unlink(), r"transforms_train\.json is missing"),
    "no frames": (
        lambda own: (own / "transforms_train.json").write_text('{"frames": []}'),
        "transforms_train.json has no frames",
    ),
    "no matrix": (spoil_note(lambda n: n.pop("transform_matrix")), "frame 1 has no 'transform_matrix'"),
    "no angle": (spoil_note(lambda n: n.update(camera_angle_x=-1)), "frame 1: camera_angle_x -1.0, w 64"),
    "no picture": (
        lambda own: (own / "images" / "00000_01.png").unlink(),
        r"00000_01\.png is missing: frame 1 of .*transforms_train\.json names it",
    ),
    "half a picture": (cut("images/00000_01.png"), r"00000_01\.png cannot be read as a picture"),
    "other size": (
        lambda own: Image.new("RGB", (5, 7)).save(own / "images" / "00000_01.png"),
        r"00000_01\.png is 5 x 7: its w and h say 64 x 96",
    ),
    "no jaw": (save_parameters(jaw_pose=np.zeros(0)), r"00004\.npz has no jaw_pose"),
    "other expr": (
        save_parameters(expr=np.zeros((1, 50), np.float32)),
        r"00004\.npz: expr has shape \(1, 50\): expected \(1, 100\)",
    ),
    "nan": (
        save_parameters(rotation=np.full((1, 3), np.nan, np.float32)),
        r"00004\.npz: rotation holds other than finite numbers",
    ),
    "a gap": (
        spoil_note(lambda n: n.update(timestep_index=40)),
        "no frame in .* has timestep_index 12: they go to 40",
    ),
    "no rig": (
        lambda own: (own / "rig.npz").unlink(),
        r"rig\.npz is missing: the mesh that the parameters move",
    ),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input_is_named(modules: Modules, own: Path, name: str) -> None:
    spoil, words = BAD[name]
    spoil(own)
    with pytest.raises(modules["data"].DataError, match=words):
        modules["data"].Heads(own, "train")[1]
        modules["data"].load_parameters(own)
