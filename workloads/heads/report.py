"""What a run says about itself: the step log, the running loss, TensorBoard, evaluation."""

import json
import math
import time
from pathlib import Path

import torch
from tqdm import tqdm

from loaders import SetupError, make_feed
from losses import l1, psnr, ssim

#: How often the device is asked for its numbers where the host does not wait for them in every step.
READ_EVERY = 50


class StepLog:
    """One JSON object per step: seconds by phase, samples per second, loss."""

    def __init__(self, path):
        self.path, self.phases, self.last = path, {}, time.perf_counter()
        if path:
            Path(path).write_text("")

    def mark(self, name):
        now = time.perf_counter()
        self.phases[name] = self.phases.get(name, 0.0) + now - self.last
        self.last = now

    def skip(self):
        """Forget what has passed since the last mark: evaluation."""
        self.last = time.perf_counter()

    def start(self):
        """Forget what has passed since the last step: checkpoints."""
        self.phases = dict.fromkeys(("data_wait", "h2d", "fwd", "bwd", "opt", "other"), 0.0)
        self.last = time.perf_counter()

    def write(self, step, num_samples, loss):
        if self.path:
            seconds = sum(self.phases.values())
            row = {"step": step, **self.phases, "samples_per_s": num_samples / seconds, "loss": float(loss)}
            with open(self.path, "a") as file:
                file.write(json.dumps(row) + "\n")
        self.start()


def open_writer(args):
    """A TensorBoard writer if it is wanted and installed, else None."""
    if not args.tensorboard:
        return None
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(args.model_path)


class Metrics:
    """The losses of every step, to TensorBoard and the progress bar.

    ``waits``: as found, each is fetched from the device in each step. Otherwise they stay there and come all
    at once, every READ_EVERY steps: the same curves, later.
    """

    def __init__(self, waits, writer, bar):
        self.waits, self.writer, self.bar = waits, writer, bar
        self.ema, self.pending = 0.0, []

    def add(self, iteration, losses):
        if not self.waits:
            self.pending.append((iteration, tuple(losses), torch.stack(list(losses.values())).detach()))
            if len(self.pending) >= READ_EVERY:
                self.flush()
            return
        self.ema = 0.4 * losses["total"].item() + 0.6 * self.ema
        values = {}
        for name in losses:
            values[name] = losses[name].item()
        self.check(iteration, values["total"])
        self.show(iteration, values)

    def flush(self):
        """Fetch what has gathered."""
        if not self.pending:
            return
        rows = torch.stack([row for _, _, row in self.pending]).tolist()
        for (iteration, names, _), row in zip(self.pending, rows, strict=True):
            values = dict(zip(names, row, strict=True))
            self.check(iteration, values["total"])
            self.ema = 0.4 * values["total"] + 0.6 * self.ema
            self.show(iteration, values)
        self.pending = []

    def check(self, iteration, total):
        if not math.isfinite(total):
            raise SetupError(
                f"the loss is {total} at iteration {iteration}: train without --use_amp, or with a smaller "
                "--position_lr_init (the guide: 0.004)"
            )

    def show(self, iteration, values):
        if self.bar is not None and iteration % 10 == 0:
            self.bar.set_postfix(loss=f"{self.ema:.5f}", refresh=False)
        if self.writer is not None:
            for name, value in values.items():
                self.writer.add_scalar(f"train_loss_patches/{name}_loss", value, iteration)


class Evaluation:
    """PSNR, SSIM and L1 of val and test, and pictures of some of their views to TensorBoard."""

    def __init__(self, args, folder, device):
        self.args, self.folder, self.device = args, folder, device
        self.kept = {}

    def feed(self, split):
        """As found a new loader for each split and evaluation."""
        if "kept_loaders" not in self.args.parts:
            return make_feed(self.args, self.folder, (split,), self.device, training=False)
        if split not in self.kept:
            self.kept[split] = make_feed(self.args, self.folder, (split,), self.device, training=False)
        return self.kept[split]

    @torch.no_grad()
    def run(self, split, render, writer, iteration):
        """{l1, psnr, ssim}: means over the pictures of a split; ``render`` takes a timestep and views."""
        sums, num_images = torch.zeros(3, dtype=torch.float64, device=self.device), 0
        feed = self.feed(split)
        every = max(1, len(feed.frames) // self.args.num_vis_img)
        bar = tqdm(total=len(feed.frames), desc=f"evaluating {split}", leave=False, disable=None)
        with bar:
            for batch in feed.batches(lambda phase: None):
                found = render(batch.timestep, batch.views).images.clamp(0, 1)
                for image, truth in zip(found.split(1), batch.images.split(1), strict=True):
                    sums += torch.stack([score(image, truth) for score in (l1, psnr, ssim)])
                    if writer is not None and num_images % every == 0:
                        name = f"{split}_{num_images // every}"
                        pictures = {"render": image, "error": (image - truth).abs(), "ground_truth": truth}
                        for kind, picture in pictures.items():
                            writer.add_images(f"{name}/{kind}", picture, iteration)
                    num_images += 1
                bar.update(len(batch.numbers))
        scores = dict(zip(("l1", "psnr", "ssim"), (sums / num_images).tolist(), strict=True))
        for name, value in scores.items() if writer is not None else ():
            writer.add_scalar(f"{split}/loss_viewpoint - {name}", value, iteration)
        return scores
