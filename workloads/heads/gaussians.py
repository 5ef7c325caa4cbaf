"""Gaussians on the triangles of a mesh: they move, turn and grow with them, are split and pruned.

As in GaussianAvatars (Qian et al. 2024), position, rotation and size are those in the frame of a face.
"""

import math

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

import rotation
from ply import read_vertices, write_vertices
from sh import spherical_harmonics

#: Colours have (degree + 1)² coefficients; the first one alone makes 0.5 + SH_0 * coefficient.
MAX_DEGREE, SH_0 = 3, 0.5 / math.sqrt(math.pi)
#: What a face begins with, and what is left of opacity after a reset (Kerbl et al. 2023).
FIRST_OPACITY, RESET_OPACITY = 0.1, 0.01
#: Larger than this part of the scene's extent: split; smaller: cloned. Larger than the second: pruned.
DENSE_PART, LARGEST_PART = 0.01, 0.1
#: A split Gaussian's two parts are smaller by this.
SHRINK = 1.6
PARAMETERS = ("xyz", "features_dc", "features_rest", "scaling", "rotation", "opacity")
PLY_NAMES = [
    *("x", "y", "z", "nx", "ny", "nz"),
    *(f"f_dc_{i}" for i in range(3)),
    *(f"f_rest_{i}" for i in range(45)),
    *("opacity", *(f"scale_{i}" for i in range(3)), *(f"rot_{i}" for i in range(4))),
]


