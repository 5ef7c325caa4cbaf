"""What the run had in effect, read from ``Steps.facts`` without trusting its completeness."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Place
from hotloop.measure.steps import LoaderUse, Setting, Steps
from hotloop.torch_facts import value_for

Fact = Mapping[str, Any]


def flag(steps: Steps, name: str) -> Any:
    """A torch flag as it stood in the first training step, None when unknown."""
    return (steps.facts.get("torch") or {}).get(name)


def set_at(steps: Steps, name: str, value: object) -> Place | None:
    """The script's line that set a torch flag last, if it set it to this value."""
    told = (flag(steps, "set_by") or {}).get(name)
    if not isinstance(told, list | tuple) or len(told) != 3 or told[0] != value:
        return None
    return Place(file=str(told[1]), line=int(told[2]), function="")


def operation_s(steps: Steps) -> float | None:
    """Seconds of forward and backward, on a core of its own, for each operation that autograd wrote down."""
    if not (nodes := float((steps.facts.get("graph") or {}).get("nodes_per_backward", 0))):
        return None
    passes_s = float(steps.per_step("forward") + steps.per_step("backward"))
    backwards = steps.backwards_per_update * steps.num_updates / steps.num_steps  # a step may be one of them
    return passes_s * steps.core_ratio / nodes / max(1.0, backwards)


def entries(steps: Steps, name: str) -> tuple[Fact, ...]:
    """A group of facts: the list of ``modules`` or ``optimizers``, the one of ``autocast`` or ``ddp``."""
    found = steps.facts.get(name) or ()
    return (found,) if isinstance(found, Mapping) else tuple(found)


def noted(steps: Steps, name: str) -> Fact:
    """The one fact of a group that has one, empty when unknown."""
    return next(iter(entries(steps, name)), {})


def trained_modules(steps: Steps) -> tuple[Fact, ...]:
    """The outermost modules that have trainable parameters."""
    return tuple(m for m in entries(steps, "modules") if (m.get("num_trainable") or 0) > 0)


def num_params(steps: Steps) -> int:
    """Parameters of the largest trained module, 0 when unknown."""
    return max((int(m.get("num_params") or 0) for m in trained_modules(steps)), default=0)


def has_conv(steps: Steps) -> bool:
    """Whether a trained module holds a convolution."""
    return any(m.get("has_conv") for m in trained_modules(steps))


def is_compiled(steps: Steps) -> bool:
    """Whether torch.compile had a part in the run."""
    frames = noted(steps, "compile").get("frames")
    return bool(frames) or steps.compile_s > 0 or any(m.get("compiled") for m in entries(steps, "modules"))


def autocast_share(steps: Steps) -> float | None:
    """Share of training forwards that ran under autocast; None when nobody looked."""
    share = noted(steps, "autocast").get("share")
    return None if share is None else float(share)


def low_precision_weights(steps: Steps) -> bool:
    """Whether a trained module holds half-precision weights: mixed precision has nothing to add."""
    return any(
        "float16" in str(dtype) for m in trained_modules(steps) for dtype in (m.get("param_dtypes") or {})
    )


def batch_shapes(evidence: Evidence, loader: LoaderUse | None = None) -> list[tuple[Any, ...]]:
    """The shapes of the noted batches (of one loader) but for their first dimension."""
    return [
        tuple((str(one.get("path")), tuple(one.get("shape") or ())[1:]) for one in note.get("fields") or ())
        for note in evidence.notes("batch")
        if loader is None or note.get("loader") == loader.id
    ]


def written_down(steps: Steps, name: str) -> Setting | None:
    """The setting of that name if somebody wrote its configured value down."""
    setting = next((one for one in steps.settings if one.name == name), None)
    if setting is None or setting.configured is None:
        return None
    return setting if not setting.sources or any(not one.default for one in setting.sources) else None


def ignored(steps: Steps, name: str) -> Setting | None:
    """The same if another value was in effect."""
    setting = written_down(steps, name)
    return setting if setting is not None and setting.differs else None


def wanted(steps: Steps, name: str) -> Setting | None:
    """The same if it should be on."""
    setting = written_down(steps, name)
    return setting if setting is not None and value_for("amp", setting.configured) is True else None
