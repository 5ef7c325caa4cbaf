"""The plans as ``hotloop plan --json`` carries them; the terminal is rendered from the same dictionary."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from hotloop.footprint.training import device_memory
from hotloop.measure.steps import Steps
from hotloop.model import Prediction, Setup
from hotloop.record.recording import Recording
from hotloop.tune.plans.choose import Plan, Plans
from hotloop.tune.plans.fragments import fragments


def document(plans: Plans, steps: Steps, recording: Recording) -> dict[str, Any]:
    """Schema 1. Seconds, bytes, samples per second; ``gain`` is over the run's own settings there."""
    pipeline = plans.pipeline
    cwd = next((one.first("process").get("cwd") for one in recording.ranks if one.pid == steps.pid), None)
    device = device_memory(recording, recording.ranks[0])
    return {
        "schema": 1,
        "command": list(recording.command),
        "cwd": cwd,
        "device_bytes": device["peak_bytes"] if device else None,
        "machine": asdict(plans.machine),
        "now": {
            **_settings(pipeline.recorded),
            **_predicted(plans.now),
            "measured_s_per_step": pipeline.measured_s,
            "batch_samples": pipeline.batch_samples,
        },
        "plans": [_plan(plan, steps, recording.command) for plan in plans.plans],
        "doubts": list(plans.doubts),
    }


def _plan(plan: Plan, steps: Steps, command: Sequence[str]) -> dict[str, Any]:
    ratio, low, high = plan.gain
    return {
        "name": plan.name,
        "recommended": plan.recommended,
        "why": plan.why,
        "settings": dict(plan.settings),
        "remedies": [str(one) for one in plan.remedies],
        **_settings(plan.setup),
        **_predicted(plan.prediction),
        "gain": {"ratio": ratio, "ci95": [low, high], "measured": False},
        "effect": plan.effect,
        "alters": list(plan.alters),
        "cache_bytes": plan.cache_bytes,
        "fragments": [asdict(one) for one in fragments(plan.settings, plan.remedies, steps)],
        "command": _command(plan, command),
    }


def _settings(setup: Setup) -> dict[str, Any]:
    return {
        "num_workers": setup.num_workers,
        "prefetch_factor": setup.prefetch_factor if setup.num_workers else None,
        "persistent_workers": setup.persistent_workers,
    }


def _predicted(prediction: Prediction) -> dict[str, Any]:
    return {
        "s_per_step": prediction.s_per_step,
        "s_per_step_ci95": [prediction.low, prediction.high],
        "samples_per_s": prediction.samples_per_s or None,
        "host_bytes": prediction.host_bytes,
        "limit": prediction.limit,
        "confirm": prediction.confirm,
        "doubts": list(prediction.doubts),
    }


def _command(plan: Plan, command: Sequence[str]) -> str | None:
    """The command that tries the plan without an edit; None where it changes nothing."""
    asked = [
        _spelled(name, value)
        for name, value in plan.settings.items()
        if value is not None and value is not False
    ]
    asked += [str(one) for one in plan.remedies if one.remedy.live]
    if not asked:
        return None
    applied = " ".join(f"--apply {one}" for one in asked)
    return f"hotloop run {applied} -- {shlex.join(command)}"


def _spelled(name: str, value: Any) -> str:
    if name == "num_workers" and value == 0:
        return "no-workers"
    return name.replace("_", "-") + ("" if value is True else f"={value}")