class Gaussians(nn.Module):
    """N Gaussians, each on a face.

    xyz (N, 3), features_dc (N, 1, 3), features_rest (N, 15, 3), scaling (N, 3) as logarithms, rotation (N, 4)
    as w, x, y, z of any length, opacity (N, 1) as logits. ``binding`` (N,) is each one's face; None: they are
    in the world itself. ``densify_and_prune`` decides by ``gradient_sum`` and ``seen_count`` (N,).
    """

    def __init__(self, *, binding=None, sh_degree=MAX_DEGREE, **parameters):
        super().__init__()
        for name in PARAMETERS:
            self.register_parameter(name, nn.Parameter(parameters[name]))
        self.register_buffer("binding", binding)
        self.register_buffer("gradient_sum", self.xyz.new_zeros(len(self.xyz)))
        self.register_buffer("seen_count", self.xyz.new_zeros(len(self.xyz)))
        self.sh_degree = sh_degree
        self._face_sizes = None

    @classmethod
    def one_per_face(cls, faces, sh_degree=0):
        """A grey one in the middle of each face (F, 3), as large as it."""
        number = len(faces)
        new = {"device": faces.device}
        return cls(
            binding=torch.arange(number, **new),
            sh_degree=sh_degree,
            xyz=torch.zeros(number, 3, **new),
            features_dc=torch.zeros(number, 1, 3, **new),
            features_rest=torch.zeros(number, 15, 3, **new),
            scaling=torch.zeros(number, 3, **new),
            rotation=torch.tensor([1.0, 0, 0, 0], **new).repeat(number, 1),
            opacity=torch.full((number, 1), _logit(FIRST_OPACITY), **new),
        )

    def bound(self, vertices, faces):
        """Means (N, 3), quaternions (N, 4) and scales (N, 3) in the world of a mesh (V, 3), (F, 3)."""
        if self.binding is None:
            return self.xyz, self.rotation, self.scaling.exp()
        frames, sizes, centres = face_frames(vertices, faces)
        self._face_sizes = sizes.detach()
        turns = rotation.from_matrix(frames)[self.binding]
        frames, sizes, centres = frames[self.binding], sizes[self.binding][:, None], centres[self.binding]
        means = (frames @ self.xyz[..., None]).squeeze(-1) * sizes + centres
        turned = rotation.multiply(turns, functional.normalize(self.rotation, dim=1))
        return means, turned, self.scaling.exp() * sizes

    def colors(self, centres, means):
        """Colours (C, N, 3), not negative, of means (N, 3) seen from camera centres (C, 3)."""
        count = (self.sh_degree + 1) ** 2 - 1
        colors = SH_0 * self.features_dc[:, 0] + 0.5
        if count == 0:
            return colors.clamp_min(0).expand(len(centres), -1, -1)
        directions = functional.normalize(means - centres[:, None], dim=2)
        harmonics = spherical_harmonics(directions, self.sh_degree).transpose(0, 1)
        turned = harmonics @ self.features_rest[:, :count]
        return (turned.transpose(0, 1) + colors).clamp_min(0)

    def opacities(self):
        """(N,) from 0 to 1."""
        return self.opacity[:, 0].sigmoid()

    def raise_degree(self):
        """Let colours depend on direction by one degree more, at most three."""
        self.sh_degree = min(MAX_DEGREE, self.sh_degree + 1)

    @torch.no_grad()
    def add_statistics(self, screen_gradient, radii):
        """Count gradients (C, N, 2) of those that were seen: radii (C, N) above 0."""
        seen = radii > 0
        self.gradient_sum += torch.where(seen, screen_gradient.norm(dim=2), 0).sum(0)
        self.seen_count += seen.sum(0)

    def all_reduce_statistics(self):
        """Add up the statistics of all ranks, so that all of them decide alike."""
        dist.all_reduce(self.gradient_sum)
        dist.all_reduce(self.seen_count)

    @torch.no_grad()
    def reset_opacity(self, optimizer):
        """Make all nearly transparent, and the optimizer forget how opacity moved."""
        self.opacity.clamp_(max=_logit(RESET_OPACITY))
        for value in optimizer.state.get(self.opacity, {}).values():
            if torch.is_tensor(value) and value.shape == self.opacity.shape:
                value.zero_()

    @torch.no_grad()
    def densify_and_prune(self, optimizer, grad_threshold, min_opacity, extent, weights=None):
        """Clone small and split large Gaussians with large screen gradients; prune faint and huge ones.

        ``extent`` is the scene's size; ``weights`` (F,) divide the threshold face by face. A face that would
        lose all keeps its most opaque one. The optimizer's state of new ones is zero, that of others is kept.
        Raises RuntimeError before the first ``bound``, which tells how large the faces are.
        """
        sizes = self._world_sizes()
        threshold = grad_threshold if weights is None else grad_threshold / weights[self.binding]
        chosen = self.gradient_sum / self.seen_count.clamp_min(1) >= threshold
        large = sizes > DENSE_PART * extent
        clones, split = (chosen & ~large).nonzero()[:, 0], (chosen & large).nonzero()[:, 0]
        source = torch.cat([clones, split, split])
        grown = {name: getattr(self, name)[source] for name in PARAMETERS}
        halves = slice(len(clones), None)
        grown["xyz"][halves] += self._drawn(source[halves])
        grown["scaling"][halves] -= math.log(SHRINK)

        leave = torch.zeros(len(self.xyz), dtype=torch.bool, device=self.xyz.device)
        leave[split] = True
        old_sizes = torch.cat([sizes, sizes[source]])
        old_sizes[len(sizes) + len(clones) :] /= SHRINK
        opacity = torch.cat([self.opacity, grown["opacity"]])[:, 0]
        leave = torch.cat([leave, leave.new_zeros(len(source))])
        leave |= (opacity.sigmoid() < min_opacity) | (old_sizes > LARGEST_PART * extent)
        origin = torch.cat([torch.arange(len(sizes), device=source.device), source])
        if self.binding is not None:
            leave &= ~_last_of_face(self.binding[origin], leave, opacity)
        self._replace(optimizer, grown, ~leave, origin)

    def _world_sizes(self):
        sizes = self.scaling.exp().amax(1)
        if self.binding is None:
            return sizes
        if self._face_sizes is None:
            raise RuntimeError("densify_and_prune before bound(): the faces' sizes are not known yet")
        return sizes * self._face_sizes[self.binding]

    def _drawn(self, which):
        """A place (K, 3) drawn from each of these Gaussians, from its centre."""
        drawn = torch.randn_like(self.xyz[which]) * self.scaling[which].exp()
        return (rotation.to_matrix(self.rotation[which]) @ drawn[..., None]).squeeze(-1)

    def _replace(self, optimizer, grown, stay, origin):
        """Parameters, buffers and optimizer state of those that stay, of the old ones and the grown."""
        for name in PARAMETERS:
            old = getattr(self, name)
            new = nn.Parameter(torch.cat([old, grown[name]])[stay])
            state = optimizer.state.pop(old, {})
            for key, value in state.items():
                if torch.is_tensor(value) and value.shape == old.shape:
                    state[key] = torch.cat([value, torch.zeros_like(grown[name])])[stay]
            for group in optimizer.param_groups:
                group["params"] = [new if value is old else value for value in group["params"]]
            if state:
                optimizer.state[new] = state
            setattr(self, name, new)
        if self.binding is not None:
            self.binding = self.binding[origin][stay]
        self.gradient_sum = self.xyz.new_zeros(len(self.xyz))
        self.seen_count = torch.zeros_like(self.gradient_sum)


