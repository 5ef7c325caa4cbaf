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

from network_gui import VIEW, orbit
from raster import Views, rasterize
from rig import LEFT_EYE, MOUTH, NUM_EXPR, NUM_SHAPE, RIGHT_EYE, DataError, Rig, bump, read_npz

SPLITS = ("train", "val", "test")
#: scale -> (cameras, timesteps, (height, width), vertices, how much smaller the frames are drawn)
SCALES = {
    "tiny": (2, 12, (96, 64), 162, 1),
    "cpu": (8, 60, (802, 550), 642, 4),
    "full": (16, 600, (802, 550), 5074, 2),
}
#: What the cameras see at the distance of the head: metres from top to bottom.
DISTANCE, FIELD = VIEW["distance"], VIEW["field"]
#: Where the light comes from.
LIGHT = (0.35, 0.5, 0.79)

#: name in a parameter file -> its shape; V is the rig's.
PARAMETERS = {
    "shape": (NUM_SHAPE,), "expr": (1, NUM_EXPR), "rotation": (1, 3), "neck_pose": (1, 3), "jaw_pose": (1, 3),
    "eyes_pose": (1, 6), "translation": (1, 3), "static_offset": (1, "V", 3),
}  # fmt: skip


# -- making the files ---------------------------------------------------------------------------------------


def texture(points, rng):
    """The colour (N, 3) of the head at points of the unit sphere (N, 3)."""
    x, y, z = points.T
    waves = np.sin(points @ rng.normal(0, 6, (3, 8)) + rng.uniform(0, 6.3, 8)).mean(axis=1)
    colours = np.array([0.86, 0.65, 0.54]) * (1 + 0.08 * waves[:, None])

    def paint(where, colour):
        colours[where] = np.array(colour) * (1 + 0.15 * waves[where, None])

    for side in (0.5, -0.5):
        colours[:, 1:] -= 0.1 * bump(points, (side, -0.2, 0.85), 0.25)[:, None]
    front = z > 0
    for eye in (LEFT_EYE, RIGHT_EYE):
        across, up = x - eye[0], y - eye[1]
        paint(front & (abs(up - 0.175 + 1.5 * across**2) < 0.045) & (abs(across) < 0.22), (0.22, 0.14, 0.09))
        paint(front & ((across / 0.2) ** 2 + (up / 0.095) ** 2 < 1), (0.93, 0.93, 0.92))
        paint(front & (np.hypot(across, up) < 0.085), (0.18, 0.42, 0.55))
        paint(front & (np.hypot(across, up) < 0.035), (0.03, 0.03, 0.04))
    across, up = x - MOUTH[0], y - MOUTH[1]
    paint(front & ((across / 0.24) ** 2 + (up / 0.08) ** 2 < 1), (0.72, 0.29, 0.29))
    paint(front & (abs(across) < 0.2) & (abs(up) < 0.018), (0.35, 0.1, 0.1))
    strands = np.sin(40 * np.arctan2(x, z) + 3 * waves)
    hair = y - 0.6 * z > 0.25 + 0.03 * strands
    colours[hair] = np.array([0.26, 0.16, 0.09]) * (1 + 0.3 * strands[hair, None])
    paint(y < -0.88, (0.22, 0.29, 0.42))
    return np.clip(colours, 0, 1)


def places(level):
    """Barycentric coordinates (4 ** level, 3) evenly in a triangle."""
    triangles = np.eye(3)[None]
    for _ in range(level):
        a, b, c = triangles.transpose(1, 0, 2)
        ab, bc, ca = (a + b) / 2, (b + c) / 2, (c + a) / 2
        parts = [(a, ab, ca), (ab, b, bc), (ca, bc, c), (ab, bc, ca)]
        triangles = np.concatenate([np.stack(part, axis=1) for part in parts])
    return torch.from_numpy(triangles.mean(axis=1)).float()


