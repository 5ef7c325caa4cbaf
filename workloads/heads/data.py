"""Frames of a moving head from several cameras: the generator, the files, and the data set.

    canonical_flame_param.npz            the head at rest; a folder is recognised by it
    rig.npz                              the mesh and what moves it (rig.py)
    transforms_{train,val,test}.json     frames: file_path, transform_matrix (camera to world, OpenGL),
                                         camera_angle_x, w, h, timestep_index, camera_index, flame_param_path
    flame_param/%05d.npz                 shape [300], expr [1, 100], rotation, neck_pose, jaw_pose,
                                         translation [1, 3], eyes_pose [1, 6], static_offset [1, V, 3]
    images/%05d_%02d.png                 timestep and camera, RGBA

``train`` has all cameras and the first five sixths of the time, ``test`` the same cameras and the rest,
``val`` a camera of its own at every fifth timestep of training.
"""

import json
import math
import os
import shutil
from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from PIL import Image
from torch import nn
from torch.utils.data import Dataset
from tqdm import tqdm

from network_gui import VIEW
from raster import Views
from rig import NUM_EXPR, NUM_SHAPE, DataError, Rig, read_npz
from scene import FrameWriter, HiddenHead, arrange_cameras, draw_parameters

SPLITS = ("train", "val", "test")
#: scale -> (cameras, timesteps, (height, width), vertices, how much smaller the frames are drawn)
SCALES = {
    "tiny": (2, 12, (96, 64), 162, 1),
    "cpu": (8, 60, (802, 550), 642, 4),
    "full": (16, 600, (802, 550), 5074, 2),
}
#: What the cameras see at the distance of the head: metres from top to bottom.
DISTANCE, FIELD = VIEW["distance"], VIEW["field"]

#: name in a parameter file -> its shape; V is the rig's.
PARAMETERS = {
    "shape": (NUM_SHAPE,), "expr": (1, NUM_EXPR), "rotation": (1, 3), "neck_pose": (1, 3), "jaw_pose": (1, 3),
    "eyes_pose": (1, 6), "translation": (1, 3), "static_offset": (1, "V", 3),
}  # fmt: skip


# -- making the files ---------------------------------------------------------------------------------------


def frame_note(timestep, camera, pose, size):
    height, width = size
    focal = height * DISTANCE / FIELD
    return {
        "timestep_index": timestep,
        "timestep_id": f"frame_{timestep:05d}",
        "camera_index": camera,
        "camera_id": f"{camera:02d}",
        "w": width,
        "h": height,
        "camera_angle_x": 2 * math.atan(width / 2 / focal),
        "transform_matrix": pose.tolist(),
        "file_path": f"images/{timestep:05d}_{camera:02d}.png",
        "flame_param_path": f"flame_param/{timestep:05d}.npz",
    }


