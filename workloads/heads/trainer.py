"""The step: what is trained, the losses, who is split, and checkpoints."""

import os
from contextlib import nullcontext
from pathlib import Path

import torch
import torch.distributed as dist

from report import StepLog

from avatar import Avatar
from data import load_parameters
from loaders import SetupError, make_feed, training_splits
from losses import Perceptual, l1, mean_excess, ssim
from raster import Views, best_backend
from rig import Rig

GIB = 1024**3
#: Gaussians fainter than this go when others are split.
MIN_OPACITY = 0.005


#: What ``Trainer.save`` writes, and ``start`` needs.
KEPT = (
    "avatar", "num_timesteps", "sh_degree", "optimizer", "scaler", "iteration", "epoch", "position", "best",
    "random",
)  # fmt: skip


def load_checkpoint(path):
    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise SetupError(f"{path} is missing") from None
    except Exception as error:
        raise SetupError(f"{path} is no checkpoint: {repr(error).splitlines()[0]}") from None
    missing = [name for name in KEPT if not isinstance(state, dict) or name not in state]
    if missing:
        raise SetupError(f"{path} has no {missing[0]}: --resume takes the last.pt of a training")
    return state


def save_checkpoint(path, **state):
    torch.save(state, f"{path}.partial")
    os.replace(f"{path}.partial", path)


def scene_extent(frames):
    """How far the cameras reach from their middle, and a tenth more: 3D Gaussian splatting's unit."""
    poses = torch.stack([torch.as_tensor(frame.world_to_camera) for frame in frames])
    centres = -(poses[:, :3, :3].transpose(1, 2) @ poses[:, :3, 3:])[..., 0]
    return 1.1 * float((centres - centres.mean(dim=0)).norm(dim=1).max()) or 1.0


