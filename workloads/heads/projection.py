"""Gaussians in space to Gaussians on the screen (EWA splatting, Zwicker et al. 2001), and gradients back.

Gaussians are the last dimension here: what is done for two axes or three is one operation.
"""

import torch
from torch.autograd import Function
from torch.autograd.function import once_differentiable

import rotation
from tiles import ALPHA_MIN

#: Nothing nearer than this is drawn; variance added to both screen axes, in pixels squared.
NEAR, LOW_PASS = 0.01, 0.3
#: Linearized no farther outside the picture than this part of its size, where it would explode.
MARGIN = 0.15


class Project(Function):
    """Means (N, 3), quaternions (N, 4), scales (N, 3) to means on the screen (C, N, 2) and conics (C, 3, N).

    Returns also what has no gradient: variances in x and y (C, 2, N) and depths (C, N). Cameras get none.
    """

    @staticmethod
    def forward(ctx, means, quaternions, scales, views):
        cameras, number = len(views.world_to_camera), len(means)
        poses, lenses = views.world_to_camera.to(means), views.intrinsics.to(means)
        turn, shift = poses[:, :3, :3].reshape(-1, 3), poses[:, :3, 3].reshape(-1, 1)
        focal, middle = lenses.diagonal(dim1=1, dim2=2)[:, :2, None], lenses[:, :2, 2:]
        points = torch.addmm(shift, turn, means.t()).view(cameras, 3, number)
        per_depth = points[:, 2:].clamp_min(NEAR).reciprocal()
        slopes = points[:, :2] * per_depth
        size = focal.new_tensor([[views.width], [views.height]])
        low, high = -(middle + MARGIN * size) / focal, (size - middle + MARGIN * size) / focal
        bounded = slopes.clamp(low, high)

        entries = rotation.to_entries(quaternions.t().contiguous())
        axes = entries.view(3, 3, number) * scales.t()
        axes = (turn @ axes.flatten(1)).view(cameras, 3, 3, number)
        zoom = (focal * per_depth)[:, :, None]
        seen = zoom * torch.addcmul(axes[:, :2], bounded[:, :, None], axes[:, 2:], value=-1)
        # In float64: a needle's area is a small difference of large products.
        wide = seen.double()
        variances = wide.square().sum(2).add_(LOW_PASS)
        shared = (wide[:, 0] * wide[:, 1]).sum(1)
        xx, yy = variances.unbind(1)
        area = torch.addcmul(xx * yy, shared, shared, value=-1)
        conics = (torch.stack([yy, -shared, xx], 1) / area[:, None]).to(means)

        depths = points[:, 2].clone()
        ctx.mark_non_differentiable(variances, depths)
        ctx.save_for_backward(quaternions, scales, conics)
        ctx.between = turn, focal, points, per_depth, slopes, bounded, entries, axes, zoom, seen
        return torch.addcmul(middle, focal, slopes).transpose(1, 2), conics, variances, depths

    @staticmethod
    @once_differentiable
    def backward(ctx, of_means2d, of_conics, *_):
        with torch.autocast(of_conics.device.type, enabled=False):
            return *Project.gradients(ctx, of_means2d.transpose(1, 2), of_conics), None

    @staticmethod
    def gradients(ctx, of_means2d, of_conics):
        """The chain rule from the last line of ``forward`` to the first; ``of_x`` is the gradient of x."""
        quaternions, scales, conics = ctx.saved_tensors
        turn, focal, points, per_depth, slopes, bounded, entries, axes, zoom, seen = ctx.between
        cameras, _, number = points.shape
        # The conic is the covariance's inverse K, whose differential is -K d(covariance) K.
        inverse = symmetric(conics)
        of_inverse = symmetric(torch.stack([of_conics[:, 0], of_conics[:, 1] / 2, of_conics[:, 2]], 1))
        of_covariances = product(product(inverse, of_inverse), inverse)
        of_seen = -2 * product(of_covariances, seen)

        of_zoom = (of_seen * seen).sum(2) / zoom[:, :, 0]
        of_turned = of_seen * zoom
        of_axes = torch.cat([of_turned, -(of_turned * bounded[:, :, None]).sum(1, keepdim=True)], 1)
        of_bounded = -(of_turned * axes[:, 2:]).sum(2)
        of_slopes = of_means2d * focal + of_bounded * (slopes == bounded)
        of_per_depth = (of_slopes * points[:, :2] + of_zoom * focal).sum(1, keepdim=True)
        of_depth = -of_per_depth * per_depth * per_depth * (points[:, 2:] > NEAR)
        of_points = torch.cat([of_slopes * per_depth, of_depth], 1)

        of_means = turn.t() @ of_points.view(3 * cameras, number)
        of_axes = (turn.t() @ of_axes.view(3 * cameras, 3 * number)).view(3, 3, number)
        of_scales = (of_axes * entries.view(3, 3, number)).sum(0)
        of_entries = (of_axes * scales.t()).flatten(0, 1)
        return (
            of_means.t(),
            rotation.through_entries(quaternions.t(), entries, of_entries).t(),
            of_scales.t(),
        )


def symmetric(entries):
    """Matrices (C, 2, 2, N) of their entries xx, xy and yy (C, 3, N)."""
    return entries.unfold(1, 2, 1).transpose(2, 3)


def product(first, second):
    """Matrix products (C, I, K, N) of (C, I, J, N) and (C, J, K, N)."""
    return (first[:, :, :, None] * second[:, None]).sum(2)


def project(means, quaternions, scales, opacities, views):
    """Means (C, N, 2), conics a, b, c (C, 3, N), reach in x and y (C, 2, N) in pixels and depths (C, N).

    The reach, where alpha is 1/255, is negative if a Gaussian is not to be seen.
    """
    means2d, conics, variances, depths = Project.apply(means, quaternions, scales, views)
    with torch.no_grad():
        level = 2 * (opacities / ALPHA_MIN).log()
        reach = (level * variances).sqrt() * 1.001
        reach = torch.where(((depths > NEAR) & (level > 0))[:, None], reach, -torch.inf)
    return means2d, conics, reach.to(means), depths
