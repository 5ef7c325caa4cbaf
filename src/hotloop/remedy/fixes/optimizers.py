"""Updates of parameters."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

_AVERAGED = (
    "before: for e, p in zip(ema.parameters(), model.parameters()): e.mul_(d).add_(p, alpha=1 - d); "
    "after: torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 1 - d); of other "
    "loops each operation on lists of tensors (torch._foreach_mul_, torch._foreach_add_, ...)"
)

FOREACH = Remedy(
    summary="Update all parameters with multi-tensor kernels.",
    effect="exact",
    where_named=True,
    live="hotloop.remedy.live.optimizer:Foreach",
    source="hotloop.fix.calls:optimizer",
    words="give the optimizer foreach=True",
)
FOREACH_LOOP = Remedy(
    summary="Do each operation of a moving average of weights for all parameters in one call.",
    effect="exact",
    also=("host/python-in-step",),
    where_named=True,
    source="hotloop.fix.averages:foreach_loop",
    rewrites=True,
    words=_AVERAGED,
    excludes=("foreach-lerp",),
)
FOREACH_LERP = Remedy(
    summary="Do a moving average of weights for all parameters as one interpolation.",
    effect="numeric",
    alters=(
        "a + (b - a) * w rounds otherwise than a * (1 - w) + b * w, and list forms may on a GPU; "
        "a tensor that model and average share stays what it is"
    ),
    also=("host/python-in-step",),
    where_named=True,
    source="hotloop.fix.averages:foreach_loop",
    rewrites=True,
    words=_AVERAGED,
)
FUSED_OPTIMIZER = Remedy(
    summary="Update all parameters with fused kernels.",
    effect="numeric",
    alters="fused updates round differently in the last bit",
    live="hotloop.remedy.live.optimizer:FusedOptimizer",
    source="hotloop.fix.calls:optimizer",
    words="give the optimizer fused=True",
    excludes=("foreach",),
)
LIBRARY_OPTIMIZER = Remedy(
    summary="Build torch's optimizer, with fused kernels, in the place of one by hand that does the same.",
    effect="numeric",
    alters="updates round differently in the last bit; states saved of the old class do not fit torch's",
    also=("device/optimizer-not-fused",),
    words=(
        "before: class MyAdam(Optimizer) with a Python loop over parameters in step(); after: "
        "torch.optim.AdamW(net.parameters(), lr=..., fused=True), where an optimizer of torch (Adam, "
        "AdamW, SGD, RMSprop, ...) does the same; else update all parameters in one call: "
        "torch._foreach_add_(params, updates, alpha=-lr). Old checkpoints of the optimizer do not "
        "load"
    ),
)
