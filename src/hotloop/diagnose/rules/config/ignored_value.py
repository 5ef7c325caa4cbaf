"""A configured value never reached the loader or torch."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose import costs, says
from hotloop.diagnose.causes import at, cause, decided
from hotloop.diagnose.configured import ignored, number
from hotloop.diagnose.evidence import Evidence
from hotloop.findings import Finding, Place
from hotloop.measure.steps import LoaderUse, Setting
from hotloop.units import duration

ID = "config/ignored-value"
EFFORT = 0

_LOADER = ("num_workers", "batch_size", "prefetch_factor", "persistent_workers", "pin_memory")
_ACCELERATOR_ONLY = {"pin_memory"}


def check(evidence: Evidence) -> Iterable[Finding]:
    """Loader settings that were written down and not used; flags of torch have ``config/overridden-flag``."""
    for name in _LOADER:
        if name in _ACCELERATOR_ONLY and not evidence.on_accelerator:
            continue
        setting = ignored(evidence, name)
        loader = evidence.steps.train_loader()
        if setting is None or loader is None or _means_the_same(evidence, setting, loader):
            continue
        yield _finding(evidence, setting, loader)


def _finding(evidence: Evidence, setting: Setting, loader: LoaderUse) -> Finding:
    cost, numbers = _cost(evidence, setting)
    built = f" (the loader is built{at(loader.where)})" if loader.where else ""
    if setting.by is not None:
        built = f" ({decided(setting.by)})"
    return cause(
        evidence,
        ID,
        message=(
            f"{setting.name} is configured as {setting.configured}{_in(setting)} but {setting.in_effect} "
            f"is in effect{built}."
        ),
        advice=f"Pass the configured {setting.name} to the DataLoader, or remove it from the configuration.",
        numbers=[f"{setting.name}: configured {setting.configured}, in effect {setting.in_effect}", *numbers],
        cost_s=cost,
        where=_place(setting) or loader.where,
        severity=None if cost else "info",
        remedies=("num-workers",) if setting.name == "num_workers" and cost else (),
        data={"setting": setting.name, "configured": setting.configured, "in_effect": setting.in_effect},
    )


def _in(setting: Setting) -> str:
    if not setting.where:
        return ""
    return f" by {setting.where}" if setting.where.startswith("-") else f" in {setting.where}"


def _place(setting: Setting) -> Place | None:
    """``configs/a.yaml:12`` as a place; an argument's name is none."""
    file, _, line = (setting.where or "").rpartition(":")
    return Place(file=file, line=int(line)) if file and line.isdigit() else None


def _means_the_same(evidence: Evidence, setting: Setting, loader: LoaderUse) -> bool:
    """Whether a different number is the same intent: a batch divided among ranks or accumulation steps."""
    configured, in_effect = number(setting.configured), number(setting.in_effect)
    if setting.name == "prefetch_factor" and not loader.settings.get("num_workers"):
        return True
    if setting.name == "persistent_workers" and not loader.settings.get("num_workers"):
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
    wanted, have = number(setting.configured), number(setting.in_effect)
    feed = costs.feed(evidence)
    if setting.name != "num_workers" or wanted is None or have is None or wanted <= have or feed is None:
        return 0.0, []
    if feed.workers != have:
        return 0.0, []  # another loader is waited for
    if feed.wait_s < evidence.limits.worth_fixing_ratio * feed.step_s or not feed.fits():
        return 0.0, ["the loop does not wait for data"]
    if have > 0 and feed.make_s / (have * feed.step_s) < evidence.limits.busy_workers_ratio:
        return 0.0, ["the workers are not busy: more of them would not help"]
    cost = feed.saved_by_workers(int(wanted)) * costs.exposed_ratio(evidence.steps, "data_wait")
    return cost, [
        says.waits(feed),
        says.makes(feed),
        f"{wanted:g} workers are predicted to save {duration(cost)}",
    ]