def face_frames(vertices, faces):
    """Frames (F, 3, 3), sizes (F,) and centres (F, 3) of triangles.

    Axes are along the first edge, along the normal, and across both.

    The size is the mean of the first edge's length and the triangle's height over it.
    """
    first, second, third = vertices[faces].unbind(-2)
    edge, side = second - first, third - first
    along = functional.normalize(edge, dim=-1)
    normal = functional.normalize(torch.linalg.cross(along, side), dim=-1)
    across = torch.linalg.cross(along, normal)
    size = (edge.norm(dim=-1) + (across * side).sum(-1).abs()) / 2
    return torch.stack([along, normal, across], -1), size, (first + second + third) / 3


@torch.no_grad()
def save_ply(path, gaussians, mesh=None):
    """Write Gaussians as viewers of 3D Gaussian Splatting read them, and ``binding_0`` if they are on a mesh.

    ``mesh`` (vertices, faces): where they are in the world on it, without ``binding_0``, for any viewer.
    """
    xyz, turns, scaling, binding = gaussians.xyz, gaussians.rotation, gaussians.scaling, gaussians.binding
    if mesh is not None:
        xyz, turns, scales = gaussians.bound(*mesh)
        scaling, binding = scales.log(), None
    by_channel = [gaussians.features_dc.transpose(1, 2), gaussians.features_rest.transpose(1, 2)]
    columns = [xyz, torch.zeros_like(xyz), *(part.flatten(1) for part in by_channel)]
    columns += [gaussians.opacity, scaling, turns]
    names = PLY_NAMES
    if binding is not None:
        columns, names = [*columns, binding[:, None].float()], [*names, "binding_0"]
    write_vertices(path, names, torch.cat(columns, 1).cpu().numpy())


def load_ply(path):
    """Gaussians of a file that ``save_ply`` or another program wrote, of degree 3, on the CPU.

    Raises ValueError with the file's name for a file that is not that, OSError for one that cannot be read.
    """
    values = read_vertices(path)
    missing = [name for name in PLY_NAMES if name not in values and not name.startswith("n")]
    if missing:
        few = ", ".join(missing[:4]) + (f" and {len(missing) - 4} more" if len(missing) > 4 else "")
        raise ValueError(f"{path}: no Gaussians with colours of degree 3: no property {few}")

    for name in PLY_NAMES:
        off = np.flatnonzero(~np.isfinite(values[name])) if name in values else ()
        if len(off):
            raise ValueError(
                f"{path}: {name} of Gaussian {off[0]} is {values[name][off[0]]}: {len(off):,} of "
                f"{len(values[name]):,} are no finite numbers"
            )

    def columns(first, last):
        names = PLY_NAMES[PLY_NAMES.index(first) : PLY_NAMES.index(last) + 1]
        return torch.from_numpy(np.stack([values[name].astype(np.float32) for name in names], 1))

    binding = None
    if "binding_0" in values:
        binding = torch.from_numpy(values["binding_0"].astype(np.int64))
        if (values["binding_0"] != binding.numpy()).any() or (binding < 0).any():
            raise ValueError(f"{path}: binding_0 has values that are no face's number")
    return Gaussians(
        binding=binding,
        xyz=columns("x", "z"),
        features_dc=columns("f_dc_0", "f_dc_2")[:, None],
        features_rest=columns("f_rest_0", "f_rest_44").unflatten(1, (3, 15)).transpose(1, 2).contiguous(),
        scaling=columns("scale_0", "scale_2"),
        rotation=columns("rot_0", "rot_3"),
        opacity=columns("opacity", "opacity"),
    )


def _last_of_face(faces, leave, opacity):
    """Which are the most opaque of a face that all of its Gaussians would leave."""
    count = int(faces.max()) + 1 if len(faces) else 0
    stays = torch.zeros(count, device=faces.device).index_add_(0, faces, (~leave).float())
    best = torch.full((count,), -torch.inf, device=faces.device).scatter_reduce_(0, faces, opacity, "amax")
    return (stays[faces] == 0) & (opacity == best[faces])


def _logit(value):
    return math.log(value / (1 - value))
