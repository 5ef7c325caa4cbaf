"""What the synthetic cameras see: a head with a skin, eyes, lips and hair, and how it moves."""

import numpy as np
import torch
from PIL import Image
from torch import nn

from network_gui import VIEW, orbit
from raster import rasterize
from rig import LEFT_EYE, MOUTH, NUM_EXPR, NUM_SHAPE, RIGHT_EYE, bump

#: Where the light comes from.
LIGHT = (0.35, 0.5, 0.79)


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
    reach = min(1.1, 0.25 * num_cameras)  # few cameras stay near enough to see the same
    yaws = [*np.linspace(-reach, reach, num_cameras), 0.0 if num_cameras % 2 == 0 else 0.3]
    pitches = [0.22 * (-1) ** camera for camera in range(num_cameras)] + [0.05]
    poses = [
        np.linalg.inv(orbit(yaw, pitch, VIEW["distance"])) for yaw, pitch in zip(yaws, pitches, strict=True)
    ]
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
