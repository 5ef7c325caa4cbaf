"""Logging: TensorBoard writers, figures, progress bars, trackers, the logging module. Prints are the
sampler's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from hotloop.probe.observers.nesting import Outermost, constant
from hotloop.record.rows import LOG, LOG_OPS

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

NAME: Final = "observers.logs"

_WRITER: Final = {
    "add_scalar": "scalar", "add_scalars": "scalar", "add_image": "image", "add_images": "image",
    "add_image_with_boxes": "image", "add_figure": "figure", "add_video": "image",
    "add_histogram": "histogram",
    "add_histogram_raw": "histogram", "add_text": "text", "add_audio": "other", "add_embedding": "other",
    "add_pr_curve": "other", "add_mesh": "other", "add_graph": "other", "flush": "other", "close": "other",
}  # fmt: skip

#: Module -> (class or "" for the module itself, method -> word in LOG_OPS).
_PLACES: Final[dict[str, tuple[tuple[str, dict[str, str]], ...]]] = {
    "torch.utils.tensorboard.writer": (("SummaryWriter", _WRITER),),
    "tensorboardX.writer": (("SummaryWriter", _WRITER),),
    "matplotlib.figure": (("Figure", {"savefig": "figure"}),),
    "matplotlib.backends.backend_agg": (("FigureCanvasAgg", {"draw": "figure", "print_png": "figure"}),),
    "tqdm.std": (("tqdm", {"display": "progress", "refresh": "progress"}),),
    "rich.live": (("Live", {"refresh": "progress"}),),
    "logging": (("Logger", {"handle": "text"}),),
    "wandb.sdk.wandb_run": (("Run", {"log": "tracker"}),),
    "mlflow.tracking.fluent": (
        (
            "",
            {
                "log_metric": "tracker",
                "log_metrics": "tracker",
                "log_artifact": "tracker",
                "log_figure": "figure",
            },
        ),
    ),
    "comet_ml.experiment": (("BaseExperiment", {"log_metric": "tracker", "log_metrics": "tracker"}),),
    "aim.sdk.run": (("Run", {"track": "tracker"}),),
}


def install(probe: Probe) -> None:
    """Observe the loggers that are imported, now or later."""
    family = Outermost(probe, LOG)
    for module, places in _PLACES.items():

        def patch(loaded: Any, places: Iterable[tuple[str, dict[str, str]]] = places) -> None:
            _patch(probe, family, loaded, places)

        probe.hooks.on_import(module, patch, NAME)


def _patch(
    probe: Probe, family: Outermost, module: Any, places: Iterable[tuple[str, dict[str, str]]]
) -> None:
    for cls, methods in places:
        owner = getattr(module, cls, None) if cls else module
        for name, word in methods.items():
            if owner is not None and name in vars(owner):
                begin = family.begin(constant(LOG_OPS.index(word)))
                probe.hooks.around(owner, name, NAME, begin, family.end)
