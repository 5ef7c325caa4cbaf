"""Switches that make a busy accelerator faster, and how they stand: one row each. Gains are assumed."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from hotloop.diagnose.device_state import (
    capability,
    computing_s,
    device_bound,
    device_s,
    is_all_calls,
    launching_idle_s,
    memory_ratio,
    power_ratio,
)
from hotloop.diagnose.evidence import Evidence, RuleEntry, cause, decided, rule
from hotloop.diagnose.facts import (
    autocast_share,
    batch_shapes,
    flag,
    has_conv,
    is_compiled,
    low_precision_weights,
    num_params,
    trained_modules,
    wanted,
)
from hotloop.diagnose.rules.device.hot_module import share_of
from hotloop.diagnose.source import sources
from hotloop.findings import Finding, Place
from hotloop.measure.steps import Steps
from hotloop.units import duration, share

#: A source asks for float64 where tensors are made with it; a cast may only match what numpy made.
_ASKED = re.compile(r"\b(dtype\s*=|set_default_dtype\()\s*torch\.(float64|double)\b")
_WIDE = re.compile(r"\.double\(\)|\btorch\.(float64|double)\b|\bDoubleTensor\b")
#: A device that computes draws well over half of its power limit; one that moves small tensors does not.
_POWER_RATIO = 0.35
#: Compute capabilities from which half precision is faster than single, and TF32 and bfloat16 are known.
_TENSOR_CORES, _TF32 = (7, 0), (8, 0)


@dataclass(frozen=True, kw_only=True)
class _Switch:
    """One switch that stands the slow way in a device-bound run, where ``is_off`` says so.

    ``saves`` names the limit that holds the assumed share of device time; ``numbers`` come before it.
    """

    id: str
    is_off: Callable[[Evidence], bool]
    message: str
    saves: str = "small_saves_ratio"
    numbers: Callable[[Evidence], list[str]] = lambda evidence: []
    loop: bool = False  # stands at the training loop
    exact: bool = False
    meant: str = ""  # the setting that may ask for it: then it is information
    on_cpu: Callable[[Evidence], Iterator[Finding]] = lambda evidence: iter(())

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Price the switch where it is off and the device is what the run waits for."""
        if not evidence.on_accelerator:
            yield from self.on_cpu(evidence)
        if not device_bound(evidence) or not self.is_off(evidence):
            return
        saves = getattr(evidence.limits, self.saves)
        meant = wanted(evidence.steps, self.meant) if self.meant else None
        configured = f"configured{f' in {meant.where}' if meant.where else ''}" if meant else ""
        yield cause(
            evidence,
            message=self.message,
            numbers=[
                *self.numbers(evidence),
                *([configured] if configured else []),
                f"saving assumed, not measured: {share(saves)} of device time",
            ],
            cost_s=saves * device_s(evidence),
            where=evidence.steps.source_loop if self.loop else None,
            severity="info" if meant else None,
            data={"assumed": True, **({} if self.exact else {"effect": "numeric"})},
        )


def _is_large(evidence: Evidence) -> bool:
    """A model that precision matters to: smaller ones are launch-bound first."""
    return num_params(evidence.steps) >= evidence.limits.large_model_params


def _in_half_precision(steps: Steps) -> bool:
    return (autocast_share(steps) or 0.0) > 0.5 or low_precision_weights(steps)


def _amp_off(evidence: Evidence) -> bool:
    steps = evidence.steps
    if autocast_share(steps) != 0.0 or low_precision_weights(steps) or wanted(evidence.steps, "amp"):
        return False
    return capability(evidence) >= _TENSOR_CORES and (has_conv(steps) or _is_large(evidence))


def _tf32_off(evidence: Evidence) -> bool:
    steps = evidence.steps
    if capability(evidence) < _TF32 or _in_half_precision(steps):
        return False
    if has_conv(steps):
        return flag(steps, "cudnn_allow_tf32") is False
    highest = flag(steps, "float32_matmul_precision") == "highest"
    return highest and flag(steps, "matmul_allow_tf32") is False and _is_large(evidence)


def _benchmark_off(evidence: Evidence) -> bool:
    steps = evidence.steps
    off = flag(steps, "cudnn_benchmark") is False and not _deterministic(steps)
    return has_conv(steps) and off and len(set(batch_shapes(evidence))) == 1


def _deterministic(steps: Steps) -> list[str]:
    """The switches of determinism that are on."""
    return [name for name in ("deterministic_algorithms", "cudnn_deterministic") if flag(steps, name)]


