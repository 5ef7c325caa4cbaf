"""Replay the step as one CUDA graph (torch.compile, reduce-overhead)."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="cuda-graphs",
    summary="Replay the step as one CUDA graph (torch.compile, reduce-overhead).",
    effect="numeric",
    alters="fused kernels round differently; outputs are overwritten by the next replay",
    answers=("host/launch-bound",),
    live="hotloop.remedy.live.compiled:CudaGraphs",
    source="hotloop.remedy.source.models:cuda_graphs",
    words=("torch.compile(model, mode='reduce-overhead'); shapes must not change from step to step"),
)
