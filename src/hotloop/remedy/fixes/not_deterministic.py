"""Allow algorithms that are faster but not reproducible bit for bit."""

from __future__ import annotations

from hotloop.remedy.remedy import Remedy

REMEDY = Remedy(
    id="not-deterministic",
    summary="Allow algorithms that are faster but not reproducible bit for bit.",
    effect="numeric",
    alters="two runs with one seed differ in the last bits",
    answers=("device/deterministic-on",),
    live="hotloop.remedy.live.flags:NotDeterministic",
    source="hotloop.remedy.source.flags:not_deterministic",
    config_keys=("deterministic",),
    words=(
        "leave out torch.use_deterministic_algorithms(True) and torch.backends.cudnn.deterministic = True"
    ),
)
