"""One iteration, as found and cured: loss, precision, gradients, schedule."""

import torch
from torch.nn import functional

from config import ConfigError
from data import NUM_CLASSES
from loaders import to_device


class BevLoss:
    """Cross-entropy of visible cells, rare classes weighing more; hidden cells are drawn to the priors."""

    def __init__(self, config, device):
        self.priors = torch.tensor(config["loss.priors"], dtype=torch.float32, device=device)
        if self.priors.shape != (NUM_CLASSES,) or not bool(((self.priors > 0) & (self.priors < 1)).all()):
            raise ConfigError(f"{config.path}: loss.priors: expected {NUM_CLASSES} shares between 0 and 1")
        self.priors = self.priors[:, None, None]
        self.uncertainty_weight = config.number("loss.uncertainty_weight")

    def __call__(self, logits, labels, valid):
        weight = self.priors.rsqrt()
        xent = functional.binary_cross_entropy_with_logits(
            logits, labels, pos_weight=weight, reduction="none"
        )
        prior = functional.binary_cross_entropy_with_logits(
            logits, self.priors.expand_as(logits), reduction="none"
        )
        visible = valid[:, None]
        return (xent * visible).mean() + self.uncertainty_weight * (prior * (1 - visible)).mean()


def make_scheduler(config, optimizer, iters_per_step):
    """The learning rate per iteration: a warm-up, then ``fixed`` or ``poly``."""
    policy, power = config["lr_config.policy"], config.number("lr_config.power", 1.0)
    min_lr, ratio = config.number("lr_config.min_lr", 0.0), config.number("lr_config.warmup_ratio", 0.1)
    warmup = config.get("lr_config.warmup")
    warmup_iters, max_iters = config.count("lr_config.warmup_iters", 0, 0), config.count("runner.max_iters")
    if policy not in ("poly", "fixed") or warmup not in ("linear", None):
        raise ConfigError(
            f"{config.path}: lr_config knows policy='poly' and 'fixed', warmup='linear' and None: "
            f"found {policy!r}, {warmup!r}"
        )
    if policy == "fixed":
        return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda _: 1.0)
    base = optimizer.param_groups[0]["lr"]

    def factor(step):
        iteration = step * iters_per_step
        rate = max(0.0, 1 - iteration / max_iters) ** power * (1 - min_lr / base) + min_lr / base
        if warmup and iteration < warmup_iters:
            rate *= 1 - (1 - iteration / warmup_iters) * (1 - ratio)
        return rate

    return torch.optim.lr_scheduler.LambdaLR(optimizer, factor)


class Step:
    """One iteration as found: FP16 if asked for, every gradient looked at, clip, update."""

    def __init__(self, args, config, model, device):
        self.args, self.model, self.device = args, model, device
        self.loss = BevLoss(config, device)
        if (kind := config["optimizer.type"]) != "AdamW":
            raise ConfigError(f"{config.path}: optimizer.type is {kind!r}: only 'AdamW' is known")
        self.optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=config.number("optimizer.lr"),
            weight_decay=config.number("optimizer.weight_decay"),
            fused="fused_optimizer" in args.parts,
        )
        self.max_norm = config.number("optimizer_config.grad_clip.max_norm")
        self.prepare(config)

    def prepare(self, config):
        self.lr_config = config.get("lr_config")  # TODO: apply
        loss_scale = config.get("fp16.loss_scale")
        self.use_fp16 = loss_scale is not None and self.device.type == "cuda"
        self.scaler = torch.amp.GradScaler(
            self.device.type, init_scale=float(loss_scale or 1), growth_interval=2**30, enabled=self.use_fp16
        )
        if loss_scale is not None:
            try:
                print(f"FP16 mixed precision enabled (loss_scale={loss_scale})")
            except ValueError:
                print("FP16 is not available")
            else:
                print("GradScaler is not available, will use FP32")

    def __call__(self, batch, log):
        batch = to_device(self.args, batch, self.device)
        log.mark("h2d")
        with torch.autocast(self.device.type, torch.float16, enabled=self.use_fp16):
            logits = self.model(batch["image"], batch["cameras"])
        loss = self.loss(logits, batch["labels"], batch["valid"])
        value = loss.item()
        log.mark("fwd")
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        log.mark("bwd")
        self.scaler.unscale_(self.optimizer)
        for name, parameter in self.model.named_parameters():
            if parameter.grad is None:
                continue
            if parameter.grad.isnan().any().item() or parameter.grad.isinf().any().item():
                raise FloatingPointError(f"gradient of {name} is not finite: raise fp16.loss_scale")
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.max_norm)
        self.scaler.step(self.optimizer)
        self.scaler.update()
        log.mark("opt")
        return value

    def check(self):
        """Nothing: every iteration was looked at."""

    def state_dict(self):
        return {"optimizer": self.optimizer.state_dict(), "scaler": self.scaler.state_dict()}

    def load_state_dict(self, state):
        self.optimizer.load_state_dict(state["optimizer"])
        self.scaler.load_state_dict(state["scaler"])


