"""Copies from host to device inside training steps: pageable, unpinned, blocking, small, or too wide."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from hotloop.diagnose import costs
from hotloop.diagnose.evidence import Evidence, RuleEntry, cause, rule
from hotloop.diagnose.source import dataset_text
from hotloop.findings import Finding
from hotloop.measure.steps import SiteCost
from hotloop.units import duration, share, size

#: Bytes made floats, read from the dataset's own source.
_WIDENS = re.compile(
    r"/\s*255|\bToTensor\(|\bto_tensor\(|convert_image_dtype|\bto_dtype\(.*scale=True|uint8.*\.(float|astype)\(|\.float\(\)\s*/"
)
_WIDTH = {"float32": 4, "torch.float32": 4, "float64": 8, "torch.float64": 8}


@dataclass(frozen=True, kw_only=True)
class Copies:
    """Copies to the device from some call sites, in steps. Seconds are what the device did not hide."""

    evidence: Evidence
    sites: Sequence[SiteCost]
    exposed: float  # share of host time the device did not hide

    @property
    def seconds(self) -> float:
        """Exposed seconds per step."""
        return sum(site.seconds for site in self.sites) * self.exposed / self.evidence.steps.num_steps

    @property
    def num_bytes(self) -> float:
        """Bytes per step."""
        return sum(site.num_bytes for site in self.sites) / self.evidence.steps.num_steps

    @property
    def count(self) -> float:
        """Copies per step."""
        return sum(site.count for site in self.sites) / self.evidence.steps.num_steps

    @property
    def large(self) -> bool:
        """Whether their bytes are what they cost, and not their calls."""
        return bool(self.sites) and self.num_bytes >= self.evidence.limits.large_copy_bytes

    def of(self, sites: Iterable[SiteCost]) -> Copies:
        """The same of some of the sites."""
        return Copies(evidence=self.evidence, sites=tuple(sites), exposed=self.exposed)

    def finding(self, cost_s: float, **said: Any) -> Finding:
        """A finding at the costliest site."""
        return cause(
            self.evidence,
            cost_s=cost_s,
            ci95=costs.phase_interval(self.evidence.steps, cost_s, "transfer"),
            where=max(self.sites, key=lambda site: site.seconds).place,
            **said,
        )


def _copies(evidence: Evidence) -> Copies | None:
    """The run's copies to the device, None on a CPU, with too few steps, or without any."""
    steps = evidence.steps
    if not evidence.on_accelerator:
        return None
    found = (one for one in steps.sites.get("transfer", ()) if one.operation != "device-to-host")
    sites = tuple(site for site in found if site.in_step)
    exposed = steps.exposed("transfer")
    return Copies(evidence=evidence, sites=sites, exposed=exposed) if sites else None


def _is_pinned(site: SiteCost) -> bool:
    """Whether most of the bytes lay in pinned memory; unknown counts as pinned, which accuses nobody."""
    return site.flags.get("pinned", 1.0) >= 0.5


@dataclass(frozen=True, kw_only=True)
class _Memory:
    """Large copies from one kind of memory: ``pins`` is what the training loader must have asked for,
    ``least`` their share of all bytes. The message may hold ``{size}`` and ``{seconds}``, of each step.
    """

    id: str
    picks: Callable[[SiteCost], bool]
    words: str
    message: str
    numbers: tuple[str, ...] = ()
    pins: bool | None = None
    least: float = 0.0

    def check(self, evidence: Evidence) -> Iterator[Finding]:
        """Price them where their bytes are what they cost."""
        every, loader = _copies(evidence), evidence.steps.train_loader()
        pins = loader is not None and bool(loader.settings.get("pin_memory"))
        if every is None or self.pins not in (None, pins):
            return
        found = every.of(site for site in every.sites if self.picks(site))
        moved, taken = size(found.num_bytes), duration(found.seconds)
        if found.large and found.num_bytes >= self.least * every.num_bytes:
            yield found.finding(
                found.seconds,
                message=self.message.format(size=moved, seconds=taken),
                numbers=[
                    f"{found.count:.0f} copies per step, {moved}, {self.words}",
                    *self.numbers,
                    f"{taken} of each step, {share(found.exposed)} of the copying with the device idle",
                ],
                data={"bytes_per_step": found.num_bytes},
            )


