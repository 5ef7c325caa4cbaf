"""What a module is: its parameters, wrappers, layout; by asking torch."""

from __future__ import annotations

from typing import Any, Final

from hotloop.state.identity import code_place
from hotloop.state.modules import buffers, modules, parameters

WRAPPERS: Final = {
    "DistributedDataParallel": ("DDP", "module"),
    "FullyShardedDataParallel": ("FSDP", "module"),
    "DataParallel": ("DataParallel", "module"),
    "OptimizedModule": ("", "_orig_mod"),
}


def module_facts(torch: Any, module: Any, checkpointing: bool) -> dict[str, Any]:
    """The fields of a ``module`` note."""
    inner, wrapper, compiled = unwrapped(module)
    file, line = code_place(getattr(type(inner), "forward", None))
    params = list(parameters(inner))
    dtypes: dict[str, int] = {}
    for param in params:
        name = str(param.dtype).replace("torch.", "")
        dtypes[name] = dtypes.get(name, 0) + _numel(param)
    convs = [m for m in modules(inner) if type(m).__name__.removeprefix("Lazy")[:4] == "Conv"]
    ndims = sorted(
        {w.dim() - 2 for m in convs if (w := getattr(m, "weight", None)) is not None and w.dim() > 2}
    )
    return {
        "class": type(inner).__name__,
        "place": {"file": file, "line": line},
        "num_params": sum(dtypes.values()),
        "num_trainable": sum(_numel(p) for p in params if p.requires_grad),
        "param_bytes": sum(_numel(p) * p.element_size() for p in params),
        "trainable_bytes": sum(_numel(p) * p.element_size() for p in params if p.requires_grad),
        "buffer_bytes": sum(_numel(b) * b.element_size() for b in buffers(inner)),
        "param_dtypes": dtypes,
        "devices": sorted({str(p.device) for p in params}),
        "training": inner.training,
        "compiled": compiled or inner._compiled_call_impl is not None,
        "wrapper": wrapper,
        "sharded": wrapper == "FSDP" or is_sharded(inner, params),
        "channels_last": _channels_last(torch, params),
        "has_conv": bool(convs),
        "conv_ndim": ndims[-1] if ndims else 0,
        "checkpointing": checkpointing,
    }


def _channels_last(torch: Any, params: list[Any]) -> bool:
    last = torch.channels_last
    filters = [p for p in params if p.dim() == 4 and p.shape[1] > 1 and p.shape[2] * p.shape[3] > 1]
    return bool(filters) and all(p.is_contiguous(memory_format=last) for p in filters)


def unwrapped(module: Any) -> tuple[Any, str, bool]:
    """The module below DDP, FSDP, DataParallel and compile wrappers, the name of the wrapper, whether
    compiled.
    """
    wrapper, compiled = "", False
    while True:
        cls = type(module)
        known = WRAPPERS.get(cls.__name__)
        if known is None or not cls.__module__.startswith("torch."):
            return module, wrapper, compiled
        wrapper = known[0] or wrapper
        compiled = compiled or not known[0]
        module = getattr(module, known[1])


def is_sharded(module: Any, params: list[Any]) -> bool:
    """Whether ranks hold parts of its parameters, and gather them in forward: FSDP2, tensor parallel."""
    return any(type(param).__name__ == "DTensor" for param in params) or any(
        base.__name__ == "FSDPModule" for one in modules(module) for base in type(one).__mro__
    )


def _numel(param: Any) -> int:
    try:
        return int(param.numel())
    except (RuntimeError, ValueError):  # an uninitialized lazy parameter has no size yet
        return 0


def autocast_facts(torch: Any) -> dict[str, Any]:
    """Which device's autocast is entered, and its dtype."""
    for device in ("cuda", "cpu", "xpu", "mps"):
        try:
            if torch.is_autocast_enabled(device):
                return {
                    "device": device,
                    "dtype": str(torch.get_autocast_dtype(device)).replace("torch.", ""),
                }
        except (RuntimeError, TypeError):
            continue
    return {"device": "", "dtype": ""}