class CuredStep(Step):
    """One iteration cured: bfloat16, the schedule applied, gradients looked at on the device."""

    def prepare(self, config):
        from hotloop.feed import Accumulation

        self.use_bf16 = bool(config.get("bf16")) and "bf16" in self.args.parts and self.device.type == "cuda"
        steps = config.count("runner.accumulative_counts", 1, 1)
        self.accumulation = Accumulation(self.optimizer, steps=steps, model=self.model, clip=self.clip)
        self.scheduler = make_scheduler(config, self.optimizer, steps)
        self.interval = config.count("finite_check.interval", 1, 50)
        self.not_finite = torch.zeros((), device=self.device)
        self.unchecked = 0

    def clip(self):
        self.log.mark("bwd")
        parameters = [p for p in self.model.parameters() if p.grad is not None]
        if "foreach_check" in self.args.parts:
            norm = torch.nn.utils.clip_grad_norm_(parameters, self.max_norm, foreach=True)
            self.not_finite += ~norm.isfinite()
            return
        for parameter in parameters:
            self.not_finite += (parameter.grad.isnan().any() | parameter.grad.isinf().any()).item()
        torch.nn.utils.clip_grad_norm_(parameters, self.max_norm)

    def check(self):
        """Raise FloatingPointError if a gradient was not finite since the last time; waits for the device."""
        if self.not_finite.item():
            raise FloatingPointError(
                f"a gradient was not finite in the last {self.unchecked} iterations: go on from the last "
                "checkpoint with a smaller optimizer.lr"
            )
        self.unchecked = 0

    def __call__(self, batch, log):
        self.log = log
        log.mark("h2d")
        with self.accumulation.micro_batch():
            image = batch["image"]
            if "channels_last" in self.args.parts:
                image = image.contiguous(memory_format=torch.channels_last)
            with torch.autocast(self.device.type, torch.bfloat16, enabled=self.use_bf16):
                logits = self.model(image, batch["cameras"])
            loss = self.loss(logits, batch["labels"], batch["valid"])
            log.mark("fwd")
            if self.accumulation.backward(loss, len(image)):
                self.scheduler.step()
                log.mark("opt")
            else:
                log.mark("bwd")
        self.unchecked += 1
        if self.unchecked == self.interval:
            self.check()
        return loss.detach()

    def state_dict(self):
        return {
            "optimizer": self.optimizer.state_dict(), "scheduler": self.scheduler.state_dict(),
            "accumulation": self.accumulation.state_dict(),
        }  # fmt: skip

    def load_state_dict(self, state):
        self.optimizer.load_state_dict(state["optimizer"])
        self.scheduler.load_state_dict(state["scheduler"])
        self.accumulation.load_state_dict(state["accumulation"])
