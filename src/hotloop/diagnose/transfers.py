"""Copies from host to device inside training steps, by call site."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from hotloop.diagnose import costs
from hotloop.diagnose.evidence import Evidence
from hotloop.measure.steps import SiteCost


@dataclass(frozen=True, kw_only=True)
class Copies:
    """The host-to-device copies of a run. Seconds are per step and what the device did not hide."""

    sites: tuple[SiteCost, ...]
    exposed: float  # share of host time the device did not hide
    num_steps: int

    def seconds(self, sites: Iterable[SiteCost]) -> float:
        """Exposed seconds per step of some of the sites."""
        return sum(site.seconds for site in sites) * self.exposed / self.num_steps

    def bytes_per_step(self, sites: Iterable[SiteCost]) -> float:
        """Bytes per step of some of the sites."""
        return sum(site.num_bytes for site in sites) / self.num_steps

    def count_per_step(self, sites: Iterable[SiteCost]) -> float:
        """Copies per step of some of the sites."""
        return sum(site.count for site in sites) / self.num_steps


def copies(evidence: Evidence) -> Copies | None:
    """The run's copies to the device, None on a CPU, with too few steps, or without any."""
    if not evidence.on_accelerator or not costs.enough(evidence):
        return None
    steps = evidence.steps
    sites = tuple(site for site in steps.sites.get("transfer", ()) if site.in_step and to_device(site))
    if not sites:
        return None
    return Copies(sites=sites, exposed=costs.exposed_ratio(steps, "transfer"), num_steps=steps.num_steps)


def to_device(site: SiteCost) -> bool:
    """Whether the site's copies go from host to device."""
    return site.operation != "device-to-host"


def is_pinned(site: SiteCost) -> bool:
    """Whether most of the copied bytes lay in pinned memory; unknown counts as pinned, which accuses
    nobody.
    """
    return site.flags.get("pinned", 1.0) >= 0.5


def is_non_blocking(site: SiteCost) -> bool:
    """Whether most copies were asked for with non_blocking=True; unknown counts as yes."""
    return site.flags.get("non_blocking", 1.0) >= 0.5


def costliest(sites: Sequence[SiteCost]) -> SiteCost:
    """The site with the most seconds."""
    return max(sites, key=lambda site: site.seconds)
