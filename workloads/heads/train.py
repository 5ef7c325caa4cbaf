"""Train a head avatar: Gaussians on the triangles of a rig that moves.

    python train.py --variant as_found --scale cpu
    torchrun --nproc_per_node 2 train.py --variant cured --scale cpu

``as_found`` is the project as it was, ``guide`` has the fixes of its optimisation guide, ``cured`` what
measuring it proposes. Without ``-s`` synthetic data is made once and used again.
"""

import math
import os
import select
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import torch
import torch.distributed as dist
from tqdm import tqdm

from report import Evaluation, Metrics, open_writer

from data import SCALES, DataError, make_data
from flags import HERE, parse_args
from loaders import SetupError
from network_gui import NetworkGui, ThrottledGui
from raster import Views
from trainer import Trainer


def open_gui(args):
    """The server that a viewer connects to."""
    if "throttled_viewer" in args.parts:
        return ThrottledGui(args.ip, args.port, frames_per_second=args.viewer_fps)
    return NetworkGui(args.ip, args.port)


def start_viewer(args, gui, size):
    """A viewer that looks on from the first step, at a size (height, width); in guide paused."""
    command = [sys.executable, str(HERE / "remote_viewer.py"), "--port", str(gui.port), "--headless"]
    command += ["--height", str(size[0]), "--width", str(size[1])]
    viewer = subprocess.Popen([*command, *(["--pause"] if args.variant == "guide" else [])])
    select.select([gui.listener], [], [], 30)  # until it has knocked
    return viewer


class Loop:
    """Steps until the last iteration, with what happens between them."""

    def __init__(self, trainer, folder):
        self.trainer, args = trainer, trainer.args
        self.iterations = args.epochs * len(trainer.feed.steps) if args.epochs else args.iterations
        self.writer = open_writer(args) if trainer.first_rank else None
        self.bar = tqdm(
            total=self.iterations,
            initial=trainer.iteration,
            desc="training",
            disable=None if trainer.first_rank else True,
        )
        self.metrics = Metrics("device_metrics" not in args.parts, self.writer, self.bar)
        self.evaluation = Evaluation(args, folder, trainer.device)
        self.gui = open_gui(args) if trainer.first_rank else None
        self.viewer = (
            start_viewer(args, self.gui, trainer.feed.size)
            if args.viewer and self.gui and self.gui.listener
            else None
        )

    def run(self):
        trainer = self.trainer
        try:
            while trainer.iteration < self.iterations:
                self.epoch()
        finally:
            self.close()

    def epoch(self):
        trainer, log = self.trainer, self.trainer.log
        steps = trainer.feed.steps
        steps.epoch, steps.skip = trainer.epoch, trainer.position
        log.start()
        for batch in trainer.feed.batches(log.mark):
            trainer.iteration += 1
            trainer.position += 1
            trainer.update_learning_rate()
            losses = trainer.step(batch)
            self.metrics.add(trainer.iteration, losses)
            last = trainer.iteration >= self.iterations
            due = last or trainer.iteration % trainer.args.interval == 0
            if due:
                log.mark("other")
                self.evaluate()
                log.skip()
            trainer.densify()
            self.bar.update()
            self.poll_viewer()
            log.mark("other")
            log.write(
                trainer.iteration - 1, len(batch.numbers) * trainer.world_size, losses["total"].detach()
            )
            if due:
                self.keep()
                log.start()
            if last:
                return
        trainer.epoch, trainer.position = trainer.epoch + 1, 0

    def poll_viewer(self):
        """As found in every iteration: whoever is connected gets a picture now, and training waits for it."""
        if self.gui is None:
            return
        trainer = self.trainer
        gaussians = trainer.avatar.gaussians
        self.gui.poll(
            self.picture,
            {
                "iteration": trainer.iteration,
                "loss": self.metrics.ema,
                "num_gaussians": len(gaussians.xyz),
                "num_timesteps": trainer.avatar.num_timesteps,
            },
        )

    @torch.no_grad()
    def picture(self, request):
        views = Views(
            world_to_camera=torch.from_numpy(request.world_to_camera)[None].to(self.trainer.device),
            intrinsics=torch.from_numpy(request.intrinsics)[None].to(self.trainer.device),
            height=request.height,
            width=request.width,
        )
        timestep = min(request.timestep, self.trainer.avatar.num_timesteps - 1)
        return self.trainer.view(timestep, views).images[0].clamp(0, 1)

    def evaluate(self):
        """Scores and the avatar for viewers, before opacities are forgotten in the same iteration."""
        trainer = self.trainer
        self.metrics.flush()
        if trainer.args.eval and trainer.first_rank:
            scores = {}
            for split in ("val", "test"):
                scores = self.evaluation.run(split, trainer.view, self.writer, trainer.iteration)
                tqdm.write(
                    f"[ITER {trainer.iteration}] Evaluating {split}: L1 {scores['l1']:.4f} "
                    f"PSNR {scores['psnr']:.2f} SSIM {scores['ssim']:.4f}"
                )
            trainer.best = max(trainer.best, scores["psnr"])
        if self.writer is not None:
            self.writer.add_scalar("total_points", len(trainer.avatar.gaussians.xyz), trainer.iteration)
        if trainer.first_rank:
            place = Path(trainer.args.model_path) / "point_cloud" / f"iteration_{trainer.iteration}"
            trainer.avatar.save(place)

    def keep(self):
        """A checkpoint of all that the next iteration begins with."""
        if self.trainer.first_rank:
            self.trainer.save()
        if dist.is_initialized():
            dist.barrier()

    def close(self):
        self.bar.close()
        if self.gui is not None:
            self.gui.close()
        if self.viewer is not None:  # it ends when the connection does
            with suppress(subprocess.TimeoutExpired):
                self.viewer.wait(5)
            self.viewer.kill()
            self.viewer.wait()
        if self.writer is not None:
            self.writer.close()


