"""Gaussians in space to pictures: EWA projection, then alpha compositing front to back.

Cameras are OpenCV's (x right, y down, z forward); pixel (row i, column j) is centred at (j + 0.5, i + 0.5).
Formulas: Zwicker et al. 2001 (EWA splatting), Kerbl et al. 2023 (3D Gaussian Splatting).
"""

from contextlib import suppress
from dataclasses import dataclass

import torch

import tiles
from projection import LOW_PASS, MARGIN, NEAR, project


@dataclass(frozen=True, kw_only=True)
class Views:
    """Cameras that see the same scene: matrices (C, 4, 4), intrinsics (C, 3, 3) and one picture size."""

    world_to_camera: torch.Tensor
    intrinsics: torch.Tensor
    height: int
    width: int

    @property
    def centres(self):
        """Where the cameras are in the world, (C, 3)."""
        rotations, translations = self.world_to_camera[:, :3, :3], self.world_to_camera[:, :3, 3:]
        return -(rotations.transpose(1, 2) @ translations).squeeze(2)


@dataclass(frozen=True, kw_only=True)
class Rendered:
    """Pictures (C, 3, H, W), alphas (C, 1, H, W); in pixels means (C, N, 2) and radii (C, N), 0: not seen.

    ``means2d`` is in the graph: after ``retain_grad()`` it has the gradients on the screen.
    """

    images: torch.Tensor
    alphas: torch.Tensor
    means2d: torch.Tensor
    radii: torch.Tensor


def best_backend(device):
    """gsplat on an NVIDIA GPU if it is installed and its kernels can be had, else torch."""
    if device.type == "cuda":
        with suppress(ImportError, OSError, RuntimeError):  # not installed, or its kernels do not compile
            from gsplat.cuda._backend import _C  # None without a compiler and without built kernels

            return "torch" if _C is None else "gsplat"
    return "torch"


def rasterize(means, quaternions, scales, opacities, colors, views, background, *, backend="torch"):
    """Draw Gaussians on ``background`` (3,): nearest first, alphas below 1/255 none, above 0.99 capped.

    Means (N, 3), quaternions (N, 4) as w, x, y, z of any length, scales (N, 3) and opacities (N,) as such (no
    logarithm, no logit), colours (C, N, 3). ``backend``: "torch" (tiles, any device), "reference" (every
    Gaussian at every pixel, slow), "gsplat" (its CUDA kernels). In float32, under autocast too, or float64.
    Raises ValueError for shapes that do not fit or an unknown backend, RuntimeError where gsplat cannot run.
    """
    if backend not in BACKENDS:
        raise ValueError(f"backend={backend!r} is none of {', '.join(BACKENDS)}")
    given = {"means": means, "quaternions": quaternions, "scales": scales, "opacities": opacities}
    cameras, number = len(views.world_to_camera), len(means)
    shapes = {"means": (3,), "quaternions": (4,), "scales": (3,), "opacities": ()}
    expected = {name: (number, *shape) for name, shape in shapes.items()}
    given, expected = given | {"colors": colors}, expected | {"colors": (cameras, number, 3)}
    for name, value in given.items():
        if tuple(value.shape) != expected[name]:
            raise ValueError(f"{name} has shape {tuple(value.shape)}, not {expected[name]}")
    dtype = torch.float64 if means.dtype == torch.float64 else torch.float32
    with torch.autocast(means.device.type, enabled=False):
        values = [value.to(dtype) for value in given.values()]
        return BACKENDS[backend](*values, views, background.to(dtype))


def _torch(means, quaternions, scales, opacities, colors, views, background):
    means2d, conics, reach, depths = project(means, quaternions, scales, opacities, views)
    lists = tiles.make_lists(means2d, reach, depths, views.height, views.width)
    drawn, left = tiles.Draw.apply(means2d, conics, opacities, colors, lists, (views.height, views.width))
    radii = torch.where(lists.listed, reach.amax(1), 0).ceil().int()
    return Rendered(
        images=drawn + left * background[:, None, None],
        alphas=1 - left,
        means2d=means2d,
        radii=radii,
    )


