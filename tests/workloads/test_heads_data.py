"""The head of the heads workload and its pictures: the rig, the files, what a sample is, bad input."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from tests.workloads.scripts import imported

pytest.importorskip("torch")
pytest.importorskip("PIL")
pytest.importorskip("scipy")

import numpy as np
import torch
from PIL import Image

FOLDER = Path(__file__).parents[2] / "workloads" / "heads"


@pytest.fixture(scope="module")
def modules() -> Iterator[dict[str, ModuleType]]:
    """The workload's modules, imported as the script imports them and forgotten afterwards."""
    with imported(FOLDER, "rotation", "tiles", "raster", "rig", "network_gui", "scene", "data") as found:
        yield found


@pytest.fixture(scope="module")
def folder(modules: dict[str, ModuleType], tmp_path_factory: pytest.TempPathFactory) -> Path:
    made: Path = modules["data"].make_data(tmp_path_factory.mktemp("heads") / "tiny", "tiny", seed=3)
    return made


@pytest.fixture
def own(folder: Path, tmp_path: Path) -> Path:
    """A copy of the data to spoil."""
    return Path(shutil.copytree(folder, tmp_path / "own"))


@pytest.fixture(scope="module")
def rig(modules: dict[str, ModuleType]) -> Any:
    return modules["rig"].Rig.make(642, seed=1)


def pose(num: int = 1, **parts: Any) -> dict[str, torch.Tensor]:
    """Parameters at rest but for ``parts``."""
    shapes = {"expr": 100, "rotation": 3, "neck_pose": 3, "jaw_pose": 3, "eyes_pose": 6, "translation": 3}
    still = {"shape": torch.zeros(300), **{name: torch.zeros(num, size) for name, size in shapes.items()}}
    return {**still, **{name: torch.as_tensor(value).float() for name, value in parts.items()}}


# -- the rig ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("num_vertices", "num_faces"), [(162, 320), (642, 1_280), (5_074, 10_144)])
def test_the_mesh_is_a_closed_surface(
    modules: dict[str, ModuleType], num_vertices: int, num_faces: int
) -> None:
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


def test_the_same_seed_is_the_same_head(modules: dict[str, ModuleType], tmp_path: Path, rig: Any) -> None:
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


def test_a_rig_that_is_none_is_named(modules: dict[str, ModuleType], rig: Any, tmp_path: Path) -> None:
    error, load, path = modules["rig"].DataError, modules["rig"].Rig.load, tmp_path / "rig.npz"
    with pytest.raises(error, match=r"rig\.npz is missing"):
        load(path)
    rig.save(path)
    path.write_bytes(path.read_bytes()[:-100])
    with pytest.raises(error, match=r"rig\.npz is truncated or no \.npz file"):
        load(path)
    np.savez(path, faces=rig.faces.numpy())
    with pytest.raises(error, match=r"rig\.npz has no sphere"):
        load(path)
    for words, name, index, value in (
        (r"template has shape \(641, 3\): expected \('V', 3\) with \{'V': 642\}", "template", 0, None),
        ("weights holds other than finite numbers", "weights", (0, 1), np.nan),
        (r"faces has numbers from -?\d+ to 642: there are 642", "faces", (3, 1), 642),
        ("region_mouth has numbers from .* to 1280: there are 1280", "region_mouth", 0, 1280),
    ):
        rig.save(path)
        with np.load(path) as file:
            arrays = dict(file)
        if value is None:
            arrays[name] = np.delete(arrays[name], index, axis=0)
        else:
            arrays[name][index] = value
        np.savez(path, **arrays)
        with pytest.raises(error, match=rf"rig\.npz: {words}"):
            load(path)
    with pytest.raises(error, match="static_offset is for 7 vertices: the rig has 642"):
        rig.vertices(**pose(static_offset=torch.zeros(1, 7, 3)))


# -- the files ----------------------------------------------------------------------------------------------


def test_the_files_are_what_the_format_says(modules: dict[str, ModuleType], folder: Path) -> None:
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


def test_pictures_show_the_mesh_where_the_cameras_say(modules: dict[str, ModuleType], folder: Path) -> None:
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


def test_pictures_look_like_a_head(modules: dict[str, ModuleType], folder: Path) -> None:
    val = modules["data"].Heads(folder, "val", white_background=True)
    front = val[0]["image"].permute(1, 2, 0).numpy().astype(int)
    assert (front[0, 0] == 255).all()
    inside = np.argwhere((front < 250).any(axis=2))
    top, bottom = inside[:, 0].min(), inside[:, 0].max()
    hair, cheek = front[top + 3 : top + 8, 28:36].mean(axis=(0, 1)), front[50:60, 24:40].mean(axis=(0, 1))
    assert hair.sum() < 0.6 * cheek.sum()
    assert cheek[0] > cheek[1] > cheek[2]  # skin
    blue = np.argwhere(front[..., 2] > front[..., 0] + 15)
    eyes = blue[(blue[:, 0] > top + 10) & (blue[:, 0] < (top + bottom) / 2 + 5)]
    assert (eyes[:, 1] < 31).any() and (eyes[:, 1] > 33).any()


def test_made_once_whole_and_the_same_for_a_seed(
    modules: dict[str, ModuleType], folder: Path, tmp_path: Path
) -> None:
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
    modules: dict[str, ModuleType], folder: Path, white: bool, size: tuple[int | None, int | None]
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


