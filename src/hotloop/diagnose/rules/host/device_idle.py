"""The device waits for the host: for the next small kernel, or after the host waited for it."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.device_state import busy_ratio, computing_s, is_all_calls
from hotloop.diagnose.evidence import Evidence, at, calls_of, cause, rule
from hotloop.diagnose.facts import is_compiled
from hotloop.diagnose.memory_use import device_notes, growth, note_column
from hotloop.diagnose.source import line_text
from hotloop.findings import Finding
from hotloop.measure.steps import SiteCost, Steps
from hotloop.phases import CLASSES
from hotloop.units import duration, share


@rule("host/launch-bound")
def launch_bound(evidence: Evidence) -> Iterable[Finding]:
    """Idle device time while the host was inside forward, backward or the optimizer; a CPU that only calls
    operations, where no loader makes the batches.
    """
    steps, loader = evidence.steps, evidence.steps.train_loader()
    batched = loader is not None and any(loader.settings.get(one) for one in ("batch_size", "batch_sampler"))
    if is_all_calls(evidence) and not batched:
        yield cause(
            evidence,
            message="The model's operations are so small that a step is nothing but their calls.",
            advice="Put more samples into a step, or compile the model.",
            numbers=[f"{duration(computing_s(evidence))} per step in forward, backward and optimizer"],
            severity="medium",
            where=steps.source_loop,
            remedies=(),
        )
    if not evidence.on_accelerator or steps.device is None:
        return
    idle = {phase: steps.device.idle_s_by_phase.get(phase, 0.0) for phase in CLASSES["device"]}
    seconds = sum(idle.values())
    if steps.device.launch_bound_ratio is not None:  # kernel times are the truth where they were taken
        seconds = min(seconds, steps.device.launch_bound_ratio * steps.span_s) or (
            steps.device.launch_bound_ratio * steps.span_s
        )
    if seconds < evidence.limits.launch_bound_ratio * steps.span_s or _asks_the_driver(evidence):
        return
    cost = seconds / steps.num_steps
    compiled = is_compiled(steps)
    yield cause(
        evidence,
        message=(
            "The model's operations are too small for the device: it is idle "
            f"{share(seconds / steps.span_s)} of the time while the host launches the next one."
        ),
        advice=(
            "Use CUDA graphs (torch.compile mode='reduce-overhead') or a larger batch."
            if compiled
            else "Compile the model (torch.compile, mode='reduce-overhead'), or use a larger batch."
        ),
        numbers=[
            ", ".join(
                f"idle in {phase} {duration(s / steps.num_steps)} per step" for phase, s in idle.items()
            ),
            f"device busy {share(steps.device.busy_ratio)} of the training span",
            *(
                []
                if steps.device.launch_bound_ratio is not None
                else ["an upper bound: no kernel times (--profile)"]
            ),
        ],
        cost_s=cost,
        where=steps.source_loop,
        data={"upper_bound": steps.device.launch_bound_ratio is None},
    )


#: An allocator that took this much and doubled within the run asked for it in many steps.
_TAKEN_BYTES = 2**30


def _asks_the_driver(evidence: Evidence) -> bool:
    """Whether the allocator took more memory all along: each time the device waits for the driver."""
    notes = device_notes(evidence)
    reserved = note_column(notes, "device_reserved")
    if len(reserved) > 1 and reserved[-1] > max(2 * reserved[0], reserved[0] + _TAKEN_BYTES):
        return True
    return growth(note_column(notes, "t"), reserved) is not None


#: Phases in which an idle device is another cause's business.
_OTHERS_IDLE = {"startup", "data_wait", "epoch_gap", "evaluation", "checkpoint"}

#: The gradient scaler must know whether gradients were finite.
_NECESSARY = (".step(", ".update(", ".unscale_(")


@rule("host/sync-in-step")
def sync_in_step(evidence: Evidence) -> Iterable[Finding]:
    """Synchronizations in the step: without them the host runs ahead and the device's idle time fills."""
    steps = evidence.steps
    if not evidence.on_accelerator:
        return
    sites = [
        s for s in steps.sites.get("sync", ()) if s.in_step and s.seconds > 0 and not _needed(evidence, s)
    ]
    seconds = sum(site.seconds for site in sites)
    idle = _idle_s(evidence, steps)
    if not sites or idle is None:
        return
    saved = min(seconds, idle)
    if steps.device is None and seconds < evidence.limits.sync_ratio * steps.span_s:
        return
    cost = saved / steps.num_steps
    if cost <= 0:
        return
    top = sites[0]
    yield cause(
        evidence,
        message=(
            f"The host waits for the device in every step{at(top.place)} ({top.operation}), "
            f"and the device then idles: {duration(cost)} per step ({share(cost / steps.step_s)})."
        ),
        numbers=[
            *(
                f"{calls_of(steps, site)}, {duration(site.seconds / steps.num_steps)} per step"
                for site in sites[:5]
            ),
            f"device idle {duration(idle / steps.num_steps)} per step outside data waits",
        ],
        cost_s=cost,
        where=top.place,
        data={"sync_s_per_step": seconds / steps.num_steps, "idle_s_per_step": idle / steps.num_steps},
    )


def _needed(evidence: Evidence, site: SiteCost) -> bool:
    text = line_text(evidence, site.place)
    return "scaler" in text.lower() and any(call in text for call in _NECESSARY)


def _idle_s(evidence: Evidence, steps: Steps) -> float | None:
    """Seconds over the span the device had nothing to do that launching ahead would have filled."""
    if steps.device is not None:
        return sum(s for phase, s in steps.device.idle_s_by_phase.items() if phase not in _OTHERS_IDLE)
    busy = busy_ratio(evidence)
    return None if busy is None else (1 - busy) * steps.span_s