def _gsplat(means, quaternions, scales, opacities, colors, views, background):
    """gsplat's kernels (1.x). Not yet run on a GPU."""
    if means.device.type != "cuda":
        raise RuntimeError(
            f"backend='gsplat' draws on an NVIDIA GPU, these Gaussians are on {means.device}: move them to "
            "'cuda', or take backend='torch'"
        )
    try:
        from gsplat import rasterization
    except ImportError as error:
        raise RuntimeError(
            f"backend='gsplat' needs the package gsplat ({error}): pip install gsplat, or backend='torch'"
        ) from error
    images, alphas, found = rasterization(
        means, quaternions, scales, opacities, colors, views.world_to_camera.to(means),
        views.intrinsics.to(means), views.width, views.height, near_plane=NEAR, eps2d=LOW_PASS, packed=False,
        backgrounds=background.expand(len(colors), 3),
    )  # fmt: skip
    radii = found["radii"]  # (C, N), from 1.5 on (C, N, 2)
    return Rendered(
        images=images.movedim(3, 1),
        alphas=alphas.movedim(3, 1),
        means2d=found["means2d"],
        radii=radii.amax(2) if radii.dim() == 3 else radii,
    )


def _reference(means, quaternions, scales, opacities, colors, views, background):
    """Every Gaussian at every pixel, formula by formula: what the others are checked against."""
    poses, lenses = views.world_to_camera.to(means), views.intrinsics.to(means)
    covariances = _covariances(quaternions, scales)
    size = (views.width, views.height)
    seen = [_seen(means, covariances, *at, size) for at in zip(poses, lenses, strict=True)]
    means2d = torch.stack([mean for mean, _, _ in seen])
    column, row = (torch.arange(edge).to(means) + 0.5 for edge in size)
    pixels = torch.stack(torch.meshgrid(column, row, indexing="xy"), 2).reshape(-1, 2)
    images, alphas, radii = [], [], []
    for mean, (_, covariance, depth), color in zip(means2d, seen, colors, strict=True):
        offset = pixels - mean[:, None]
        distance = torch.einsum("npi,nij,npj->np", offset, torch.linalg.inv(covariance), offset)
        alpha = (opacities[:, None] * (-distance / 2).exp()).clamp(max=tiles.ALPHA_MAX)
        alpha = torch.where((alpha > tiles.ALPHA_MIN) & (depth > NEAR)[:, None], alpha, 0)
        order = depth.float().argsort(stable=True)
        left = torch.cat([alpha.new_ones(1, len(pixels)), (1 - alpha[order]).cumprod(0)])
        picture = (alpha[order] * left[:-1]).T @ color[order] + left[-1][:, None] * background
        images.append(picture.T.reshape(3, *size[::-1]))
        alphas.append((1 - left[-1]).reshape(1, *size[::-1]))
        variance = covariance.detach().diagonal(dim1=1, dim2=2).amax(1)
        level = (opacities.detach() / tiles.ALPHA_MIN).clamp_min(1).log()
        radii.append(torch.where((alpha > 0).any(1), (2 * level * variance).sqrt().ceil(), 0).int())
    return Rendered(
        images=torch.stack(images), alphas=torch.stack(alphas), means2d=means2d, radii=torch.stack(radii)
    )


def _covariances(quaternions, scales):
    """(N, 3, 3)."""
    w, x, y, z = (quaternions / quaternions.norm(dim=1, keepdim=True)).unbind(1)
    rows = [
        [1 - 2 * (y * y + z * z), 2 * (x * y - w * z), 2 * (x * z + w * y)],
        [2 * (x * y + w * z), 1 - 2 * (x * x + z * z), 2 * (y * z - w * x)],
        [2 * (x * z - w * y), 2 * (y * z + w * x), 1 - 2 * (x * x + y * y)],
    ]
    turned = torch.stack([torch.stack(row, 1) for row in rows], 1)
    return turned @ torch.diag_embed(scales**2) @ turned.transpose(1, 2)


def _seen(means, covariances, pose, lens, size):
    """Means (N, 2), covariances (N, 2, 2) and depths (N,) for one camera."""
    points = means @ pose[:3, :3].T + pose[:3, 3]
    depth = torch.where(points[:, 2] > NEAR, points[:, 2], 1.0)
    mean, rows = [], []
    for axis in (0, 1):
        focal, middle, slope = lens[axis, axis], lens[axis, 2], points[:, axis] / depth
        mean.append(focal * slope + middle)
        margin = MARGIN * size[axis]
        slope = slope.clamp(-(middle + margin) / focal, (size[axis] - middle + margin) / focal)
        row = [torch.zeros_like(depth), torch.zeros_like(depth), -focal * slope / depth]
        row[axis] = focal / depth
        rows.append(torch.stack(row, 1))
    linear = torch.stack(rows, 1) @ pose[:3, :3]
    covariance = linear @ covariances @ linear.transpose(1, 2) + LOW_PASS * torch.eye(2).to(means)
    return torch.stack(mean, 1), covariance, points[:, 2]


BACKENDS = {"torch": _torch, "gsplat": _gsplat, "reference": _reference}
