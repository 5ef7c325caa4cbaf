"""One row per outermost call of a family of functions: checkpoints, logging, collectives.

Prints are the sampler's. DDP's own collectives run inside backward and show there only.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import FrameType
from typing import Any, Final

from hotloop.hooks.wrapping import RAISED
from hotloop.probe.probe import Probe
from hotloop.record.rows import COLLECTIVE, COLLECTIVE_OPS, LOG, LOG_OPS, SAVE, U32_MAX
from hotloop.state.stored import is_tensor

#: Name of a class, "" for the module itself -> its functions -> what they do.
_Places = Mapping[str, Mapping[str, str]]

_SAVE_OPS: Final = ("", "write", "state_dict", "load")
#: Here since before the probe was: patched in torch, not after an import.
_OF_TORCH: Final[_Places] = {
    "": {"save": "write", "load": "load"},
    "nn.Module": {"state_dict": "state_dict"},
    "optim.Optimizer": {"state_dict": "state_dict"},
}
_CHECKPOINTS: Final[dict[str, _Places]] = {
    "safetensors.torch": {"": {"save_file": "write", "save_model": "write", "load_file": "load"}},
    "hotloop.feed.saving": {"": {"async_save": "write"}},
    "torch.distributed.checkpoint": {"": {"save": "write", "async_save": "write", "load": "load"}},
}
_WRITER: Final = {
    "add_scalar": "scalar", "add_scalars": "scalar", "add_image": "image", "add_images": "image",
    "add_image_with_boxes": "image", "add_figure": "figure", "add_video": "image",
    "add_histogram": "histogram",
    "add_histogram_raw": "histogram", "add_text": "text", "add_audio": "other", "add_embedding": "other",
    "add_pr_curve": "other", "add_mesh": "other", "add_graph": "other", "flush": "other", "close": "other",
}  # fmt: skip
_METRICS: Final = {"log_metric": "tracker", "log_metrics": "tracker"}
_LOGS: Final[dict[str, _Places]] = {
    "torch.utils.tensorboard.writer": {"SummaryWriter": _WRITER},
    "tensorboardX.writer": {"SummaryWriter": _WRITER},
    "matplotlib.figure": {"Figure": {"savefig": "figure"}},
    "matplotlib.backends.backend_agg": {"FigureCanvasAgg": {"draw": "figure", "print_png": "figure"}},
    "tqdm.std": {"tqdm": {"display": "progress", "refresh": "progress"}},
    "rich.live": {"Live": {"refresh": "progress"}},
    "logging": {"Logger": {"handle": "text"}},
    "wandb.sdk.wandb_run": {"Run": {"log": "tracker"}},
    "mlflow.tracking.fluent": {"": {**_METRICS, "log_artifact": "tracker", "log_figure": "figure"}},
    "comet_ml.experiment": {"BaseExperiment": _METRICS},
    "aim.sdk.run": {"Run": {"track": "tracker"}},
}
_C10D: Final = "torch.distributed.distributed_c10d"
_COLLECTIVES: Final[dict[str, _Places]] = {
    _C10D: {
        "": {
            "all_reduce": "all_reduce", "barrier": "barrier", "monitored_barrier": "barrier",
            "broadcast": "broadcast", "broadcast_object_list": "broadcast", "all_gather": "all_gather",
            "all_gather_into_tensor": "all_gather", "all_gather_object": "all_gather",
            "gather": "all_gather", "gather_object": "all_gather", "reduce_scatter": "reduce_scatter",
            "reduce_scatter_tensor": "reduce_scatter", "reduce": "reduce", "all_to_all": "all_to_all",
            "all_to_all_single": "all_to_all", "send": "send", "recv": "recv", "scatter": "other",
            "scatter_object_list": "other",
        }
    }
}  # fmt: skip


class Family:
    """Functions of which a call inside another belongs to the outer one. ``sized``: rows have the bytes."""

    def __init__(
        self, probe: Probe, name: str, kind: int, ops: tuple[str, ...], *, sized: bool = False
    ) -> None:
        self._probe, self._name, self._kind, self._ops, self._sized = probe, name, kind, ops, sized
        self._inside = False

    def follow(self, modules: Mapping[str, _Places]) -> None:
        """Observe the functions of modules that are imported, now or later."""
        for module, places in modules.items():

            def patch(loaded: Any, places: _Places = places) -> None:
                self.patch(loaded, places)

            self._probe.hooks.on_import(module, patch, self._name)

    def patch(self, module: Any, places: _Places, also: tuple[Any, ...] = ()) -> None:
        """Observe the functions of a module; ``also`` holds the same ones."""
        for cls, functions in places.items():
            owner = module
            for part in filter(None, cls.split(".")):
                owner = getattr(owner, part, None)
            for name, word in functions.items():
                if owner is not None and name in vars(owner):
                    self._observe(owner, name, self._ops.index(word), also if owner is module else ())

    def _observe(self, owner: Any, name: str, operation: int, also: tuple[Any, ...]) -> None:
        probe = self._probe

        def begin(args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
            if self._inside:
                return None
            size = tensor_bytes(args, kwargs) if self._sized else 0
            self._inside = True
            return probe.site(frame), size

        def end(token: Any, start: int, stop: int, result: Any) -> None:
            self._inside = False
            site, size = token
            probe.emit(self._kind, start, stop - start, size, site, operation)

        unseen = self._kind == SAVE
        probe.hooks.around(owner, name, self._name, begin, end, also=also, unseen=unseen)


def tensor_bytes(args: tuple[Any, ...], kwargs: dict[str, Any]) -> int:
    """Bytes of the largest tensor, or list of tensors, among the arguments."""
    return min(max((_bytes(value) for value in (*args, *kwargs.values())), default=0), U32_MAX)


def _bytes(value: Any) -> int:
    if type(value) in (list, tuple):
        return sum(_bytes(item) for item in value)
    return int(value.numel() * value.element_size()) if is_tensor(value) else 0


def install(probe: Probe) -> None:
    """Observe all of them."""
    saves = Family(probe, "observers.checkpoints", SAVE, _SAVE_OPS)
    saves.patch(probe.torch, _OF_TORCH, (sys.modules["torch.serialization"],))
    saves.follow(_CHECKPOINTS)
    Family(probe, "observers.logs", LOG, LOG_OPS).follow(_LOGS)
    collectives = Family(probe, "observers.collectives", COLLECTIVE, COLLECTIVE_OPS, sized=True)

    def joined(token: Any, start: int, stop: int, result: Any) -> None:
        """Only now has a process its rank that no launcher gave it (``mp.spawn``, Lightning's first)."""
        if result is not RAISED and probe.role == "main" and probe.writer.opened:
            probe.introduce()

    def distributed(module: Any) -> None:
        also = (probe.torch.distributed,)
        collectives.patch(module, _COLLECTIVES[_C10D], also)
        probe.hooks.around(
            module, "init_process_group", "observers.collectives", lambda *called: probe, joined,
            also=also, any_thread=True,
        )  # fmt: skip

    probe.hooks.on_import(_C10D, distributed, "observers.collectives")
