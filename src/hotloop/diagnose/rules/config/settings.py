"""Configuration against what was in effect: loader settings, switches of torch, accumulation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hotloop.diagnose.costs import feed_of
from hotloop.diagnose.evidence import Evidence, at, cause, decided, rule
from hotloop.diagnose.facts import ignored, written_down
from hotloop.diagnose.making import makes, waits
from hotloop.findings import Finding, Place
from hotloop.measure.settings import plain_number
from hotloop.measure.steps import Setting
from hotloop.units import duration

_LOADER = ("num_workers", "batch_size", "prefetch_factor", "persistent_workers", "pin_memory")
_SWITCHES = ("cudnn_benchmark", "deterministic", "tf32", "compile")
_ACCELERATOR_ONLY = ("pin_memory", "cudnn_benchmark", "tf32")


def _ignored(evidence: Evidence, names: Iterable[str]) -> Iterator[Setting]:
    for name in names:
        setting = ignored(evidence.steps, name)
        if setting is not None and (evidence.on_accelerator or name not in _ACCELERATOR_ONLY):
            yield setting


@rule("config/ignored-value", short_runs=True)
def ignored_value(evidence: Evidence) -> Iterable[Finding]:
    """Loader settings that were written down and not used; flags of torch have ``config/overridden-flag``."""
    loader = evidence.steps.train_loader()
    for setting in _ignored(evidence, _LOADER):
        if loader is None:
            continue
        cost, numbers = _cost(evidence, setting)
        name, configured, in_effect = setting.name, setting.configured, setting.in_effect
        built = f" (the loader is built{at(loader.where)})" if loader.where else ""
        by = f" ({decided(setting.by)})" if setting.by is not None else built
        file, _, line = (setting.where or "").rpartition(":")  # ``configs/a.yaml:12``, or an argument's name
        prefix = "by" if (setting.where or "").startswith("-") else "in"
        source = f" {prefix} {setting.where}" if setting.where else ""
        yield cause(
            evidence,
            message=f"{name} is configured as {configured}{source} but {in_effect} is in effect{by}.",
            advice=f"Pass the configured {name} to the DataLoader, or remove it from the configuration.",
            numbers=[f"{name}: configured {configured}, in effect {in_effect}", *numbers],
            cost_s=cost,
            where=Place(file=file, line=int(line)) if file and line.isdigit() else loader.where,
            severity=None if cost else "info",
            remedies=("num-workers",) if name == "num_workers" and cost else (),
            data={"setting": name, "configured": configured, "in_effect": in_effect},
        )


def _cost(evidence: Evidence, setting: Setting) -> tuple[float, list[str]]:
    """What the difference in workers costs where the loop waits for busy workers, 0 elsewhere."""
    wanted, have, feed = plain_number(setting.configured), plain_number(setting.in_effect), feed_of(evidence)
    if setting.name != "num_workers" or wanted is None or have is None or wanted <= have or feed is None:
        return 0.0, []
    if feed.workers != have:
        return 0.0, []  # another loader is waited for
    if feed.wait_s < evidence.limits.worth_fixing_ratio * feed.step_s or not feed.fits():
        return 0.0, ["the loop does not wait for data"]
    if have > 0 and feed.make_s / (have * feed.step_s) < evidence.limits.busy_workers_ratio:
        return 0.0, ["the workers are not busy: more of them would not help"]
    cost = feed.saved_by_workers(int(wanted)) * evidence.steps.exposed("data_wait")
    saved = f"{wanted:g} workers are predicted to save {duration(cost)}"
    return cost, [waits(feed), makes(feed), saved]


@rule("config/overridden-flag", short_runs=True)
def overridden_flag(evidence: Evidence) -> Iterable[Finding]:
    """Flags configured one way and in effect the other; mixed precision has ``device/amp-not-in-effect``."""
    for setting in _ignored(evidence, _SWITCHES):
        name, configured, in_effect, by = setting.name, setting.configured, setting.in_effect, setting.by
        if not isinstance(in_effect, bool):
            continue
        where = f" in {setting.where}" if setting.where else ""
        yield cause(
            evidence,
            message=f"{name} is configured {configured}{where} but {in_effect} in training"
            f"{f': {decided(by)}' if by else ''}.",
            advice=f"Set {name} from the configuration there, or remove the key."
            if by
            else f"Find what sets {name} after the configuration was read, or remove the key.",
            numbers=[f"configured {configured}, at the first step {in_effect}"],
            where=Place(file=by.file, line=by.line) if by and by.file else None,
            data={"setting": name, "configured": configured, "in_effect": in_effect},
        )


@rule("config/accumulation-mismatch", short_runs=True)
def accumulation_mismatch(evidence: Evidence) -> Iterable[Finding]:
    """Configured accumulation steps against backward passes per optimizer update."""
    steps = evidence.steps
    seen = steps.backwards_per_update
    setting = written_down(steps, "gradient_accumulation")
    wanted = plain_number(setting.configured) if setting is not None else None
    if wanted is None or wanted < 1 or steps.num_updates < evidence.limits.min_steps:
        return
    if abs(seen - round(seen)) > 0.1 or round(seen) == round(wanted):
        return
    if round(steps.num_steps / steps.num_updates) == round(wanted):
        return  # as many batches as configured, each with several backward passes (a loss each, chunks)
    yield cause(
        evidence,
        message=(
            f"Gradient accumulation is configured as {wanted:g} but the optimizer updates after every "
            f"{round(seen)} backward passes: the effective batch is not the configured one."
        ),
        numbers=[f"{steps.num_updates} updates in {steps.num_steps} steps, {seen:.2f} backward passes each"],
        severity="low",
        data={"configured": wanted, "in_effect": round(seen)},
    )