class Trainer:
    """The avatar, its optimizer, and the step."""

    def __init__(self, args, folder, device):
        self.args, self.device = args, device
        if args.backend == "auto":
            args.backend = best_backend(device)
        self.first_rank = not dist.is_initialized() or dist.get_rank() == 0
        self.world_size = dist.get_world_size() if dist.is_initialized() else 1
        self.feed = make_feed(args, folder, training_splits(args), device, training=True)
        if not len(self.feed.steps):
            raise SetupError(f"{len(self.feed.frames)} pictures are too few for {self.world_size} ranks")
        self.extent = scene_extent(self.feed.frames)
        rig, parameters = Rig.load(Path(folder) / "rig.npz"), load_parameters(folder)
        self.avatar = Avatar(rig, parameters, resting=not args.bind_to_mesh).to(device)
        self.background = torch.full((3,), float(args.white_background), device=device)
        self.weights = None
        if args.use_adaptive_densification:
            self.weights = self.avatar.face_weights(args.adaptive_densify_ratio)
        self.amp = args.use_amp and "amp_flag" in args.parts
        self.amp_dtype = torch.float16 if device.type == "cuda" else torch.bfloat16
        self.scaler = torch.amp.GradScaler(device.type, enabled=self.amp)
        self.one = torch.ones((), device=device)
        self.perceptual = None
        if args.use_vgg_loss:
            kept = int(args.feature_cache_gb * GIB) if "cached_features" in args.parts else 0
            own = self.amp_dtype if self.amp and "unscaled_amp" in args.parts else None
            self.perceptual = Perceptual(args.vgg_width, device, kept, own)
        self.iteration = self.epoch = self.position = 0
        self.best = float("-inf")
        self.optimizer = None
        self.log = StepLog(args.step_log if self.first_rank else None)

    def start(self):
        """Begin, or go on from a checkpoint."""
        state = load_checkpoint(self.args.resume) if self.args.resume else None
        if state:
            if state["num_timesteps"] != self.avatar.num_timesteps:
                raise SetupError(
                    f"{self.args.resume} is of other data, of {state['num_timesteps']} timesteps"
                )
            self.avatar.load({name: value.to(self.device) for name, value in state["avatar"].items()})
            self.avatar.gaussians.sh_degree = state["sh_degree"]
        groups = self.avatar.parameter_groups(self.args, self.extent)
        fused = {"fused": True} if "fused_optimizer" in self.args.parts else {}
        self.optimizer = torch.optim.Adam(groups, lr=0.0, eps=1e-15, **fused)
        if state:
            self.optimizer.load_state_dict(state["optimizer"])
            self.scaler.load_state_dict(state["scaler"])
            for name in ("iteration", "epoch", "position", "best"):
                setattr(self, name, state[name])
            torch.set_rng_state(state["random"])

    # -- a step ---------------------------------------------------------------------------------------------

    def update_learning_rate(self):
        """Positions: from --position_lr_init to --position_lr_final, exponentially."""
        first, last = self.args.position_lr_init, self.args.position_lr_final
        part = min(1.0, self.iteration / self.args.iterations)
        self.optimizer.param_groups[0]["lr"] = self.extent * first ** (1 - part) * last**part

    def render(self, batch):
        """Pictures (C, 3, H, W), and what the rasterizer says of each of its calls."""
        if "camera_batches" in self.args.parts:
            calls = [batch.views]
        else:
            calls = [
                Views(world_to_camera=pose[None], intrinsics=lens[None], height=batch.views.height,
                      width=batch.views.width)
                for pose, lens in zip(batch.views.world_to_camera, batch.views.intrinsics, strict=True)
            ]  # fmt: skip
        rendered = [self.view(batch.timestep, views) for views in calls]
        for one in rendered:
            one.means2d.retain_grad()
        return torch.cat([one.images for one in rendered]), rendered

    def view(self, timestep, views):
        return self.avatar.render(timestep, views, self.background, self.args.backend)

    def losses(self, batch, images, rendered):
        """The parts of the loss by name, and their sum as ``total``."""
        args, gaussians = self.args, self.avatar.gaussians
        parts = {
            "l1": (1 - args.lambda_dssim) * l1(images, batch.images),
            "ssim": args.lambda_dssim * (1 - ssim(images, batch.images)),
        }
        visible = torch.cat([one.radii for one in rendered]) > 0
        waits = "device_metrics" not in args.parts
        if args.lambda_xyz:
            far = gaussians.xyz.norm(dim=1) - args.threshold_xyz
            parts["xyz"] = args.lambda_xyz * mean_excess(far, visible, waits)
        if args.lambda_scale:
            large = torch.relu(gaussians.scaling.exp() - args.threshold_scale).norm(dim=1)
            parts["scale"] = args.lambda_scale * mean_excess(large, visible, waits)
        if self.perceptual and args.lambda_perceptual:
            parts["perceptual"] = args.lambda_perceptual * self.perceptual(
                images, batch.images, batch.numbers
            )
        if args.lambda_temporal:
            parts["temporal"] = args.lambda_temporal * self.avatar.unsteadiness(batch.timestep)
        return {**parts, "total": sum(parts.values())}

    def step(self, batch):
        """Everything from the pictures on the device to the moved parameters."""
        guide_amp = self.amp and "unscaled_amp" not in self.args.parts
        with torch.autocast(self.device.type, self.amp_dtype) if guide_amp else nullcontext():
            images, rendered = self.render(batch)
            losses = self.losses(batch, images, rendered)
        self.log.mark("fwd")
        self.scaler.scale(losses["total"]).backward()
        self.log.mark("bwd")
        with torch.no_grad():
            self.count_gradients(batch, rendered)
            if dist.is_initialized():
                self.average_gradients()
            self.scaler.step(self.optimizer)
            self.scaler.update()
            self.optimizer.zero_grad(set_to_none=True)
            self.log.mark("opt")
        return losses

    def count_gradients(self, batch, rendered):
        """What decides who is split: gradients on the screen, in the units of half a picture.

        The guide's mixed precision takes them as they are, times the scale of the loss (65,536 at first), and
        compares them with a threshold meant for the loss itself. Here they are divided by it.
        """
        if self.iteration >= self.args.densify_until_iter:
            return
        half = torch.tensor([batch.views.width / 2, batch.views.height / 2], device=self.device)
        half = half * len(batch.numbers)  # the loss is a mean over cameras
        if self.amp and "unscaled_amp" in self.args.parts:
            half = half / self.scaler.scale(self.one)
        for one in rendered:
            gradient = one.means2d.grad * half
            if self.amp:  # a step that overflows is skipped, and says nothing here either
                gradient = torch.where(gradient.isfinite(), gradient, 0)
            self.avatar.gaussians.add_statistics(gradient, one.radii)

    def average_gradients(self):
        values = [value for group in self.optimizer.param_groups for value in group["params"]]
        gradients = [torch.zeros_like(v) if v.grad is None else v.grad for v in values]
        flat = torch.cat([gradient.flatten() for gradient in gradients])
        dist.all_reduce(flat)
        flat /= self.world_size
        for value, part in zip(values, flat.split([v.numel() for v in values]), strict=True):
            value.grad = part.view_as(value).clone()

    def densify(self):
        """Split, clone and prune Gaussians, forget opacities, refine colours, when it is time to."""
        args, gaussians, now = self.args, self.avatar.gaussians, self.iteration
        if now % args.sh_interval == 0 and gaussians.sh_degree < args.sh_degree:
            gaussians.raise_degree()
        if now >= args.densify_until_iter:
            return
        if now > args.densify_from_iter and now % args.densification_interval == 0:
            if dist.is_initialized():
                gaussians.all_reduce_statistics()
            gaussians.densify_and_prune(
                self.optimizer, args.densify_grad_threshold, MIN_OPACITY, self.extent, weights=self.weights
            )
        if now % args.opacity_reset_interval == 0:
            gaussians.reset_opacity(self.optimizer)

    # -- keeping --------------------------------------------------------------------------------------------

    def save(self):
        """A checkpoint to go on from."""
        save_checkpoint(
            Path(self.args.model_path) / "last.pt",
            avatar=self.avatar.state_dict(),
            num_timesteps=self.avatar.num_timesteps,
            sh_degree=self.avatar.gaussians.sh_degree,
            optimizer=self.optimizer.state_dict(),
            scaler=self.scaler.state_dict(),
            iteration=self.iteration,
            epoch=self.epoch,
            position=self.position,
            best=self.best,
            random=torch.get_rng_state(),
        )
