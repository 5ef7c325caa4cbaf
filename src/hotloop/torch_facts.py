"""What PyTorch takes and means: DataLoader's arguments, and the many names people give a setting.

``MEANINGS`` says which names of configured values mean what; a meaning is PyTorch's own word where PyTorch
has one. Only known keys are ever looked at: a configuration holds passwords too. Standard library only; runs
in the user's process.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

#: ``DataLoader``'s arguments by position.
LOADER_POSITIONS: Final = (
    "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "num_workers", "collate_fn",
    "pin_memory", "drop_last", "timeout", "worker_init_fn",
)  # fmt: skip
#: What ``DataLoader`` takes where these are not passed (two batches ahead for each worker).
LOADER_DEFAULTS: Final[dict[str, Any]] = {
    "num_workers": 0, "prefetch_factor": 2, "pin_memory": False, "persistent_workers": False,
    "batch_size": 1, "drop_last": False, "shuffle": False,
}  # fmt: skip
#: What a loader without workers refuses.
OF_WORKERS: Final = frozenset(["persistent_workers", "prefetch_factor"])

#: Packages that write and read objects.
SERIALIZERS: Final = ("torch.serialization", "safetensors", "pickle", "cloudpickle", "dill", "joblib")
#: Torch code on the way into or out of an observed call.
TORCH_PHASES: Final = {
    "torch.nn.modules.module:__call__": "forward",
    "torch.nn.modules.module:_wrapped_call_impl": "forward",
    "torch.nn.modules.module:_call_impl": "forward",
    "torch.autograd:backward": "backward",
    "torch.autograd.graph:_engine_run_backward": "backward",
    "torch.optim.optimizer:profile_hook_step": "optimizer",
    "torch.optim.optimizer:wrapper": "optimizer",
    "torch.optim.optimizer:zero_grad": "optimizer",
}

#: A configuration with more entries than this is data, not configuration.
MAX_ENTRIES: Final = 4000
MAX_DEPTH: Final = 8

#: Kinds of value a meaning accepts; anything else under the same name means something else.
_COUNT, _FLAG, _NUMBER, _PRECISION = "count", "flag", "number", "precision"


@dataclass(frozen=True, kw_only=True)
class Meaning:
    """What a key can mean: the words that make its name, in any order, and the kind of its value.

    A name means this if one of ``needs`` is wholly among its words and every other word is in ``extra``.
    ``exactly`` lists names that follow no such rule.
    """

    kind: str
    needs: tuple[frozenset[str], ...]
    extra: frozenset[str]
    exactly: frozenset[str] = frozenset()

    def fits(self, name: str, words: frozenset[str]) -> bool:
        """Whether a name, given with its words, means this."""
        return name in self.exactly or any(
            need <= words and words - need <= self.extra for need in self.needs
        )


def _meaning(kind: str, needs: str, extra: str = "", exactly: str = "") -> Meaning:
    """``needs``: alternatives separated by ``|``, each the words that must all be there."""
    return Meaning(
        kind=kind,
        needs=tuple(frozenset(alternative.split()) for alternative in needs.split("|")),
        extra=frozenset(extra.split()),
        exactly=frozenset(exactly.split()),
    )


#: The meaning of keys that say how often an evaluation or a checkpoint is due.
INTERVAL: Final = "interval"
#: Meanings of keys that say how long a training is.
LENGTHS: Final = ("epochs", "max_steps")
_DUE: Final = (
    "val valid validate validation test eval evaluate evaluation save saving checkpoint checkpointing "
    "ckpt snapshot"
)
_HOW_OFTEN: Final = "every interval freq frequency period steps epochs"
_SWITCH: Final = "use using enable enabled do with is on torch"
_LOADER: Final = "train training data dataset loader dataloader dl"

MEANINGS: Final[Mapping[str, Meaning]] = {
    "num_workers": _meaning(
        _COUNT,
        "workers|worker num|worker n|nworkers|numworkers",
        f"num n number of total count cpu per gpu device {_LOADER}",
        "nw worker_num",
    ),
    "prefetch_factor": _meaning(_COUNT, "prefetch|prefetchfactor", f"factor num n batches {_LOADER}"),
    "pin_memory": _meaning(_FLAG, "pin|pinned|pinmemory", f"memory mem {_SWITCH} {_LOADER}"),
    "persistent_workers": _meaning(
        _FLAG, "persistent|keep workers", f"worker workers alive {_SWITCH} {_LOADER}"
    ),
    "batch_size": _meaning(
        _COUNT,
        "batch size|batchsize|batch sz|bs|bsz|bsize",
        f"per gpu device card mini micro local {_LOADER}",
        "samples_per_gpu imgs_per_gpu images_per_gpu ims_per_gpu minibatch_size n_batch batch_sz",
    ),
    "cudnn_benchmark": _meaning(_FLAG, "cudnn benchmark|trainer benchmark", f"backends {_SWITCH}"),
    "deterministic": _meaning(_FLAG, "deterministic|full determinism", f"cudnn algorithms mode {_SWITCH}"),
    "tf32": _meaning(_FLAG, "tf32", f"allow matmul cudnn cuda backends {_SWITCH}"),
    "amp": _meaning(
        _PRECISION,
        "amp|fp16|bf16|autocast|mixed precision|mixedprecision|half precision|precision",
        f"native training trainer {_SWITCH}",
    ),
    "compile": _meaning(_FLAG, "compile|torchcompile", f"model {_SWITCH}"),
    "gradient_accumulation": _meaning(
        _COUNT,
        "accumulation|accum|accumulate grad|accumulate gradients|accumulate steps|accumulate batches|"
        "accumulate iters|iters accumulate|cumulative iters",
        "grad grads gradient gradients accumulate steps step iter iters batches num n every to of",
    ),
    INTERVAL: _meaning(
        _COUNT,
        "|".join(f"{what} {how}" for what in _DUE.split() for how in _HOW_OFTEN.split()),
        "n num every model step steps epoch epochs iter iters iteration iterations batches in by at check "
        f"per and run do {_DUE}",
    ),
    "epochs": _meaning(
        _COUNT, "epochs", "n num number of max total train training", "nepochs max_epoch num_epoch n_epoch"
    ),
    "max_steps": _meaning(
        _COUNT,
        "max steps|max iters|max iterations|max updates|total steps|total iters|total iterations|train steps|"
        "train iters|train iterations|training steps",
        "n num number of max total train training",
    ),
    "lr": _meaning(
        _NUMBER, "lr|learning rate|lr0|learningrate", "base initial init optim optimizer optimiser"
    ),
}


@lru_cache(maxsize=4096)
def _by_name(name: str) -> str | None:
    words = frozenset(name.split("_"))
    return next((meaning for meaning, how in MEANINGS.items() if how.fits(name, words)), None)


#: A key with one of these words speaks of evaluation; it is not compared with the training loader.
_EVALUATION: Final = frozenset(
    {"val", "valid", "validation", "test", "testing", "eval", "evaluation", "infer", "inference", "predict"}
)
#: Under a key with one of these words stand bounds, or what may be chosen: nothing that is to be in effect.
_BOUNDS: Final = frozenset(
    {"limit", "limits", "bound", "bounds", "min", "max", "minimum", "maximum", "range", "ranges"}
    | {"choices", "allowed", "grid", "sweep", "search", "space", "presets"}
)
_HALF: Final = frozenset(
    {"16", "fp16", "bf16", "float16", "bfloat16", "half", "16-mixed", "bf16-mixed", "16-true", "bf16-true"}
    | {"true", "on", "yes", "o1", "o2"}
)
_FULL: Final = frozenset(
    ["32", "fp32", "float32", "full", "32-true", "64", "64-true", "no", "none", "false", "off", "o0"]
)
_TRUE: Final = frozenset(["true", "yes", "on", "1"])
_FALSE: Final = frozenset(["false", "no", "off", "0"])


def normal(key: str) -> str:
    """A key as the table spells it: lower case, words joined by ``_`` (``numWorkers``, ``--num-workers``)."""
    plain = key.strip().lstrip("-").replace("-", "_").replace(" ", "_")
    if not (plain.islower() or plain.isupper()):
        plain = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", plain)
    return plain.lower()


def meaning_of(key: str) -> str | None:
    """What a dotted key means, or None for keys hotloop does not know."""
    parts = [normal(part) for part in key.split(".") if part]
    if not parts or any(not _BOUNDS.isdisjoint(part.split("_")) for part in parts[:-1]):
        return None
    found = _by_name(parts[-1])
    if found is None and len(parts) > 1:
        found = _by_name(f"{parts[-2]}_{parts[-1]}")
    evaluates = any(not _EVALUATION.isdisjoint(part.split("_")) for part in parts)
    return None if evaluates and found != INTERVAL else found


def value_for(meaning: str, value: Any) -> Any:
    """The value as the meaning understands it (int, float or bool), or None where it cannot be meant."""
    kind = MEANINGS[meaning].kind
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
