"""Configuration against what was in effect: loader settings, switches of torch, accumulation."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from hotloop.diagnose.causes import at, cause, decided
from hotloop.diagnose.configured import ignored, number, written_down
from hotloop.diagnose.costs import exposed_ratio, feed_of
from hotloop.diagnose.discovery import ARGUMENT, rule
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.facts import flag, is_on
from hotloop.diagnose.making import makes, waits
from hotloop.findings import Finding, Place
from hotloop.measure.steps import LoaderUse, Setting
from hotloop.units import duration

_LOADER = ("num_workers", "batch_size", "prefetch_factor", "persistent_workers", "pin_memory")
#: Switches of torch, each with a related flag that does what was configured as well: cuDNN alone is
#: deterministic, or has TF32.
_SWITCHES = {
    "cudnn_benchmark": "",
    "deterministic": "cudnn_deterministic",
    "tf32": "cudnn_allow_tf32",
    "compile": "",
}
_ACCELERATOR_ONLY = ("pin_memory", "cudnn_benchmark", "tf32")


def _ignored(evidence: Evidence, names: Iterable[str]) -> Iterator[Setting]:
    for name in names:
        setting = ignored(evidence, name)
        if setting is not None and (evidence.on_accelerator or name not in _ACCELERATOR_ONLY):
            yield setting


@rule("config/ignored-value", short_runs=True, effort=ARGUMENT)
def ignored_value(evidence: Evidence) -> Iterable[Finding]:
    """Loader settings that were written down and not used; flags of torch have ``config/overridden-flag``."""
    loader = evidence.steps.train_loader()
    for setting in _ignored(evidence, _LOADER):
        if loader is None or _means_the_same(evidence, setting, loader):
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
            "config/ignored-value",
            message=f"{name} is configured as {configured}{source} but {in_effect} is in effect{by}.",
            advice=f"Pass the configured {name} to the DataLoader, or remove it from the configuration.",
            numbers=[f"{name}: configured {configured}, in effect {in_effect}", *numbers],
            cost_s=cost,
            where=Place(file=file, line=int(line)) if file and line.isdigit() else loader.where,
            severity=None if cost else "info",
            remedies=("num-workers",) if name == "num_workers" and cost else (),
            data={"setting": name, "configured": configured, "in_effect": in_effect},
        )


def _means_the_same(evidence: Evidence, setting: Setting, loader: LoaderUse) -> bool:
    """Whether a different number is the same intent: a batch divided among ranks or accumulation steps."""
    configured, in_effect = number(setting.configured), number(setting.in_effect)
    if setting.name in ("prefetch_factor", "persistent_workers") and not loader.settings.get("num_workers"):
        return True
    if configured is None or in_effect is None:
        return not isinstance(setting.configured, bool)
    if setting.name not in ("batch_size", "num_workers") or in_effect <= 0:
        return False
    ranks = max(1, len(evidence.ranks))
    updates = round(evidence.steps.backwards_per_update)
    parts = {ranks, updates, ranks * updates} if setting.name == "batch_size" else {ranks}
    return configured / in_effect in parts


def _cost(evidence: Evidence, setting: Setting) -> tuple[float, list[str]]:
    """What the difference in workers costs where the loop waits for busy workers, 0 elsewhere."""
    wanted, have, feed = number(setting.configured), number(setting.in_effect), feed_of(evidence)
    if setting.name != "num_workers" or wanted is None or have is None or wanted <= have or feed is None:
        return 0.0, []
    if feed.workers != have:
        return 0.0, []  # another loader is waited for
    if feed.wait_s < evidence.limits.worth_fixing_ratio * feed.step_s or not feed.fits():
        return 0.0, ["the loop does not wait for data"]
    if have > 0 and feed.make_s / (have * feed.step_s) < evidence.limits.busy_workers_ratio:
        return 0.0, ["the workers are not busy: more of them would not help"]
    cost = feed.saved_by_workers(int(wanted)) * exposed_ratio(evidence.steps, "data_wait")
    saved = f"{wanted:g} workers are predicted to save {duration(cost)}"
    return cost, [waits(feed), makes(feed), saved]


@rule("config/overridden-flag", short_runs=True)
def overridden_flag(evidence: Evidence) -> Iterable[Finding]:
    """Flags configured one way and in effect the other; mixed precision has ``device/amp-not-in-effect``."""
    for setting in _ignored(evidence, _SWITCHES):
        name, configured, in_effect, by = setting.name, setting.configured, setting.in_effect, setting.by
        honoured = flag(evidence.steps, _SWITCHES[name]) and is_on(configured)
        if not isinstance(in_effect, bool) or honoured:
            continue
        where = f" in {setting.where}" if setting.where else ""
        yield cause(
            evidence,
            "config/overridden-flag",
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
    note = written_down(evidence, "gradient_accumulation")
    wanted = number(note.get("value")) if note else None
    if wanted is None or wanted < 1 or steps.num_updates < evidence.limits.min_steps:
        return
    if abs(seen - round(seen)) > 0.1 or round(seen) == round(wanted):
        return
    if round(steps.num_steps / steps.num_updates) == round(wanted):
        return  # as many batches as configured, each with several backward passes (a loss each, chunks)
    yield cause(
        evidence,
        "config/accumulation-mismatch",
        message=(
            f"Gradient accumulation is configured as {wanted:g} but the optimizer updates after every "
            f"{round(seen)} backward passes: the effective batch is not the configured one."
        ),
        numbers=[f"{steps.num_updates} updates in {steps.num_steps} steps, {seen:.2f} backward passes each"],
        severity="low",
        data={"configured": wanted, "in_effect": round(seen)},
    )