def plan_frames(num_cameras, num_timesteps, size):
    """The notes of the frames by split."""
    poses = arrange_cameras(num_cameras)
    num_train = max(1, num_timesteps * 5 // 6)
    seen = [(timestep, camera) for timestep in range(num_timesteps) for camera in range(num_cameras)]
    places = {
        "train": [place for place in seen if place[0] < num_train],
        "val": [(timestep, num_cameras) for timestep in range(0, num_train, 5)],
        "test": [place for place in seen if place[0] >= num_train],
    }
    return {split: [frame_note(t, c, poses[c], size) for t, c in rows] for split, rows in places.items()}


def write_notes(folder, frames, parameters, rig):
    """Everything but the pictures."""
    for split, notes in frames.items():
        found = {
            "timestep_indices": sorted({note["timestep_index"] for note in notes}),
            "camera_indices": sorted({note["camera_index"] for note in notes}),
        }
        (folder / f"transforms_{split}.json").write_text(json.dumps({"frames": notes, **found}, indent=1))
    for timestep in range(len(parameters["expr"])):
        np.savez(folder / "flame_param" / f"{timestep:05d}.npz", **at_timestep(parameters, timestep))
    still = {name: np.zeros_like(array[:1]) for name, array in parameters.items()}
    np.savez(
        folder / "canonical_flame_param.npz",
        **{**still, "shape": parameters["shape"], "static_offset": parameters["static_offset"]},
    )
    rig.save(folder / "rig.npz")


def at_timestep(parameters, timestep):
    """The parameters of one timestep as a file holds them."""
    return {
        name: array if name in ("shape", "static_offset") else array[timestep : timestep + 1]
        for name, array in parameters.items()
    }


def take_pictures(folder, rig, frames, parameters, rng, size, smaller):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    head = HiddenHead(rig, rng, device)
    by_timestep = {}
    for note in (note for notes in frames.values() for note in notes):
        by_timestep.setdefault(note["timestep_index"], []).append(note)
    writer = FrameWriter(rng, size)
    small = size[0] // smaller, size[1] // smaller
    total = sum(map(len, by_timestep.values()))
    with (
        tqdm(total=total, desc="making data", unit="frame", disable=None) as bar,
        ThreadPoolExecutor(os.cpu_count()) as pool,
    ):
        for timestep, notes in sorted(by_timestep.items()):
            now = at_timestep(parameters, timestep)
            vertices = rig.vertices(**{name: torch.from_numpy(now[name]) for name in now})[0]
            pictures = head.photograph(vertices, views_of(list(map(read_frame, notes)), *small, device))
            paths = [folder / note["file_path"] for note in notes]
            numbers = [1000 * timestep + note["camera_index"] for note in notes]
            for _ in pool.map(writer.write, paths, pictures, numbers):
                bar.update()


def make_data(folder=None, scale="cpu", seed=0, sizes=None):
    """Write the frames of a scale once and return their folder; a finished folder is used again."""
    folder = Path(folder) if folder else Path(__file__).parent / "data" / f"{scale}-seed{seed}"
    if (folder / "canonical_flame_param.npz").exists():
        return folder
    if folder.exists() and any(folder.iterdir()):
        raise DataError(f"{folder} has no canonical_flame_param.npz and is not empty: name another folder")
    num_cameras, num_timesteps, size, num_vertices, smaller = sizes or SCALES[scale]
    rng = np.random.default_rng([seed, 0])
    rig = Rig.make(num_vertices, seed)
    parameters = draw_parameters(rng, num_timesteps, rig)
    frames = plan_frames(num_cameras, num_timesteps, size)
    partial = folder.parent / f"{folder.name}.{os.getpid()}.partial"
    try:
        for kind in ("images", "flame_param"):
            (partial / kind).mkdir(parents=True, exist_ok=True)
        write_notes(partial, frames, parameters, rig)
        take_pictures(partial, rig, frames, parameters, rng, size, smaller)
        try:
            partial.rename(folder)
        except OSError:  # another process finished the same data first
            if not (folder / "canonical_flame_param.npz").exists():
                raise
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return folder


# -- reading ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Frame:
    """A picture and the camera that took it, OpenCV's way; pixels as they are in the file."""

    path: Path
    timestep: int
    camera: int
    width: int
    height: int
    world_to_camera: np.ndarray
    intrinsics: np.ndarray
    parameters: Path

    def intrinsics_at(self, height, width):
        """The intrinsics (3, 3) float32 of the picture at another size."""
        return (np.diag([width / self.width, height / self.height, 1]) @ self.intrinsics).astype(np.float32)


def read_frame(note, folder=Path()):
    """A Frame of an entry of a transforms file; KeyError, TypeError or ValueError where it is none."""
    for name in ("file_path", "flame_param_path"):
        if not isinstance(note[name], str):
            raise ValueError(f"{name} is {note[name]!r}, not the name of a file")
    path = folder / note["file_path"]
    path = path if path.suffix else path.with_name(f"{path.name}.png")
    pose = np.asarray(note["transform_matrix"], float)
    if pose.shape != (4, 4) or not np.isfinite(pose).all() or abs(np.linalg.det(pose)) < 1e-9:
        raise ValueError(f"transform_matrix is no invertible 4 x 4 matrix: {note['transform_matrix']}")
    if "w" in note and "h" in note:
        width, height = int(note["w"]), int(note["h"])
    else:
        with open_picture(path) as image:
            width, height = image.size
    angle = float(note["camera_angle_x"])
    if not 0 < angle < math.pi or width < 1 or height < 1:
        raise ValueError(f"camera_angle_x {angle}, w {width}, h {height} make no camera")
    timestep = int(note["timestep_index"])
    if timestep < 0:
        raise ValueError(f"timestep_index is {timestep}: they begin at 0")
    focal = width / 2 / math.tan(angle / 2)
    camera = note["camera_index"] if "camera_index" in note else note["camera_id"]
    return Frame(
        path=path,
        timestep=timestep,
        camera=int(camera),
        width=width,
        height=height,
        world_to_camera=np.linalg.inv(pose @ np.diag([1.0, -1, -1, 1])).astype(np.float32),
        intrinsics=np.array([[focal, 0, width / 2], [0, focal, height / 2], [0, 0, 1]]),
        parameters=folder / note["flame_param_path"],
    )


def read_frames(folder, split):
    """The frames of a split in the order of the file."""
    if split not in SPLITS:
        raise DataError(f"split {split!r} is none of {', '.join(SPLITS)}")
    path = Path(folder) / f"transforms_{split}.json"
    try:
        notes = json.loads(path.read_text())["frames"]
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except (ValueError, KeyError, TypeError) as error:
        raise DataError(f"{path} is no list of frames: {error!r}") from None
    frames = []
    for number, note in enumerate(notes):
        try:
            frames.append(read_frame(note, path.parent))
        except DataError:
            raise
        except KeyError as error:
            raise DataError(f"{path}: frame {number} has no {error}") from None
        except (ValueError, TypeError) as error:
            raise DataError(f"{path}: frame {number}: {error}") from None
        if not frames[-1].path.exists():
            raise DataError(f"{frames[-1].path} is missing: frame {number} of {path} names it")
    if not frames:
        raise DataError(f"{path} has no frames")
    return frames


def views_of(frames, height, width, device="cpu"):
    """The cameras of frames as the rasterizer takes them."""
    poses = np.stack([frame.world_to_camera for frame in frames])
    intrinsics = np.stack([frame.intrinsics_at(height, width) for frame in frames])
    return Views(
        world_to_camera=torch.from_numpy(poses).to(device),
        intrinsics=torch.from_numpy(intrinsics).to(device),
        height=height,
        width=width,
    )


def load_parameters(folder):
    """The head at every timestep: shape (300,), static_offset (1, V, 3), the others (T, ...), float32."""
    files = {}
    for split in SPLITS:
        if (Path(folder) / f"transforms_{split}.json").exists():
            files.update({frame.timestep: frame.parameters for frame in read_frames(folder, split)})
    if not files:
        raise DataError(f"no transforms_train.json, _val.json or _test.json in {folder}")
    rows = []
    num_vertices = Rig.load(Path(folder) / "rig.npz").n_vertices
    for timestep in range(max(files) + 1):
        if timestep not in files:
            raise DataError(f"no frame in {folder} has timestep_index {timestep}: they go to {max(files)}")
        rows.append(read_parameters(files[timestep], num_vertices))
    return {
        name: torch.from_numpy(
            rows[0][name] if name in ("shape", "static_offset") else np.concatenate([r[name] for r in rows])
        )
        for name in PARAMETERS
    }


def read_parameters(path, num_vertices, num_timesteps=1):
    """A parameter file: name -> float32 array, as PARAMETERS says; None: of any number of timesteps."""
    arrays = read_npz(path, PARAMETERS)
    first = len(arrays["expr"]) if num_timesteps is None and arrays["expr"].ndim else num_timesteps
    for name, shape in PARAMETERS.items():
        expected = tuple(num_vertices if size == "V" else size for size in shape)
        if len(shape) == 2:
            expected = (first, *expected[1:])
        if arrays[name].shape != expected:
            raise DataError(f"{path}: {name} has shape {arrays[name].shape}: expected {expected}")
        if arrays[name].dtype.kind != "f" or not np.isfinite(arrays[name]).all():
            raise DataError(f"{path}: {name} holds other than finite numbers")
    return {name: array.astype(np.float32) for name, array in arrays.items()}


def open_picture(path):
    try:
        return Image.open(path)
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except OSError as error:
        raise DataError(f"{path} cannot be read as a picture: {error}") from None


class Camera(nn.Module):
    """A camera as the project has it: a module, though nothing in it is a parameter."""

    def __init__(self, frame, height, width):
        super().__init__()
        self.image_name, self.image_path = frame.path.stem, frame.path
        self.timestep, self.camera = frame.timestep, frame.camera
        self.height, self.width = height, width
        self.world_to_camera = torch.from_numpy(frame.world_to_camera)
        self.intrinsics = torch.from_numpy(frame.intrinsics_at(height, width))
        self.original_image = None


class Heads(Dataset):
    """The frames of a split at a size of one's own; ``style`` says what an item is.

    ``as_found``: a copy of a Camera with ``original_image`` (3, H, W) float32 in 0..1, composited in float64.
    ``cured``: a dictionary; ``image`` is the same picture, (3, H, W) uint8.
    """

    def __init__(self, folder, split, height=None, width=None, style="cured", white_background=False):
        if style not in ("as_found", "cured"):
            raise ValueError(f"style {style!r} is neither as_found nor cured")
        self.frames = read_frames(folder, split)
        self.height = height or self.frames[0].height
        self.width = width or self.frames[0].width
        self.style, self.white = style, white_background
        self.cameras = [Camera(frame, self.height, self.width) for frame in self.frames]
        self.timesteps = [frame.timestep for frame in self.frames]
        self.world_to_camera = torch.stack([camera.world_to_camera for camera in self.cameras])
        alpha, value = np.ogrid[:256, :256]
        self.blended = blend(value / 255, alpha / 255, white_background)

    def __len__(self):
        return len(self.frames)

    def by_timestep(self):
        """The indices of the frames of each timestep."""
        found = {}
        for index, timestep in enumerate(self.timesteps):
            found.setdefault(timestep, []).append(index)
        return found

    def __getitem__(self, index):
        frame = self.frames[index]
        rgba = self._decode(frame)
        if self.style == "as_found":
            pixels = blend(rgba[..., :3] / 255, rgba[..., 3:] / 255, self.white)
        else:
            # What the arithmetic above gives for each of the 65,536 pairs of a value and an alpha.
            pixels = self.blended.ravel().take(rgba[..., :3] + (rgba[..., 3:].astype(np.intp) << 8))
        resized = np.array(Image.fromarray(pixels).resize((self.width, self.height)))
        image = torch.from_numpy(resized).permute(2, 0, 1)
        camera = self.cameras[index]
        if self.style == "as_found":
            camera = deepcopy(camera)
            camera.original_image = (image / 255).clamp(0, 1)
            return camera
        return {
            "image": image.contiguous(),
            "world_to_camera": camera.world_to_camera,
            "intrinsics": camera.intrinsics,
            "timestep": frame.timestep,
            "camera": frame.camera,
        }

    def _decode(self, frame):
        """A picture as (H, W, 4) uint8."""
        try:
            with open_picture(frame.path) as image:
                rgba = np.array(image.convert("RGBA"))
        except (OSError, SyntaxError) as error:
            raise DataError(f"{frame.path} cannot be read as a picture: {error}") from None
        if rgba.shape[:2] != (frame.height, frame.width):
            raise DataError(
                f"{frame.path} is {rgba.shape[1]} x {rgba.shape[0]}: its w and h say "
                f"{frame.width} x {frame.height}"
            )
        return rgba


def blend(values, alpha, white):
    """Values in 0..1 over a white or black background, in float64, as uint8."""
    return ((values * alpha + float(white) * (1 - alpha)) * 255.0).astype(np.uint8)