def train(args):
    device = torch.device("cpu")
    if torch.cuda.is_available():
        device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.cuda.set_device(device)
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("nccl" if device.type == "cuda" else "gloo")
    torch.manual_seed(args.seed)
    folder = args.source_path or make_data(scale=args.scale, seed=args.seed)
    out = Path(args.model_path)
    out.mkdir(parents=True, exist_ok=True)
    trainer = Trainer(args, folder, device)
    trainer.start()
    if trainer.first_rank:
        (out / "cfg_args").write_text(str(args))
        height, width = trainer.feed.size
        tqdm.write(
            f"{args.variant} on {device}: {len(trainer.feed.frames):,} pictures at {width} x {height}, "
            f"{len(trainer.avatar.gaussians.xyz):,} Gaussians on {len(trainer.avatar.rig.faces):,} faces, "
            f"drawn by {args.backend}"
        )
        for flag, why in args.dead.items():
            tqdm.write(f"dead {why}: {flag} is set, and nothing reads it")
    Loop(trainer, folder).run()
    if trainer.first_rank:
        num_gaussians = len(trainer.avatar.gaussians.xyz)
        best = f", best test PSNR {trainer.best:.2f} dB" if args.eval else ""
        tqdm.write(f"{trainer.iteration:,} iterations, {num_gaussians:,} Gaussians{best}: {out}")


def dry(args):
    """Few pictures, one camera in the step."""
    sys.path.append(str(Path(__file__).parents[1]))
    from dry_run import dry_run

    _, _, size, num_vertices, smaller = SCALES[args.scale]
    whole, args.cameras_per_step = args.cameras_per_step, 1
    args.dataloader_workers, args.port, args.viewer, args.tensorboard = 0, 0, False, False

    def begin(folder):
        args.source_path = make_data(
            folder / "data", args.scale, args.seed, (2, 6, size, num_vertices, smaller)
        )
        args.model_path = folder / "out"
        train(args)

    picture = 4 * 3 * math.prod(max(1, round(side / args.resolution)) for side in size)
    sample = f"1 of {whole} cameras of a timestep"
    dry_run(f"heads, {args.variant}, {args.scale} scale", begin, sample, 1 / whole, picture)


def main(argv=None):
    args = parse_args(argv)
    try:
        (dry if args.dry_run else train)(args)
    except (SetupError, DataError) as error:
        raise SystemExit(f"error: {error}") from None
    except RuntimeError as error:
        if not isinstance(error, torch.OutOfMemoryError) and "can't allocate memory" not in str(error):
            raise
        raise SystemExit(
            f"error: out of memory: {str(error).splitlines()[0]}\n"
            "hint: fewer --dataloader_workers and --prefetch_factor 2 for the host; for the device a higher "
            "--densify_grad_threshold (0.0003), fewer --cameras_per_step, a smaller --feature_cache_gb"
        ) from None
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


if __name__ == "__main__":
    main()
