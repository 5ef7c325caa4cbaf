"""A head that moves: a triangle mesh with 300 shape and 100 expression directions and five joints.

The parameters are those of FLAME (shape, expr, rotation, neck_pose, jaw_pose, eyes_pose, translation,
static_offset); the head is none: a sphere of evenly spread vertices, pulled into the form of a head, whose
directions are random smooth fields. Metres; x to the head's left, y up, z out of its face.
"""

import os
import zipfile
import zlib
from pathlib import Path
from typing import ClassVar

import numpy as np
import torch
from scipy.spatial import ConvexHull
from torch import nn

NUM_SHAPE, NUM_EXPR, RANK = 300, 100, 20
JOINTS = ("root", "neck", "jaw", "left_eye", "right_eye")
PARENTS = (-1, 0, 1, 1, 1)
#: Where the joints are in the head at rest.
EYE = np.array([0.03, 0.017, 0.065])
ANCHORS = np.array([(0, -0.12, -0.03), (0, -0.08, -0.02), (0, -0.02, 0.02), EYE, EYE * [-1, 1, 1]])

#: On the sphere: what is where, seen from its middle, and how far around it goes.
LEFT_EYE, RIGHT_EYE = (0.38, 0.15, 0.91), (-0.38, 0.15, 0.91)
MOUTH, NOSE = (0, -0.47, 0.88), (0, -0.12, 0.99)
REGIONS = {"eyes": ((LEFT_EYE, RIGHT_EYE), 0.2), "mouth": ((MOUTH,), 0.28), "nose": ((NOSE,), 0.2)}


class DataError(ValueError):
    """The data cannot be what it should be; the message names the file."""


def spread(num_vertices):
    """Evenly spread points on the unit sphere (V, 3) and the 2 V - 4 triangles between them, outward."""
    height = 1 - (2 * np.arange(num_vertices) + 1) / num_vertices
    turn = np.pi * (3 - np.sqrt(5)) * np.arange(num_vertices)
    ring = np.sqrt(1 - height**2)
    points = np.stack([ring * np.cos(turn), height, ring * np.sin(turn)], axis=1)
    faces = ConvexHull(points).simplices.astype(np.int64)
    a, b, c = points[faces].transpose(1, 0, 2)
    inward = (np.cross(b - a, c - a) * a).sum(axis=1) < 0
    faces[inward] = faces[inward, ::-1]
    return points, faces[np.lexsort(faces.T)]


def bump(sphere, centre, width):
    return np.exp(-((np.linalg.norm(sphere - np.array(centre), axis=1) / width) ** 2))


def head(sphere):
    """The sphere's points (V, 3) in the form of a head, in metres."""
    x, y, z = sphere.T
    below = np.maximum(0, -y)
    front = np.maximum(0, z)
    form = np.stack([0.076 * x * (1 - 0.18 * below**2), 0.118 * y, 0.096 * z * (1 - 0.1 * below)], axis=1)
    form[:, 2] += 0.022 * bump(sphere, NOSE, 0.2) + 0.012 * bump(sphere, (0, -0.85, 0.5), 0.3)
    for eye in (LEFT_EYE, RIGHT_EYE):
        form[:, 2] -= 0.006 * bump(sphere, eye, 0.2)
    form[:, 2] += 0.005 * bump(sphere, MOUTH, 0.18) * front
    return form


def smooth_fields(rng, sphere, num_fields, size):
    """Random smooth fields on the sphere: (V, 3, num_fields), each about ``size`` metres."""
    waves = rng.normal(0, 1.5, (3, num_fields))
    values = np.sin(sphere @ waves + rng.uniform(0, 2 * np.pi, num_fields))
    return values[:, None] * rng.normal(0, size, (3, num_fields))


def mixture(rng, num_directions):
    """How each direction is made of the fields, later ones with less effect: (RANK, num_directions)."""
    fading = 1 / (1 + np.arange(num_directions) / 10)
    return rng.normal(0, 1, (RANK, num_directions)) * fading / np.sqrt(RANK)