def _channels_first(evidence: Evidence) -> bool:
    """Whether convolutions run so; where they were timed, whether they take enough to matter."""
    steps, all_of = evidence.steps, evidence.steps.modules
    flat = [m for m in trained_modules(steps) if m.get("has_conv") and m.get("conv_ndim") == 2]
    timed = [
        one
        for one in all_of
        if one.cls.startswith("Conv") and not any(other.name.startswith(f"{one.name}.") for other in all_of)
    ]
    much = sum(share_of(steps, one) for one in timed) >= evidence.limits.worth_fixing_ratio
    return bool(flat) and all(m.get("channels_last") is False for m in flat) and (much or not timed)


def _transposes(evidence: Evidence) -> bool:
    steps = evidence.steps
    return capability(evidence) >= _TF32 and _channels_first(evidence) and _in_half_precision(steps)


def _channels_first_on_cpu(evidence: Evidence) -> Iterator[Finding]:
    """Convolutions that a CPU computes with channels first, in steps that are mostly computing: a launch says
    what the other layout saves (``benchmarks/layouts.py``).
    """
    steps, computing = evidence.steps, computing_s(evidence)
    much = computing >= evidence.limits.device_bound_ratio * steps.step_s
    if not much or is_all_calls(evidence) or not _channels_first(evidence):
        return
    yield cause(
        evidence,
        message="Convolutions run with channels first; on a CPU channels last mostly takes less.",
        advice="model.to(memory_format=torch.channels_last) changes the layout; hotloop tune measures it.",
        numbers=[f"{duration(computing)} per step in forward, backward and optimizer"],
        where=steps.source_loop,
        severity="info",
        remedies=("channels-last",),
        data={"effect": "numeric", "unpriced": True},
    )


_SWITCHES = (
    _Switch(
        id="device/amp-off",
        is_off=_amp_off,
        message="The device is the bottleneck and computes in float32 instead of on its tensor cores.",
        numbers=lambda evidence: [
            f"device busy {duration(device_s(evidence))} of {duration(evidence.steps.step_s)} per step",
            "no training forward ran under autocast",
        ],
        saves="amp_saves_ratio",
        loop=True,
    ),
    _Switch(
        id="device/tf32-off",
        is_off=_tf32_off,
        message="The device computes float32 matrix products in full precision although it knows TF32.",
        numbers=lambda evidence: [
            f"float32_matmul_precision={flag(evidence.steps, 'float32_matmul_precision')}, "
            f"cudnn.allow_tf32={flag(evidence.steps, 'cudnn_allow_tf32')}"
        ],
        saves="tf32_saves_ratio",
    ),
    _Switch(
        id="device/cudnn-benchmark-off",
        is_off=_benchmark_off,
        message="Convolutions run with cuDNN's first guess of an algorithm: cudnn.benchmark is off.",
        numbers=lambda evidence: ["all batches seen have one shape"],
        exact=True,
    ),
    _Switch(
        id="device/channels-last-off",
        is_off=_transposes,
        on_cpu=_channels_first_on_cpu,
        message="Convolutions run in half precision with channels first: cuDNN transposes each time.",
    ),
    _Switch(
        id="device/compile-off",
        is_off=lambda evidence: not is_compiled(evidence.steps) and _is_large(evidence),
        message="The model runs kernel by kernel: torch.compile would fuse the small ones.",
    ),
    _Switch(
        id="device/deterministic-on",
        is_off=lambda evidence: bool(_deterministic(evidence.steps)),
        message="Deterministic algorithms are on: slower kernels, and no cudnn.benchmark.",
        numbers=lambda evidence: [f"{name}=True" for name in _deterministic(evidence.steps)],
        meant="deterministic",
    ),
)
RULES = tuple(RuleEntry(id=one.id, check=one.check) for one in _SWITCHES)


