"""Everything hotloop patches in a user's process, with the version since which it holds, and why.

A test compares this with what is really patched. Besides these: torch's global optimizer hooks
(``register_optimizer_step_pre_hook``), ``gc.callbacks``, ``sys.meta_path``, ``os.register_at_fork``,
``atexit`` and dynamo's list of files to skip.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Point(NamedTuple):
    """One patched owner. ``since``: the oldest version found to have these names with this meaning."""

    owner: str
    names: tuple[str, ...]
    since: str
    why: str


_COLLECTIVES: Final = (
    "all_reduce", "barrier", "monitored_barrier", "broadcast", "broadcast_object_list",
    "all_gather",
    "all_gather_into_tensor", "all_gather_object", "gather", "gather_object", "reduce_scatter",
    "reduce_scatter_tensor", "reduce", "all_to_all", "all_to_all_single", "send", "recv", "scatter",
    "scatter_object_list",
)  # fmt: skip
_WRITER: Final = (
    "add_scalar", "add_scalars", "add_image", "add_images", "add_image_with_boxes", "add_figure",
    "add_video", "add_histogram", "add_histogram_raw", "add_text", "add_audio", "add_embedding",
    "add_pr_curve", "add_mesh", "add_graph", "flush", "close",
)  # fmt: skip
_TENSOR: Final = (
    "to", "cuda", "cpu", "copy_", "item", "tolist", "__bool__", "__float__", "__int__", "__index__", "numpy",
    "nonzero",
)  # fmt: skip
_TORCH: Final = "torch 2.6"
_PYTHON: Final = "python 3.11"

CATALOGUE: Final = (
    Point("torch.nn.modules.module.Module", ("__call__",), _TORCH, "outermost forward, module window"),
    Point("torch.nn.modules.module.Module", ("train",), _TORCH, "train and eval mode"),
    Point("torch.nn.modules.module.Module", ("state_dict",), _TORCH, "collecting a checkpoint"),
    Point("torch.autograd", ("backward", "grad"), _TORCH, "backward; Tensor.backward goes through it"),
    Point("torch.utils.checkpoint", ("checkpoint",), _TORCH, "whether activations are recomputed"),
    Point("torch.optim.optimizer.Optimizer", ("zero_grad", "state_dict"), _TORCH, "the rest of an update"),
    Point("torch.nn.utils", ("clip_grad_norm_", "clip_grad_value_"), _TORCH, "gradient clipping"),
    Point("torch.nn.utils.clip_grad", ("clip_grad_norm_", "clip_grad_value_"), _TORCH, "where it is defined"),
    Point(
        "torch.amp.grad_scaler.GradScaler", ("scale", "step", "unscale_", "update"), _TORCH, "skipped steps"
    ),
    Point("torch.utils.data.dataloader.DataLoader", ("__init__", "__iter__"), _TORCH, "loaders"),
    Point("torch.utils.data.dataloader._BaseDataLoaderIter", ("__next__",), _TORCH, "waiting for a batch"),
    Point(
        "torch.utils.data.dataloader._BaseDataLoaderIter",
        ("_next_index", "_reset"),
        _TORCH,
        "which samples a batch is of; only with --evidence",
    ),
    Point(
        "hotloop.feed.cache.cache.SampleCache",
        ("__init__",),
        "hotloop 0.1",
        "how often caches hit; only with --evidence",
    ),
    Point(
        "torch.utils.data.dataloader._SingleProcessDataLoaderIter",
        ("__init__",),
        _TORCH,
        "passes over loaders that are no DataLoader",
    ),
    Point("torch.utils.data.dataloader._MultiProcessingDataLoaderIter", ("__init__",), _TORCH, "the same"),
    Point("fastai.data.load._FakeLoader", ("__init__",), "fastai 2.8", "where fastai's loaders are built"),
    Point(
        "torch.utils.data.dataloader._MultiProcessingDataLoaderIter",
        ("_shutdown_workers",),
        _TORCH,
        "time spent ending workers",
    ),
    Point("hotloop.feed.engine.Engine", ("_shutdown_workers",), "hotloop 0.1", "time spent ending workers"),
    Point("torch.utils.data._utils.fetch._MapDatasetFetcher", ("fetch",), _TORCH, "making one batch"),
    Point("torch.utils.data._utils.fetch._IterableDatasetFetcher", ("fetch",), _TORCH, "making one batch"),
    Point("torch.Tensor", _TENSOR, _TORCH, "copies and waits; only where torch has an accelerator"),
    Point("torch.cuda", ("synchronize",), _TORCH, "explicit waits"),
    Point("torch.accelerator", ("synchronize",), _TORCH, "explicit waits"),
    Point("torch.mps", ("synchronize",), _TORCH, "explicit waits"),
    Point("torch.xpu", ("synchronize",), _TORCH, "explicit waits"),
    Point("torch.cuda.streams.Event", ("synchronize",), _TORCH, "explicit waits"),
    Point("torch.cuda.streams.Stream", ("synchronize",), _TORCH, "explicit waits"),
    Point("torch.distributed", _COLLECTIVES, _TORCH, "collectives called from Python"),
    Point("torch.distributed", ("init_process_group",), _TORCH, "ranks that are told after the start"),
    Point("torch.distributed.distributed_c10d", ("init_process_group",), _TORCH, "where it is defined"),
    Point("torch.distributed.distributed_c10d", _COLLECTIVES, _TORCH, "where they are defined"),
    Point("torch", ("save", "load"), _TORCH, "checkpoints"),
    Point("torch.serialization", ("save", "load"), _TORCH, "where they are defined"),
    Point("torch.distributed.checkpoint", ("save", "async_save", "load"), _TORCH, "sharded checkpoints"),
    Point("hotloop.feed.saving", ("async_save",), "hotloop 0.1", "checkpoints"),
    Point("safetensors.torch", ("save_file", "save_model", "load_file"), "safetensors 0.4", "checkpoints"),
    Point("torch.utils.tensorboard.writer.SummaryWriter", _WRITER, _TORCH, "logging"),
    Point("tensorboardX.writer.SummaryWriter", _WRITER, "tensorboardX 2.6", "logging"),
    Point("matplotlib.figure.Figure", ("savefig",), "matplotlib 3.7", "figures"),
    Point(
        "matplotlib.backends.backend_agg.FigureCanvasAgg", ("draw", "print_png"), "matplotlib 3.7", "figures"
    ),
    Point("tqdm.std.tqdm", ("display", "refresh"), "tqdm 4.60", "progress bars"),
    Point("rich.live.Live", ("refresh",), "rich 13", "progress bars"),
    Point("logging.Logger", ("handle",), _PYTHON, "log messages"),
    Point("wandb.sdk.wandb_run.Run", ("log",), "wandb 0.16", "trackers"),
    Point(
        "mlflow.tracking.fluent",
        ("log_metric", "log_metrics", "log_artifact", "log_figure"),
        "mlflow 2",
        "trackers",
    ),
    Point("comet_ml.experiment.BaseExperiment", ("log_metric", "log_metrics"), "comet_ml 3.30", "trackers"),
    Point("aim.sdk.run.Run", ("track",), "aim 3", "trackers"),
    Point(
        "socket.socket",
        ("accept", "recv", "recv_into", "recvfrom", "send", "sendall", "sendto"),
        _PYTHON,
        "viewers served by the training thread",
    ),
    Point("select", ("select",), _PYTHON, "viewers polled by the training thread"),
    Point("signal", ("signal",), _PYTHON, "the script's own handler of the sampler's signal goes first"),
    Point("argparse.ArgumentParser", ("parse_known_args",), _PYTHON, "what was configured"),
    Point("argparse._ActionsContainer", ("add_argument",), _PYTHON, "which options there are"),
    Point("json", ("load",), _PYTHON, "what was configured"),
    Point("tomllib", ("load",), _PYTHON, "what was configured"),
    Point("tomli", ("load",), "tomli 2", "what was configured"),
    Point("toml", ("load",), "toml 0.10", "what was configured"),
    Point("yaml", ("load",), "pyyaml 6", "what was configured"),
    Point("ruamel.yaml.main.YAML", ("load",), "ruamel.yaml 0.17", "what was configured"),
    Point("yacs.config.CfgNode", ("load_cfg",), "yacs 0.1.8", "what was configured"),
    Point(
        "hydra._internal.config_loader_impl.ConfigLoaderImpl",
        ("load_configuration",),
        "hydra 1.2",
        "what was configured",
    ),
    Point("torch.backends.ContextProp", ("__set__",), _TORCH, "which line set a flag of cuDNN"),
    Point("torch.backends.cuda.cuBLASModule", ("__setattr__",), _TORCH, "which line set TF32"),
    Point(
        "torch",
        ("set_float32_matmul_precision", "use_deterministic_algorithms", "set_num_threads"),
        _TORCH,
        "which line set them",
    ),
    Point("torch.autograd.anomaly_mode.set_detect_anomaly", ("__init__",), _TORCH, "which line turned it on"),
    Point("torch.autograd.anomaly_mode.detect_anomaly", ("__enter__",), _TORCH, "which line turned it on"),
    Point("torch.fx.traceback", ("format_stack",), _TORCH, "what anomaly detection takes"),
    Point("runpy", ("run_path",), _PYTHON, "configuration written in Python"),
    Point("mmengine.config.config.Config", ("fromfile",), "mmengine 0.7", "what was configured"),
    Point("mmcv.utils.config.Config", ("fromfile",), "mmcv 1.7", "what was configured"),
)