def joint_weights(sphere):
    """How much each joint carries each vertex: (V, 5), rows of sum 1."""

    def rising(value):
        return 1 / (1 + np.exp(-value))

    _, y, z = sphere.T
    eyes = [0.9 * bump(sphere, eye, 0.16) for eye in (LEFT_EYE, RIGHT_EYE)]
    rest = 1 - eyes[0] - eyes[1]
    jaw = rest * rising((-0.48 - y) / 0.04) * rising((z - 0.05) / 0.1)
    neck = (rest - jaw) * rising((y + 0.8) / 0.06)
    return np.stack([rest - jaw - neck, neck, jaw, *eyes], axis=1)


def region_faces(sphere, faces):
    """Faces of each region by name; on a coarse mesh at least the four nearest of each middle."""
    middles = sphere[faces].mean(axis=1)
    found = {}
    for name, (centres, radius) in REGIONS.items():
        inside = np.zeros(len(faces), bool)
        for centre in centres:
            distance = np.linalg.norm(middles - np.array(centre), axis=1)
            inside |= distance < max(radius, np.partition(distance, 4)[4])
        found[name] = np.flatnonzero(inside)
    return found


def rotations(axis_angle):
    """Axis times angle (..., 3) as rotation matrices (..., 3, 3), by Rodrigues' formula."""
    angle = axis_angle.norm(dim=-1, keepdim=True)[..., None]
    zero = torch.zeros_like(axis_angle[..., 0])
    x, y, z = axis_angle.unbind(-1)
    cross = torch.stack([zero, -z, y, z, zero, -x, -y, x, zero], -1).unflatten(-1, (3, 3))
    # sinc and its kin are smooth at 0, where an axis is none.
    first = torch.sinc(angle / torch.pi)
    second = 0.5 * torch.sinc(angle / (2 * torch.pi)) ** 2
    return torch.eye(3, device=axis_angle.device) + first * cross + second * (cross @ cross)


