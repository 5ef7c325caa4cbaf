"""Everything is looked at once, in order; torch is asked in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from hotloop.doctor import probe
from hotloop.doctor.checks import Line, Patient, gpus, host, software, storage
from hotloop.errors import UsageError
from hotloop.launch import machine
from hotloop.launch.machine import Gpus

_PATIENCE_S = 180.0


def examine(data: Path, *, python: str = sys.executable, quick: bool = False) -> list[Line]:
    """All lines about this machine, the storage of ``data`` and the torch of ``python``.

    Raises:
        UsageError: ``data`` is no folder, or ``python`` cannot be started.
    """
    if not data.is_dir():
        raise UsageError(
            f"{data} is not a folder", hint="--data names the folder that training data is read from"
        )
    facts = machine.facts(data)
    now = Gpus().sample() if facts.get("gpus") else {}
    for gpu in facts.get("gpus") or ():
        for name in ("memory_used_bytes", "throttle_reasons"):
            gpu[name] = now.get(f"gpu{gpu.get('index', 0)}_{name.replace('_used', '')}")
    patient = Patient(
        machine=facts, torch=ask_torch(python, quick=quick), environment=os.environ, data=data, quick=quick
    )
    return [line for part in (host, storage, software, gpus) for line in part(patient)]


def ask_torch(python: str, *, quick: bool) -> dict[str, Any]:
    """What ``probe`` printed under ``python``; ``error`` says why there is nothing."""
    command = [python, str(probe.__file__), *(["--quick"] if quick else [])]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_PATIENCE_S, check=False)
    except OSError as error:
        raise UsageError(
            f"{python} cannot be started: {error}", hint="--python names an interpreter"
        ) from error
    except subprocess.TimeoutExpired:
        return {"error": f"torch did not answer within {_PATIENCE_S:.0f} s: a GPU or its driver hangs"}
    try:
        found = json.loads(done.stdout)
    except ValueError:
        last = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
        return {"error": f"torch failed: {last}"}
    return dict(found)
