"""Switches of the device and of compiling; several processes or GPUs."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from typing import Final

from hotloop.audit.loaders import EVALUATION
from hotloop.audit.patterns import Hit, Rule, anywhere, at, every_step, flag_settings, gives, in_training
from hotloop.audit.program import Program
from hotloop.findings import Severity
from hotloop.source.attention import written_out
from hotloop.source.nodes import argument, chain


def _set_epoch(program: Program) -> Iterator[Hit]:
    """A shuffling DistributedSampler, and set_epoch called nowhere in the tree."""
    if program.mentions("set_epoch", "lightning", "pytorch_lightning"):
        return
    for module in program.modules:
        for call in module.calls_to("torch.utils.data.DistributedSampler"):
            function = module.function_of(call)
            called = {where for where, _ in program.callers(function)} if function else set()
            if not {module, *called} & set(program.training):
                continue  # whose loop it is cannot be seen
            if argument(call, "shuffle", 3) is not None and not gives(module, call, "shuffle", True, 3):
                continue
            targets = getattr(module.parents.get(call), "targets", [])
            if not EVALUATION.search(" ".join(chain(node) for node in (*targets, *call.args))):
                yield at(module, call, "high")


_MIXED: Final = (
    "autocast", "amp", "apex", "bfloat16", "float16", "fp16", "bf16", "half", "mixed_precision", "GradScaler",
    "Accelerator", "Fabric", "Trainer", "deepspeed", "precision",
)  # fmt: skip
_FUSED: Final = (
    "scaled_dot_product_attention", "flash_attn", "xformers", "memory_efficient_attention", "flash",
    "normalize(",
)  # fmt: skip
_TF32: Final[tuple[Severity, str, str]] = (
    "low",
    "TF32 is switched off: float32 work on Ampere and later GPUs runs outside the Tensor Cores.",
    "Remove the line, or call torch.set_float32_matmul_precision('high'); check the loss once.",
)
#: A flag that is switched off: severity, message, advice.
_OFF: Final[dict[str, tuple[Severity, str, str]]] = {
    "torch.backends.cudnn.benchmark": (
        "low",
        "cudnn.benchmark is switched off: cuDNN picks convolution kernels by rule instead of by measuring.",
        "Set it to True where input shapes stay the same; leave it off where they change at every step.",
    ),
    "torch.backends.cuda.matmul.allow_tf32": _TF32,
    "torch.backends.cudnn.allow_tf32": _TF32,
    "torch.backends.cudnn.enabled": (
        "high",
        "cuDNN is switched off: convolutions, recurrent layers and batch norm take PyTorch's own, slower "
        "kernels.",
        "Remove the line.",
    ),
}


def _amp_off(program: Program) -> Iterator[Hit]:
    """The first training loop on CUDA, where no word of mixed precision occurs anywhere."""
    for region in program.gpu_regions[:1] if not program.mentions(*_MIXED) else ():
        words = "Training runs in float32; nothing in the audited files uses mixed precision."
        yield at(region.module, region.root, "info", words)


def _compile_off(program: Program) -> Iterator[Hit]:
    """The first training loop on CUDA, where neither compile nor a script or graph is made."""
    if program.mentions("dynamo", "CUDAGraph", "make_graphed_callables", "Trainer"):
        return
    for module in program.modules:
        if any(module.calls_to("torch.compile", "torch.jit.script", "torch.jit.trace")):
            return
        if any(not module.dotted(call.func) for call in module.calls("compile")):
            return
    for region in program.gpu_regions[:1]:
        yield at(
            region.module,
            region.root,
            "info",
            "The model runs operation by operation; nothing in the audited files calls torch.compile.",
            "Try model = torch.compile(model) before the loop; `hotloop run` says whether launches hold the "
            "device up.",
        )


# Flags


def _cudnn_off(program: Program) -> Iterator[Hit]:
    """A flag of cuDNN that is False unconditionally and set nowhere else, where convolutions are used."""
    if any(word.startswith(("Conv", "conv")) for word in program.words):
        yield from _switched_off(program, "torch.backends.cudnn.benchmark", "torch.backends.cudnn.enabled")


def _tf32_off(program: Program) -> Iterator[Hit]:
    """allow_tf32 is set to False unconditionally, and nowhere else."""
    return _switched_off(program, "torch.backends.cuda.matmul.allow_tf32", "torch.backends.cudnn.allow_tf32")


def _switched_off(program: Program, *flags: str) -> Iterator[Hit]:
    for module in program.modules:
        settings = list(flag_settings(module))
        names = [name for name, _, _ in settings]
        deterministic = any(name.endswith(".deterministic") and value is True for name, _, value in settings)
        for name, node, value in settings:
            if name in flags and value is False and names.count(name) == 1:
                meant = deterministic and name.endswith("benchmark")
                if not meant and in_training(program, module, node):
                    yield at(module, node, *_OFF[name])


def _deterministic_on(program: Program) -> Iterator[Hit]:
    """cudnn.deterministic or use_deterministic_algorithms is on unconditionally."""
    for module in program.modules:
        nodes: list[ast.AST] = [
            node
            for name, node, value in flag_settings(module)
            if name == "torch.backends.cudnn.deterministic" and value is True
        ]
        calls = module.calls_to("torch.use_deterministic_algorithms")
        nodes += [call for call in calls if gives(module, call, "mode", True, 0)]
        sure = [node for node in nodes if in_training(program, module, node)]
        if sure:
            yield at(
                module,
                sure[0],
                "low",
                "Deterministic kernels are asked for in every run: cuDNN may not use its fastest "
                "convolutions, and results are repeated bit for bit only with equal seeds, batches and "
                "hardware.",
                also=sure[1:],
            )


# Attention by hand


def _attention_not_fused(program: Program) -> Iterator[Hit]:
    """Attention in one function whose weights go nowhere else, in a file without SDPA."""
    for module in program.modules:
        text = module.text.text
        if "softmax" not in text or any(word in text for word in _FUSED):
            continue
        for function in module.functions:
            softmax = written_out(module, function)
            if softmax is not None:
                yield at(
                    module,
                    softmax,
                    "info",
                    "Attention is written out: the matrix of all weights (length x length for each head) is "
                    "written to memory and read back for softmax, dropout and the product.",
                )


RULES: Final[dict[str, Rule]] = {
    "device/amp-off": _amp_off,
    "device/attention-not-fused": _attention_not_fused,
    "device/compile-in-loop": every_step("medium", "torch.compile"),
    "device/compile-off": _compile_off,
    "device/cudnn-benchmark-off": _cudnn_off,
    "device/deterministic-on": _deterministic_on,
    "device/tf32-off": _tf32_off,
    "distributed/barrier-in-step": every_step("medium", "torch.distributed.barrier"),
    "distributed/data-parallel": anywhere(
        "info", "torch.nn.DataParallel", "torch.nn.parallel.DataParallel", where_trained=True
    ),
    "distributed/set-epoch": _set_epoch,
}
