"""cuDNN does not try its convolution algorithms although shapes never change."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.causes import cause
from hotloop.diagnose.costs import enough
from hotloop.diagnose.device_state import device_bound, device_s
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.facts import flag, has_conv
from hotloop.findings import Finding
from hotloop.units import share

ID = "device/cudnn-benchmark-off"


def check(evidence: Evidence) -> Iterable[Finding]:
    """Convolutions with batches of one shape, cudnn.benchmark off, in a device-bound run."""
    steps, limits = evidence.steps, evidence.limits
    if not enough(evidence) or not device_bound(evidence) or not has_conv(steps):
        return
    if flag(steps, "cudnn_benchmark") is not False or not _fixed_shapes(evidence):
        return
    if flag(steps, "cudnn_deterministic") or flag(steps, "deterministic_algorithms"):
        return  # device/deterministic-on
    yield cause(
        evidence,
        ID,
        message="Convolutions run with cuDNN's first guess of an algorithm: cudnn.benchmark is off.",
        advice="Set torch.backends.cudnn.benchmark = True; the shapes of the batches do not change.",
        numbers=[
            "all batches seen have one shape",
            f"saving assumed, not measured: {share(limits.small_saves_ratio)} of device time",
        ],
        cost_s=limits.small_saves_ratio * device_s(evidence),
        remedies=("cudnn-benchmark",),
        data={"assumed": True},
    )


def _fixed_shapes(evidence: Evidence) -> bool:
    """Whether every batch noted in this process had the same shapes; False when none was noted."""
    shapes = set()
    for process in evidence.recording.ranks:
        if process.pid != evidence.steps.pid:
            continue
        for note in process.notes.get("batch", ()):
            fields = note.get("fields") or ()
            shapes.add(tuple((str(f.get("path")), tuple(f.get("shape") or ())[1:]) for f in fields))
    return len(shapes) == 1
