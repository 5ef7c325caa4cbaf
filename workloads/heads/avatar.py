"""The avatar: the rig's parameters at all timesteps, which are trained, and Gaussians on its triangles."""

import numpy as np
import torch
from torch import nn

from gaussians import Gaussians, save_ply
from losses import unsteadiness
from raster import rasterize

#: The rig's parameters that are trained, by the flag of their learning rate.
TRAINED = {
    "flame_expr_lr": ("expr",),
    "flame_pose_lr": ("rotation", "neck_pose", "jaw_pose", "eyes_pose"),
    "flame_trans_lr": ("translation",),
}
MOVING = sum(TRAINED.values(), ())


class Avatar(nn.Module):
    """``parameters``: those of the rig for all timesteps; ``resting``: one pose for all of them."""

    def __init__(self, rig, parameters, resting=False):
        super().__init__()
        self.rig, self.resting = rig, resting
        for name, values in parameters.items():
            if name in MOVING:
                self.register_parameter(name, nn.Parameter(values.clone()))
            else:
                self.register_buffer(name, values)
        self.gaussians = Gaussians.one_per_face(rig.faces)

    @property
    def num_timesteps(self):
        return len(self.expr)

    def vertices(self, timestep):
        """The mesh (V, 3) at a timestep."""
        at = slice(timestep, timestep + 1)
        moving = {name: getattr(self, name)[at] for name in MOVING}
        if self.resting:
            moving = {name: torch.zeros_like(value) for name, value in moving.items()}
        return self.rig.vertices(self.shape, static_offset=self.static_offset, **moving)[0]

    def render(self, timestep, views, background, backend="torch"):
        means, quaternions, scales = self.gaussians.bound(self.vertices(timestep), self.rig.faces)
        colors = self.gaussians.colors(views.centres, means)
        opacities = self.gaussians.opacities()
        return rasterize(means, quaternions, scales, opacities, colors, views, background, backend=backend)

    def unsteadiness(self, timestep):
        return unsteadiness([getattr(self, name) for name in MOVING], timestep)

    def parameter_groups(self, args, extent):
        """What Adam gets: a group for every parameter of the Gaussians, then those of the rig."""
        rates = {
            "xyz": args.position_lr_init * extent,
            "features_dc": args.feature_lr,
            "features_rest": args.feature_lr / 20,
            "opacity": args.opacity_lr,
            "scaling": args.scaling_lr,
            "rotation": args.rotation_lr,
        }
        own = dict(self.gaussians.named_parameters())
        groups = [{"params": [own[name]], "lr": rate, "name": name} for name, rate in rates.items()]
        for flag, names in TRAINED.items():
            values = [getattr(self, name) for name in names]
            groups.append({"params": values, "lr": getattr(args, flag), "name": flag.split("_")[1]})
        return groups

    def face_weights(self, ratio):
        """Weights (F,): eyes, mouth and nose ``ratio``, all else 1."""
        weights = torch.ones(len(self.rig.faces))
        for faces in self.rig.regions.values():
            weights[faces] = ratio
        return weights.to(self.expr.device)

    def load(self, state):
        """Take over a state dict, whose Gaussians may be more or fewer."""
        for name, value in state.items():
            part, _, own = name.rpartition(".")
            if part != "gaussians":
                continue
            if own in dict(self.gaussians.named_parameters()):
                value = nn.Parameter(value)
            setattr(self.gaussians, own, value)
        self.load_state_dict(state)

    def save(self, folder):
        """Write what viewers read: ``point_cloud.ply``, and the rig beside it."""
        folder.mkdir(parents=True, exist_ok=True)
        save_ply(folder / "point_cloud.ply", self.gaussians)
        values = {
            name: getattr(self, name).detach().cpu().numpy() for name in ("shape", "static_offset", *MOVING)
        }
        partial = folder / "flame_param.partial.npz"
        np.savez(partial, **values)
        partial.rename(folder / "flame_param.npz")
        self.rig.save(folder / "rig.npz")