class Rig(nn.Module):
    """The mesh and what moves it; ``regions`` holds the face indices of eyes, mouth and nose."""

    #: Array -> its shape; V vertices, F faces, S and E fields that directions are mixed of.
    ARRAYS: ClassVar = {
        "sphere": ("V", 3), "template": ("V", 3), "faces": ("F", 3), "shape_fields": ("V", 3, "S"),
        "shape_mixture": ("S", NUM_SHAPE), "expr_fields": ("V", 3, "E"), "expr_mixture": ("E", NUM_EXPR),
        "weights": ("V", 5), "regressor": (5, "V"), "joint_offsets": (5, 3),
    }  # fmt: skip

    def __init__(self, arrays, regions):
        super().__init__()
        for name in self.ARRAYS:
            array = torch.as_tensor(arrays[name])
            self.register_buffer(name, array.long() if name == "faces" else array.float())
        self.regions = {name: torch.as_tensor(index).long() for name, index in regions.items()}

    @classmethod
    def make(cls, num_vertices, seed=0):
        """A head of its own for each seed; it has 2 V - 4 faces."""
        rng = np.random.default_rng([seed, 1])
        sphere, faces = spread(num_vertices)
        template = head(sphere)
        # Expressions move the face, the mouth most.
        mask = bump(sphere, (0, -0.2, 1), 0.7) + bump(sphere, MOUTH, 0.3)
        distance = np.linalg.norm(template[None] - ANCHORS[:, None], axis=2)
        nearness = np.exp(-((distance / 0.04) ** 2) + (distance.min(axis=1, keepdims=True) / 0.04) ** 2)
        regressor = nearness / nearness.sum(axis=1, keepdims=True)
        arrays = {
            "sphere": sphere,
            "template": template,
            "faces": faces,
            "shape_fields": smooth_fields(rng, sphere, RANK, 0.0015),
            "shape_mixture": mixture(rng, NUM_SHAPE),
            "expr_fields": smooth_fields(rng, sphere, RANK, 0.0015) * mask[:, None, None],
            "expr_mixture": mixture(rng, NUM_EXPR),
            "weights": joint_weights(sphere),
            "regressor": regressor,
            "joint_offsets": ANCHORS - regressor @ template,
        }
        return cls(arrays, region_faces(sphere, faces))

    @property
    def n_vertices(self):
        return len(self.template)

    def vertices(
        self, shape, expr, rotation, neck_pose, jaw_pose, eyes_pose, translation, static_offset=None
    ):
        """The mesh at T timesteps, (T, V, 3): shape (300,), expr (T, 100), poses (T, 3), eyes (T, 6)."""
        still = self.template + self.shape_fields @ (self.shape_mixture @ shape)
        if static_offset is not None:
            if static_offset.shape[-2] != self.n_vertices:
                raise DataError(
                    f"static_offset is for {static_offset.shape[-2]} vertices: the rig has {self.n_vertices}"
                )
            still = still + static_offset.reshape(-1, 3)
        moved = still + (expr @ self.expr_mixture.T @ self.expr_fields.flatten(0, 1).T).unflatten(1, (-1, 3))
        joints = self.regressor @ moved + self.joint_offsets
        turns = rotations(
            torch.stack([rotation, neck_pose, jaw_pose, eyes_pose[:, :3], eyes_pose[:, 3:]], dim=1)
        )
        arms = torch.cat([joints[:, :1], joints[:, 1:] - joints[:, PARENTS[1:]]], 1)
        last_row = arms.new_tensor([[0, 0, 0, 1]]).expand(len(arms), len(JOINTS), 1, 4)
        moves = torch.cat([torch.cat([turns, arms[..., None]], 3), last_row], 2)
        root, neck, ends = moves.split((1, 1, 3), 1)  # the neck carries jaw and eyes
        neck = root @ neck
        placed = torch.cat([root, neck, neck @ ends], 1)[:, :, :3]
        turned = placed[..., :3]
        shifts = placed[..., 3:] - turned @ joints[..., None]
        carriers = (self.weights @ torch.cat([turned, shifts], -1).flatten(2)).unflatten(2, (3, 4))
        carried = (carriers[..., :3] * moved[:, :, None]).sum(-1) + carriers[..., 3]
        return carried + translation[:, None]

    def save(self, path):
        """Write the rig as one .npz, whole or not at all."""
        partial = Path(f"{path}.{os.getpid()}.partial")
        arrays = {name: getattr(self, name).cpu().numpy() for name in self.ARRAYS}
        with partial.open("wb") as file:
            np.savez(file, **arrays, **{f"region_{name}": i.numpy() for name, i in self.regions.items()})
        partial.replace(path)

    @classmethod
    def load(cls, path):
        """Read what ``save`` wrote."""
        if not Path(path).exists():
            raise DataError(f"{path} is missing: the mesh that the parameters move, as Rig.save writes it")
        arrays = read_npz(path, (*cls.ARRAYS, *(f"region_{name}" for name in REGIONS)))
        check_rig(path, arrays, cls.ARRAYS)
        return cls(arrays, {name: arrays[f"region_{name}"] for name in REGIONS})


def check_rig(path, arrays, shapes):
    """Raise DataError for arrays of a rig that do not fit together, or are no numbers."""
    sizes = {}
    for name, shape in shapes.items():
        array = arrays[name]
        sides = zip(shape, array.shape, strict=False)
        known = [sizes.setdefault(side, number) if isinstance(side, str) else side for side, number in sides]
        if array.ndim != len(shape) or tuple(known) != array.shape:
            raise DataError(f"{path}: {name} has shape {array.shape}: expected {shape} with {sizes}")
    for name, array in arrays.items():
        if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
            raise DataError(f"{path}: {name} holds other than finite numbers")
        last = sizes["V"] if name == "faces" else sizes["F"] if name.startswith("region_") else None
        if last and array.size and not 0 <= array.min() <= array.max() < last:
            raise DataError(
                f"{path}: {name} has numbers from {array.min()} to {array.max()}: there are {last}"
            )


def read_npz(path, names):
    """The named arrays of an .npz file."""
    try:
        with Path(path).open("rb") as opened, np.load(opened, allow_pickle=False) as file:
            missing = [name for name in names if name not in file]
            arrays = {} if missing else {name: file[name] for name in names}
    except FileNotFoundError:
        raise DataError(f"{path} is missing") from None
    except (ValueError, TypeError, OSError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise DataError(f"{path} is truncated or no .npz file: {error}") from None
    if missing:
        raise DataError(f"{path} has no {missing[0]}")
    return arrays
