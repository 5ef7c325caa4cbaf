"""``run.json``: what was run, where and how it ended."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hotloop import foreign
from hotloop.errors import RecordingError
from hotloop.record.fields import checked
from hotloop.record.publish import write_text_atomic
from hotloop.record.rows import SCHEMA_VERSION
from hotloop.record.schema import check_version

NAME: Final = "run.json"


def write(folder: Path, run: Mapping[str, Any]) -> None:
    """Publish ``run.json``; raises OSError."""
    text = json.dumps({"schema": SCHEMA_VERSION, **run}, indent=1, default=str) + "\n"
    write_text_atomic(folder / NAME, text)


def read(folder: Path) -> tuple[dict[str, Any], list[str]]:
    """The run's facts, empty without a ``run.json``, and warnings; raises RecordingError."""
    path = folder / NAME
    if not os.path.lexists(path):
        return {}, []
    try:
        run = json.loads(foreign.read(path))
    except OSError as error:
        raise RecordingError(f"cannot read {path}: {error.strerror}", hint="check the permissions") from error
    except (ValueError, RecursionError) as error:
        raise RecordingError(
            f"{path} is damaged: {error}", hint="delete it to read what the other files hold, or run again"
        ) from error
    if not isinstance(run, dict):
        raise RecordingError(
            f"{path} is not a hotloop run", hint="give the folder that `hotloop run` printed"
        )
    check_version(run.get("schema"), path)
    run, bad = checked("run", run)
    warnings = [f"{path}: {name} could not be read" for name in bad]
    return run, [*(run.get("warnings") or ()), *warnings]