class HiddenHead:
    """What the pictures are taken of: round Gaussians on the faces of a rig, more of them in the face."""

    def __init__(self, rig, rng, device):
        level = 1 if len(rig.faces) < 5000 else 0
        fine = torch.zeros(len(rig.faces), dtype=torch.bool)
        for faces in rig.regions.values():
            fine[faces] = True
        parts = [(where.nonzero()[:, 0], places(deep)) for where, deep in ((~fine, level), (fine, level + 1))]
        face = torch.cat([faces.repeat_interleave(len(spots)) for faces, spots in parts])
        corners = torch.cat([spots.repeat(len(faces), 1) for faces, spots in parts])[..., None]
        counts = torch.where(fine, 4 ** (level + 1), 4**level)
        points = nn.functional.normalize((rig.sphere[rig.faces][face] * corners).sum(1), dim=1)
        colours = torch.from_numpy(texture(points.double().numpy(), rng)).float()
        a, b, c = rig.template[rig.faces].unbind(1)
        area = torch.linalg.cross(b - a, c - a).norm(dim=1) / 2
        size = 0.65 * (area / counts)[face].sqrt()
        self.device = device
        self.triangles, self.corners = rig.faces[face].to(device), corners.to(device)
        self.colours, self.scales = colours.to(device), size[:, None].expand(-1, 3).to(device)

    @torch.no_grad()
    def photograph(self, vertices, views):
        """Straight RGBA (C, H, W, 4) uint8 of the mesh (V, 3)."""
        triangles = vertices.to(self.device)[self.triangles]
        a, b, c = triangles.unbind(1)
        normals = nn.functional.normalize(torch.linalg.cross(b - a, c - a), dim=1)
        shade = 0.55 + 0.45 * (normals @ torch.tensor(LIGHT, device=self.device)).clamp(min=0)
        seen = rasterize(
            (triangles * self.corners).sum(1),
            torch.tensor([1.0, 0, 0, 0], device=self.device).repeat(len(triangles), 1),
            self.scales,
            torch.full((len(triangles),), 0.97, device=self.device),
            (self.colours * shade[:, None]).expand(len(views.world_to_camera), -1, -1),
            views,
            torch.zeros(3, device=self.device),
        )
        both = torch.cat([seen.images / seen.alphas.clamp(min=1e-3), seen.alphas], 1).clamp(0, 1)
        return (255 * both).round().byte().permute(0, 2, 3, 1).cpu().numpy()


def draw_parameters(rng, num_timesteps, rig):
    """Parameters of a head that looks around, speaks and grimaces: name -> (T, ...) float32."""
    time = np.arange(num_timesteps)[:, None]

    def swaying(size):
        size = np.array(size)
        return size * np.sin(time * rng.uniform(0.05, 0.35, size.shape) + rng.uniform(0, 6.3, size.shape))

    eyes = swaying([0.12, 0.2, 0])
    fading = np.exp(-np.arange(NUM_EXPR) / 15)
    drawn = {
        "shape": rng.normal(0, 1, NUM_SHAPE) * np.exp(-np.arange(NUM_SHAPE) / 30),
        "expr": swaying(1.2 * fading),
        "rotation": swaying([0.12, 0.25, 0.06]),
        "neck_pose": swaying([0.06, 0.08, 0.04]),
        "jaw_pose": abs(swaying([0.3, 0, 0])),
        "eyes_pose": np.concatenate([eyes, eyes], axis=1),
        "translation": swaying([0.006, 0.004, 0.01]),
        "static_offset": rng.normal(0, 0.0003, (1, rig.n_vertices, 3)),
    }
    return {name: array.astype(np.float32) for name, array in drawn.items()}


def arrange_cameras(num_cameras):
    """Cameras to world (C + 1, 4, 4), OpenGL: an arc in front of the head; the last one is for validation."""
    yaws = [*np.linspace(-1.1, 1.1, num_cameras), 0.0 if num_cameras % 2 == 0 else 0.3]
    pitches = [0.22 * (-1) ** camera for camera in range(num_cameras)] + [0.05]
    poses = [np.linalg.inv(orbit(yaw, pitch, DISTANCE)) for yaw, pitch in zip(yaws, pitches, strict=True)]
    return np.stack(poses) @ np.diag([1.0, -1, -1, 1])


class FrameWriter:
    """Enlarges pictures, lays grain over them as a sensor does, and writes PNG files."""

    def __init__(self, rng, size):
        self.size = size
        self.grain = rng.normal(0, 1.5, (size[0] * 2, size[1] * 2, 3)).round().astype(np.int16)

    def write(self, path, picture, number):
        """Write (h, w, 4) uint8; ``number`` picks the piece of the grain."""
        height, width = self.size
        large = np.array(Image.fromarray(picture).resize((width, height), Image.Resampling.BICUBIC))
        top, left = number * 37 % height, number * 61 % width
        grain = self.grain[top : top + height, left : left + width]
        large[..., :3] = np.clip(large[..., :3] + grain, 0, 255)
        large[large[..., 3] == 0] = 0
        Image.fromarray(large).save(path, compress_level=1)


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


def make_data(folder=None, scale="cpu", seed=0):
    """Write the frames of a scale once and return their folder; a finished folder is used again."""
    folder = Path(folder) if folder else Path(__file__).parent / "data" / f"{scale}-seed{seed}"
    if (folder / "canonical_flame_param.npz").exists():
        return folder
    if folder.exists() and any(folder.iterdir()):
        raise DataError(f"{folder} has no canonical_flame_param.npz and is not empty: name another folder")
    num_cameras, num_timesteps, size, num_vertices, smaller = SCALES[scale]
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
    focal = width / 2 / math.tan(angle / 2)
    camera = note["camera_index"] if "camera_index" in note else note["camera_id"]
    return Frame(
        path=path,
        timestep=int(note["timestep_index"]),
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


def read_parameters(path, num_vertices):
    """One parameter file: name -> float32 array, as PARAMETERS says."""
    arrays = read_npz(path, PARAMETERS)
    for name, shape in PARAMETERS.items():
        expected = tuple(num_vertices if size == "V" else size for size in shape)
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
