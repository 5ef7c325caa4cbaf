"""Which configured values hotloop knows, under which of the many names people give them.

``MEANINGS`` maps a meaning to its spellings; a meaning is PyTorch's own word where PyTorch has one. Only
known keys are ever looked at: a configuration holds passwords too. Standard library only; runs in the user's
process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

#: A configuration with more entries than this is data, not configuration.
MAX_ENTRIES: Final = 4000
MAX_DEPTH: Final = 8

#: Kinds of value a meaning accepts; anything else under the same name means something else.
_COUNT, _FLAG, _NUMBER, _PRECISION = "count", "flag", "number", "precision"

MEANINGS: Final[Mapping[str, tuple[str, str]]] = {
    "num_workers": (
        _COUNT,
        "num_workers workers n_workers nworkers numworkers num_worker n_worker worker_num number_of_workers "
        "dataloader_workers dataloader_num_workers num_dataloader_workers dataloader_n_workers "
        "loader_workers "
        "loader_num_workers num_loader_workers data_workers num_data_workers data_num_workers total_workers "
        "workers_per_gpu num_workers_per_gpu workers_per_device train_workers train_num_workers "
        "num_workers_train "
        "num_train_workers training_workers nw n_cpu_workers dataset_workers",
    ),
    "prefetch_factor": (
        _COUNT,
        "prefetch_factor prefetch num_prefetch prefetch_batches n_prefetch dataloader_prefetch_factor "
        "loader_prefetch_factor train_prefetch_factor dataloader_prefetch prefetchfactor",
    ),
    "pin_memory": (
        _FLAG,
        "pin_memory pin_mem pinned_memory pin use_pin_memory use_pinned_memory dataloader_pin_memory "
        "loader_pin_memory pinmemory train_pin_memory",
    ),
    "persistent_workers": (
        _FLAG,
        "persistent_workers persistent_worker persistent use_persistent_workers "
        "dataloader_persistent_workers "
        "loader_persistent_workers keep_workers keep_workers_alive train_persistent_workers",
    ),
    "batch_size": (
        _COUNT,
        "batch_size batchsize bs bsz bsize batch_sz train_batch_size batch_size_train train_bs "
        "training_batch_size "
        "per_device_train_batch_size per_gpu_train_batch_size per_gpu_batch_size batch_size_per_gpu "
        "per_device_batch_size batch_size_per_device batch_size_per_card samples_per_gpu imgs_per_gpu "
        "images_per_gpu ims_per_batch mini_batch_size minibatch_size micro_batch_size dataloader_batch_size "
        "train_micro_batch_size_per_gpu",
    ),
    "cudnn_benchmark": (
        _FLAG,
        "cudnn_benchmark use_cudnn_benchmark enable_cudnn_benchmark benchmark_cudnn cudnnbenchmark "
        "torch_cudnn_benchmark trainer_benchmark",
    ),
    "deterministic": (
        _FLAG,
        "deterministic use_deterministic cudnn_deterministic deterministic_algorithms "
        "use_deterministic_algorithms "
        "torch_deterministic full_determinism",
    ),
    "tf32": (_FLAG, "tf32 allow_tf32 use_tf32 enable_tf32 matmul_allow_tf32 cudnn_allow_tf32 tf32_enabled"),
    "amp": (
        _PRECISION,
        "amp use_amp amp_enabled enable_amp amp_enable with_amp native_amp fp16 use_fp16 fp16_enabled "
        "enable_fp16 "
        "bf16 use_bf16 bf16_enabled enable_bf16 autocast use_autocast enable_autocast mixed_precision "
        "use_mixed_precision enable_mixed_precision mixed_precision_enabled mixed_precision_training "
        "mixedprecision half_precision use_half_precision precision trainer_precision",
    ),
    "compile": (
        _FLAG,
        "compile use_compile torch_compile use_torch_compile compile_model model_compile enable_compile "
        "do_compile "
        "compile_enabled torchcompile enable_torch_compile",
    ),
    "gradient_accumulation": (
        _COUNT,
        "gradient_accumulation_steps gradient_accumulation gradient_accumulation_step "
        "grad_accumulation_steps "
        "grad_accumulation grad_accum_steps grad_accum accumulation_steps accum_steps accum_iter "
        "accumulate_steps "
        "accumulate_grad_batches accumulate_gradients gradient_accumulate_every grad_accum_every "
        "iters_to_accumulate cumulative_iters num_accumulation_steps gradient_accumulation_iters accum",
    ),
    "lr": (_NUMBER, "lr learning_rate base_lr lr0 initial_lr init_lr learningrate optim_lr optimizer_lr"),
}

_BY_NAME: Final = {name: meaning for meaning, (_, names) in MEANINGS.items() for name in names.split()}

#: A key below one of these speaks of evaluation, which hotloop does not compare with the training loader.
_EVALUATION: Final = re.compile(
    r"(?:^|[._])(?:val|valid|validation|test|testing|eval|evaluation|infer|inference|predict)(?:[._]|$)"
)
_CAMEL: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_HALF: Final = frozenset(
    [
        "16",
        "fp16",
        "bf16",
        "float16",
        "bfloat16",
        "half",
        "16-mixed",
        "bf16-mixed",
        "16-true",
        "bf16-true",
        "true",
        "on",
        "yes",
        "o1",
        "o2",
    ]
)
_FULL: Final = frozenset(
    ["32", "fp32", "float32", "full", "32-true", "64", "64-true", "no", "none", "false", "off", "o0"]
)
_TRUE: Final = frozenset(["true", "yes", "on", "1"])
_FALSE: Final = frozenset(["false", "no", "off", "0"])


def normal(key: str) -> str:
    """A key as the table spells it: lower case, words joined by ``_`` (``numWorkers``, ``--num-workers``)."""
    return _CAMEL.sub("_", key.strip().lstrip("-")).replace("-", "_").replace(" ", "_").lower()


def meaning_of(key: str) -> str | None:
    """What a dotted key means, or None for keys hotloop does not know."""
    parts = [normal(part) for part in key.split(".") if part]
    if not parts or _EVALUATION.search(".".join(parts)):
        return None
    found = _BY_NAME.get(parts[-1])
    if found is None and len(parts) > 1:
        found = _BY_NAME.get(f"{parts[-2]}_{parts[-1]}")
    return found


def value_for(meaning: str, value: Any) -> Any:
    """The value as the meaning understands it (int, float or bool), or None where it cannot be meant."""
    kind = MEANINGS[meaning][0]
    if kind == _COUNT:
        return _count(value)
    if kind == _NUMBER:
        return _number(value)
    if kind == _FLAG:
        return _flag(value)
    return _precision(value)


def known_values(tree: Any) -> Iterator[tuple[str, str, Any]]:
    """(dotted key, meaning, value) of each known key in nested mappings; none of a tree that is too large."""
    budget = MAX_ENTRIES
    stack: list[tuple[str, Any, int]] = [("", tree, 0)]
    found = []
    while stack:
        prefix, node, depth = stack.pop(0)
        for key, value in node.items():
            budget -= 1
            if budget < 0:
                return
            if not isinstance(key, str):
                continue
            dotted = f"{prefix}{key}"
            meaning = meaning_of(dotted)
            plain = None if meaning is None else value_for(meaning, value)
            if meaning is not None and plain is not None:
                found.append((dotted, meaning, plain))
            elif isinstance(value, Mapping) and depth < MAX_DEPTH:
                stack.append((f"{dotted}.", value, depth + 1))
    yield from found


def _count(value: Any) -> int | None:
    if isinstance(value, bool):
        return None
    if isinstance(value, int):
        return value
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and value.strip().isdigit():
        return int(value)
    return None  # "auto", "cpu*0.6": nothing that can be compared


def _number(value: Any) -> float | None:
    if isinstance(value, bool):
        return None
    try:
        return float(value) if isinstance(value, (int, float, str)) else None
    except ValueError:
        return None


def _flag(value: Any) -> bool | None:
    if isinstance(value, bool):
        return value
    if isinstance(value, int) and value in (0, 1):
        return bool(value)
    if isinstance(value, str):
        text = value.strip().lower()
        return True if text in _TRUE else False if text in _FALSE else None
    return None


def _precision(value: Any) -> bool | None:
    """Whether the value asks for half precision: a flag, ``bf16-mixed``, ``O1``, or a section left on."""
    if isinstance(value, bool):
        return value
    if isinstance(value, Mapping):
        # mmcv's `fp16 = dict(loss_scale=512.)` is on by being there; `amp: {enabled: false}` is read by its
        # own key.
        return True if value and not any(normal(str(key)) in ("enabled", "enable") for key in value) else None
    text = str(value).strip().lower() if isinstance(value, (str, int)) else ""
    if text in _FULL or text in _FALSE:
        return False
    return True if text in _HALF or text in _TRUE else None
