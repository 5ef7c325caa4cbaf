"""What the run had in effect, read from ``Steps.facts`` without trusting its completeness."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Place
from hotloop.measure.steps import LoaderUse, Steps
from hotloop.torch_facts import value_for

Fact = Mapping[str, Any]


def flag(steps: Steps, name: str) -> Any:
    """A torch flag as it stood in the first training step, None when unknown."""
    torch = steps.facts.get("torch")
    if isinstance(torch, Mapping) and name in torch:
        return torch[name]
    return steps.facts.get(name)


def set_at(steps: Steps, name: str, value: object) -> Place | None:
    """The script's line that set a torch flag last, if it set it to this value."""
    torch = steps.facts.get("torch")
    by = torch.get("set_by") if isinstance(torch, Mapping) else None
    told = by.get(name) if isinstance(by, Mapping) else None
    if not isinstance(told, list | tuple) or len(told) != 3 or told[0] != value:
        return None
    return Place(file=str(told[1]), line=int(told[2]), function="")


def entries(steps: Steps, name: str) -> tuple[Fact, ...]:
    """A group of facts (``modules``, ``optimizers``, ``autocast``) as a tuple, however it was merged."""
    found = steps.facts.get(name)
    if isinstance(found, Mapping):
        values: Iterable[Any] = [found] if not _of_mappings(found) else found.values()
    elif isinstance(found, list | tuple):
        values = found
    else:
        values = ()
    return tuple(value for value in values if isinstance(value, Mapping))


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
    compile_note = steps.facts.get("compile")
    frames = compile_note.get("frames") if isinstance(compile_note, Mapping) else 0
    return bool(frames) or steps.compile_s > 0 or any(m.get("compiled") for m in entries(steps, "modules"))


def autocast_share(steps: Steps) -> float | None:
    """Share of training forwards that ran under autocast; None when nobody looked."""
    shares = [a.get("share") for a in entries(steps, "autocast")]
    known = [float(share) for share in shares if isinstance(share, int | float)]
    return max(known) if known else None


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


def is_on(value: Any) -> bool:
    """Whether a configured value means «on», in the spellings people use."""
    return value_for("amp", value) is True


def _of_mappings(found: Mapping[str, Any]) -> bool:
    return bool(found) and all(isinstance(value, Mapping) for value in found.values())
