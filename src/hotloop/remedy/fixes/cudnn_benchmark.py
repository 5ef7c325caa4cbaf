"""Let cuDNN time its convolution algorithms and keep the fastest."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="cudnn-benchmark",
    summary="Let cuDNN time its convolution algorithms and keep the fastest.",
    effect="numeric",
    alters="another algorithm may round differently, from run to run",
    answers=("device/cudnn-benchmark-off",),
    live="hotloop.remedy.live.flags:CudnnBenchmark",
    source="hotloop.remedy.source.flags:cudnn_benchmark",
    config_keys=("cudnn_benchmark",),
    words="torch.backends.cudnn.benchmark = True",
)