def test_every_value_is_composited_as_in_float64(modules: dict[str, ModuleType], own: Path) -> None:
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


def test_the_camera_follows_the_size(modules: dict[str, ModuleType], folder: Path) -> None:
    heads = modules["data"].Heads(folder, "train", 48, 16)
    large, small = modules["data"].Heads(folder, "train")[0]["intrinsics"], heads[0]["intrinsics"]
    torch.testing.assert_close(small, torch.diag(torch.tensor([0.25, 0.5, 1])) @ large)
    assert heads.by_timestep()[3] == [6, 7] and heads.timesteps[6:8] == [3, 3]


def test_pinning_a_camera_does_nothing_and_a_copy_is_a_copy(
    modules: dict[str, ModuleType], folder: Path
) -> None:
    from torch.utils.data._utils.pin_memory import pin_memory

    heads = modules["data"].Heads(folder, "train", style="as_found")
    camera = heads[0]
    assert pin_memory(camera) is camera
    assert heads.cameras[0].original_image is None and heads[0] is not camera


def test_sizes_and_cameras_that_a_file_leaves_out(modules: dict[str, ModuleType], own: Path) -> None:
    path = own / "transforms_train.json"
    expected = modules["data"].Heads(own, "train")[3]
    notes = json.loads(path.read_text())
    for note in notes["frames"]:
        del note["w"], note["h"], note["camera_index"]
    path.write_text(json.dumps(notes))
    sample = modules["data"].Heads(own, "train")[3]
    assert all(torch.equal(sample[name], expected[name]) for name in ("image", "intrinsics"))
    assert sample["camera"] == expected["camera"]


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
    "half a list": (cut("transforms_train.json"), r"transforms_train\.json is no list of frames"),
    "no frames": (
        lambda own: (own / "transforms_train.json").write_text('{"frames": []}'),
        "transforms_train.json has no frames",
    ),
    "no matrix": (spoil_note(lambda n: n.pop("transform_matrix")), "frame 1 has no 'transform_matrix'"),
    "flat matrix": (
        spoil_note(lambda n: n.update(transform_matrix=[[1, 0, 0]])),
        "frame 1: transform_matrix is no invertible 4 x 4 matrix",
    ),
    "no angle": (spoil_note(lambda n: n.update(camera_angle_x=-1)), "frame 1: camera_angle_x -1.0, w 64"),
    "words": (spoil_note(lambda n: n.update(timestep_index="first")), "frame 1: invalid literal"),
    "no name": (
        spoil_note(lambda n: n.update(file_path=3)),
        "frame 1: file_path is 3, not the name of a file",
    ),
    "no picture": (
        lambda own: (own / "images" / "00000_01.png").unlink(),
        r"00000_01\.png is missing: frame 1 of .*transforms_train\.json names it",
    ),
    "half a picture": (cut("images/00000_01.png"), r"00000_01\.png cannot be read as a picture"),
    "no png": (
        lambda own: (own / "images" / "00000_01.png").write_text("hello"),
        r"00000_01\.png cannot be read as a picture",
    ),
    "other size": (
        lambda own: Image.new("RGB", (5, 7)).save(own / "images" / "00000_01.png"),
        r"00000_01\.png is 5 x 7: its w and h say 64 x 96",
    ),
    "no parameters": (
        lambda own: (own / "flame_param" / "00004.npz").unlink(),
        r"00004\.npz is missing",
    ),
    "half parameters": (cut("flame_param/00004.npz"), r"00004\.npz is truncated or no \.npz"),
    "no jaw": (save_parameters(jaw_pose=np.zeros(0)), r"00004\.npz has no jaw_pose"),
    "other expr": (
        save_parameters(expr=np.zeros((1, 50), np.float32)),
        r"00004\.npz: expr has shape \(1, 50\): expected \(1, 100\)",
    ),
    "other mesh": (
        save_parameters(static_offset=np.zeros((1, 99, 3), np.float32)),
        r"00004\.npz: static_offset has shape \(1, 99, 3\): expected \(1, 162, 3\)",
    ),
    "nan": (
        save_parameters(rotation=np.full((1, 3), np.nan, np.float32)),
        r"00004\.npz: rotation holds other than finite numbers",
    ),
    "before the beginning": (
        spoil_note(lambda n: n.update(timestep_index=-1)),
        "frame 1: timestep_index is -1: they begin at 0",
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
def test_bad_input_is_named(modules: dict[str, ModuleType], own: Path, name: str) -> None:
    spoil, words = BAD[name]
    spoil(own)
    with pytest.raises(modules["data"].DataError, match=words):
        modules["data"].Heads(own, "train")[1]
        modules["data"].load_parameters(own)


def test_a_split_nobody_knows(modules: dict[str, ModuleType], folder: Path, tmp_path: Path) -> None:
    with pytest.raises(modules["data"].DataError, match="split 'dev' is none of train, val, test"):
        modules["data"].Heads(folder, "dev")
    with pytest.raises(modules["data"].DataError, match=r"no transforms_train\.json, _val"):
        modules["data"].load_parameters(tmp_path)


def test_a_worker_names_the_file_too(modules: dict[str, ModuleType], own: Path) -> None:
    cut("images/00000_01.png")(own)
    loader = torch.utils.data.DataLoader(
        modules["data"].Heads(own, "train"), batch_size=None, num_workers=1, multiprocessing_context="fork"
    )
    with pytest.raises(modules["data"].DataError, match=r"00000_01\.png cannot be read as a picture"):
        list(loader)