_MEMORIES = (
    _Memory(
        id="transfer/blocking",
        picks=lambda site: _is_pinned(site) and site.flags.get("non_blocking", 1.0) < 0.5,
        words="pinned, blocking",
        message="The batch is pinned but copied with non_blocking=False: the host waits {seconds} in each "
        "step while the device could already work.",
    ),
    _Memory(
        id="transfer/pageable",
        picks=lambda site: not _is_pinned(site),
        pins=False,
        words="not pinned",
        message="{size} per step are copied to the device from pageable memory, {seconds} of each step; the "
        "host waits meanwhile.",
    ),
    _Memory(
        id="transfer/pin-no-effect",
        picks=lambda site: not _is_pinned(site),
        pins=True,
        least=0.5,
        words="not pinned",
        message="pin_memory=True has no effect: {size} per step are copied from memory that is not pinned.",
        numbers=(
            "a batch of an own class without pin_memory(), or one that was changed on the host, loses its "
            "pinning",
        ),
    ),
)
RULES = tuple(RuleEntry(id=one.id, check=one.check, costed=True) for one in _MEMORIES)


@rule("transfer/many-small", costed=True)
def many_small(evidence: Evidence) -> Iterator[Finding]:
    """Price copies that are small and many: each costs its call, not its bytes."""
    every, limits = _copies(evidence), evidence.limits
    if every is None:
        return
    small = limits.small_copy_bytes
    found = every.of(site for site in every.sites if site.count and site.num_bytes / site.count < small)
    if found.count >= limits.many_copies:
        cost = found.seconds * (1.0 - 1.0 / found.count)  # one copy of everything would remain
        each = sum(one.seconds for one in found.sites) / max(1, sum(one.count for one in found.sites))
        yield found.finding(
            cost,
            message=(
                f"{found.count:.0f} small tensors ({size(found.num_bytes / found.count)} on average) are "
                f"copied to the device in every step, one by one: {duration(cost)}."
            ),
            numbers=[f"{found.count:.0f} copies per step below {size(small)}", f"{duration(each)} per copy"],
            data={"copies_per_step": found.count},
        )


@rule("transfer/oversized-dtype", costed=True)
def oversized_dtype(evidence: Evidence) -> Iterator[Finding]:
    """Needs an image-shaped float field, a dataset whose source widens bytes, and copies that cost time."""
    found, loader = _copies(evidence), evidence.steps.train_loader()
    if found is None or loader is None:
        return
    fields = [field for field in loader.batch_fields if _is_image(field)]
    if not fields or not _WIDENS.search(dataset_text(evidence, loader)):
        return
    total, wide = _bytes(loader.batch_fields), _bytes(fields)
    saved = sum(_bytes([field]) * (1 - 1 / _WIDTH[str(field.get("dtype"))]) for field in fields)
    if total <= 0 or wide < evidence.limits.large_copy_bytes:
        return
    dtype = str(fields[0].get("dtype")).removeprefix("torch.")
    yield found.finding(
        found.seconds * saved / total,
        message=(
            f"Images travel to the device as {dtype} ({size(wide)} per batch) though they were bytes: "
            f"{_WIDTH[dtype]} times what is needed."
        ),
        numbers=[
            f"field {fields[0].get('path')}: {dtype} {list(fields[0].get('shape') or ())}",
            "the dataset's source turns uint8 into floats",
            f"{size(saved)} of {size(total)} per batch would not have to be shipped",
        ],
        data={"saved_bytes": saved},
    )


def _bytes(fields: Iterable[Mapping[str, Any]]) -> float:
    return sum(float(field.get("bytes") or 0) for field in fields)


def _is_image(field: Mapping[str, Any]) -> bool:
    """A float field with channels and two large sides."""
    shape = [int(side) for side in field.get("shape") or ()]
    if str(field.get("dtype")) not in _WIDTH or len(shape) < 3:
        return False
    sides = sorted(shape[-3:]) if len(shape) >= 4 else sorted(shape)
    return sides[0] in (1, 3, 4) and sides[-2] >= 16
