"""A switch of torch was configured and stood the other way in the training steps."""

from __future__ import annotations

from collections.abc import Iterable

from hotloop.diagnose.causes import cause, decided
from hotloop.diagnose.configured import ignored
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.facts import flag, is_on
from hotloop.findings import Finding, Place
from hotloop.measure.steps import Setting

ID = "config/overridden-flag"

_FLAGS = ("cudnn_benchmark", "deterministic", "tf32", "compile")
_ACCELERATOR_ONLY = {"cudnn_benchmark", "tf32"}


def check(evidence: Evidence) -> Iterable[Finding]:
    """Flags configured one way and in effect the other; mixed precision has ``device/amp-not-in-effect``."""
    for name in _FLAGS:
        if name in _ACCELERATOR_ONLY and not evidence.on_accelerator:
            continue
        setting = ignored(evidence, name)
        if setting is None or not isinstance(setting.in_effect, bool) or _honoured(evidence, setting):
            continue
        where = f" in {setting.where}" if setting.where else ""
        by = setting.by
        yield cause(
            evidence,
            ID,
            message=f"{name} is configured {setting.configured}{where} but {setting.in_effect} in training"
            f"{f': {decided(by)}' if by else ''}.",
            advice=f"Set {name} from the configuration there, or remove the key."
            if by
            else f"Find what sets {name} after the configuration was read, or remove the key.",
            numbers=[f"configured {setting.configured}, at the first step {setting.in_effect}"],
            where=Place(file=by.file, line=by.line) if by and by.file else None,
            data={"setting": name, "configured": setting.configured, "in_effect": setting.in_effect},
        )


def _honoured(evidence: Evidence, setting: Setting) -> bool:
    """Whether a related flag does what was configured: cuDNN alone is deterministic, or has TF32."""
    related = {"deterministic": "cudnn_deterministic", "tf32": "cudnn_allow_tf32"}.get(setting.name)
    return related is not None and bool(flag(evidence.steps, related)) and is_on(setting.configured)