@rule("device/amp-not-in-effect", short_runs=True)
def amp_not_in_effect(evidence: Evidence) -> Iterator[Finding]:
    """A configuration that says mixed precision beside training forwards that were all outside autocast."""
    steps, limits = evidence.steps, evidence.limits
    setting = wanted(evidence.steps, "amp")
    if setting is None or autocast_share(steps) != 0.0 or low_precision_weights(steps):
        return
    by, bound = setting.by, device_bound(evidence)
    where = f" in {setting.where}" if setting.where else ""
    numbers = [f"configured {setting.configured}{where}", "share of training forwards under autocast: 0 %"]
    if bound:
        numbers.append(f"saving assumed, not measured: {share(limits.amp_saves_ratio)} of device time")
    yield cause(
        evidence,
        message=f"Mixed precision is configured{where} but no training forward ran under autocast"
        f"{f': {decided(by)}, which {setting.configured} never equals' if by else ''}.",
        numbers=numbers,
        cost_s=limits.amp_saves_ratio * device_s(evidence) if bound else 0.0,
        where=Place(file=by.file, line=by.line) if by else steps.source_loop,
        severity=None if bound else ("low" if evidence.on_accelerator else "info"),
        data={"assumed": bound, "configured": setting.configured},
    )


@rule("device/low-intensity")
def low_intensity(evidence: Evidence) -> Iterator[Finding]:
    """A busy device far below its power limit: small or memory-bound kernels, not arithmetic."""
    drawn = power_ratio(evidence)
    if device_bound(evidence) and drawn is not None and drawn < _POWER_RATIO:
        yield cause(
            evidence,
            message=f"The device is busy but draws only {share(drawn)} of its power limit.",
            numbers=[f"power {share(drawn)} of the limit in the run's second half"],
            severity="info",
        )


@rule("device/float64")
def float64(evidence: Evidence) -> Iterator[Finding]:
    """Most trained weights are float64. No row tells whether the task needs that, and what is saved is
    assumed: low at most, and information where the source makes its tensors so.
    """
    steps, saves = evidence.steps, evidence.limits.float64_saves_ratio
    dtypes: Counter[str] = Counter()
    for module in trained_modules(steps):
        dtypes.update(module.get("param_dtypes") or {})
    computing = computing_s(evidence)
    if 2 * dtypes["float64"] <= dtypes.total() or not computing or is_all_calls(evidence):
        return
    large = saves * computing >= evidence.limits.medium_ratio * steps.step_s
    texts = sources(evidence).items()
    asked = any(_ASKED.search(text) for _, text in texts)
    set_by = (
        Place(file=file, line=text.count("\n", 0, found.start()) + 1)
        for file, text in texts
        for found in _WIDE.finditer(text)
    )
    yield cause(
        evidence,
        message="The model computes in float64, which takes twice the time of float32 and more. Only a trial "
        "tells whether its task needs that.",
        numbers=[
            f"{share(dtypes['float64'] / dtypes.total())} of the weights are float64",
            f"saving assumed, not measured: {share(saves)} of {duration(computing)} of computing per step",
        ],
        cost_s=saves * computing,
        where=next(set_by, steps.source_loop),
        severity="info" if asked else "low" if large else None,
        data={"assumed": True, "effect": "numeric"},
    )


@rule("device/batch-too-small")
def batch_too_small(evidence: Evidence) -> Iterator[Finding]:
    """A launch-bound device with most of its memory free, or a CPU that only calls; the seconds are those of
    ``host/launch-bound``.
    """
    steps, limits = evidence.steps, evidence.limits
    memory, loader = memory_ratio(evidence), steps.train_loader()
    batch: Any = loader.settings.get("batch_size") if loader else None
    if not isinstance(batch, int):
        return
    if calls := is_all_calls(evidence):
        leave = f"each step little but the calls of operations: {2 * batch} take well below twice as long"
        numbers = [f"{duration(computing_s(evidence))} per step in forward, backward and optimizer"]
    else:
        idle = launching_idle_s(steps) / steps.span_s
        if not evidence.on_accelerator or memory is None or idle < limits.launch_bound_ratio:
            return
        if memory > limits.small_batch_memory_ratio:
            return
        leave = f"the device idle {share(idle)} of the time and most memory free"
        numbers = [f"peak memory {share(memory)} of the device", f"idle while launching {share(idle)}"]
    each = round(steps.num_steps / max(1, steps.num_updates))  # accumulated over so many
    halves = steps.num_updates > 0 and each > 0 and each % 2 == 0
    yield cause(
        evidence,
        message=f"Batches of {batch} leave {leave}.",
        advice=f"Try batch_size={2 * batch} with half as many batches in each update: its samples stay."
        if halves
        else f"Try batch_size={2 * batch} with the learning rate scaled along; it changes the training.",
        numbers=numbers,
        severity="medium" if calls else "low",
        where=loader.where if loader else None,
        remedies=() if halves else None,
        data={"effect": "numeric" if halves else "semantic", "batch_size": 2 * batch},
    )
