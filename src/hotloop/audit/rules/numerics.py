"""Steps that compute something else than was meant."""

from __future__ import annotations

import ast
from typing import Final

from hotloop.audit.module import Module
from hotloop.audit.patterns import Rule, each_region, every_step, gives
from hotloop.audit.program import Program
from hotloop.audit.regions import Region
from hotloop.source.nodes import argument, chain
from hotloop.source.values import made_by

_AUTOCASTS: Final = (
    "torch.autocast", "torch.amp.autocast", "torch.cuda.amp.autocast", "torch.cpu.amp.autocast"
)  # fmt: skip
_STATEFUL: Final = ("Adam", "AdamW", "Adamax", "NAdam", "RAdam", "RMSprop", "Adagrad", "LBFGS")
#: Words of what scales gradients.
_SCALERS: Final = (
    "GradScaler", "NativeScaler", "NativeScalerWithGradNormCount", "Accelerator", "Fabric", "scale_loss",
    "ShardedGradScaler", "deepspeed", "scaler",
)  # fmt: skip


def _autocasts(module: Module) -> list[tuple[ast.With, ast.Call]]:
    """``with`` statements that autocast, with the call that does."""
    return [
        (block, item.context_expr)
        for block in module.nodes(ast.With)
        for item in block.items
        if isinstance(item.context_expr, ast.Call) and module.dotted(item.context_expr.func) in _AUTOCASTS
    ]


def _is_half(module: Module, autocast: ast.Call) -> bool:
    """Whether an autocast call surely means float16 on CUDA."""
    if gives(module, autocast, "enabled", False):
        return False
    dtype = argument(autocast, "dtype", 1)
    if dtype is not None:
        return module.dotted(dtype) in ("torch.float16", "torch.half")
    device = argument(autocast, "device_type", 0)
    is_cuda = isinstance(device, ast.Constant) and device.value == "cuda"
    return is_cuda or module.dotted(autocast.func) == "torch.cuda.amp.autocast"


def _scalers(region: Region) -> list[tuple[ast.Call, str]]:
    """``scaler.scale(loss).backward()`` calls of a region, with the scaler's name."""
    owners = ((c, c.func.value) for c in region.backwards if isinstance(c.func, ast.Attribute))
    scaled = ((c, chain(o.func)) for c, o in owners if isinstance(o, ast.Call))
    return [(call, name.removesuffix(".scale")) for call, name in scaled if name.endswith(".scale")]


def _backward_in_autocast(program: Program, region: Region) -> list[ast.Call]:
    """A ``backward`` that stands inside ``with autocast``."""
    blocks = [block for block, _ in _autocasts(region.module)]
    return [c for c in region.backwards if any(region.module.holds(block, c) for block in blocks)][:1]


def _clip_before_unscale(program: Program, region: Region) -> list[ast.Call]:
    """A step that scales, clips and steps through the scaler, and unscales nowhere in the function."""
    module = region.module
    around = region.function or module.module
    unscales = [*module.calls("unscale_"), *module.calls("unscale_gradients")]
    if any(module.holds(around, call) for call in unscales):
        return []
    return [
        clip
        for backward, scaler in _scalers(region)
        for step in region.steps
        if chain(step.func) == f"{scaler}.step"
        for clip in region.calls_named("clip_grad_norm_", "clip_grad_value_", "clip_grad_norm")
        if module.dotted(clip.func).startswith("torch.nn.utils.")
        and backward.lineno < clip.lineno < step.lineno
    ][:1]


def _missing_scaler(program: Program, region: Region) -> list[ast.Call]:
    """An autocast to float16, and nothing in the tree that scales gradients."""
    module = region.module
    blocks = [] if program.mentions(*_SCALERS) else _autocasts(module)
    return [call for block, call in blocks if module.holds(region.root, block) and _is_half(module, call)][:1]


def _no_zero_grad(program: Program, region: Region) -> list[ast.Call]:
    """A file that steps an optimizer that it made and mentions no reset of gradients."""
    module, text = region.module, region.module.text.text
    if any(module.dotted(call.func).startswith("torch.optim.") for call in region.calls):
        return []
    owners = [step.func.value for step in region.steps if isinstance(step.func, ast.Attribute)]
    made_here = any(made_by(module, owner).startswith("torch.optim.") for owner in owners)
    resets = any(word in text for word in ("zero_grad", ".grad = ", ".grad="))
    return [region.steps[0]] if made_here and not resets else []


def _makes_optimizer(program: Program, region: Region, call: ast.Call) -> bool:
    """An optimizer with state that is made in a loop."""
    package, _, name = region.module.dotted(call.func).rpartition(".")
    return package == "torch.optim" and name in _STATEFUL and not hasattr(region.root, "name")


def _scaler_not_updated(program: Program, region: Region) -> list[ast.Call]:
    """The last step through a scaler that scales the loss and that the file never updates."""
    updates = [chain(call.func) for call in region.module.calls("update")]
    scalers = [scaler for _, scaler in _scalers(region)[:1] if f"{scaler}.update" not in updates]
    return [call for call in region.steps for scaler in scalers if chain(call.func) == f"{scaler}.step"][-1:]


def _step_without_scaler(program: Program, region: Region) -> list[ast.Call]:
    """Every backward of a region is scaled and nowhere in the file the scaler steps."""
    scaled = _scalers(region)
    owners = {chain(call.func).removesuffix(".step") for call in region.module.calls("step")}
    if len(scaled) != len(region.backwards) or scaled[0][1] in owners or region.module.calls("unscale_"):
        return []
    return [call for call in region.steps if region.every_step(call)][:1]


RULES: Final[dict[str, Rule]] = {
    "numerics/backward-in-autocast": each_region("low", _backward_in_autocast),
    "numerics/clip-before-unscale": each_region("high", _clip_before_unscale),
    "numerics/missing-scaler": each_region("medium", _missing_scaler),
    "numerics/no-zero-grad": each_region("high", _no_zero_grad),
    "numerics/optimizer-in-step": every_step(
        "high",
        when=_makes_optimizer,
        message="{} is made anew at every step: its moments start from zero each time, so it never is the "
        "optimizer its name says.",
    ),
    "numerics/scaler-not-updated": each_region("high", _scaler_not_updated),
    "numerics/step-without-scaler": each_region("high", _step_without_scaler),
}
