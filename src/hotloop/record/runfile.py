"""``run.json``: what was run, where and how it ended; and the lock that says its launcher is alive."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from hotloop.errors import RecordingError
from hotloop.record.publish import write_text_atomic
from hotloop.record.rows import SCHEMA_VERSION

NAME: Final = "run.json"
_LOCK: Final = ".lock"


def write(folder: Path, run: Mapping[str, Any]) -> None:
    """Publish ``run.json``; raises OSError."""
    text = json.dumps({"schema": SCHEMA_VERSION, **run}, indent=1, default=str) + "\n"
    write_text_atomic(folder / NAME, text)


def read(folder: Path) -> dict[str, Any]:
    """The run's facts, empty without a ``run.json``; raises RecordingError on a damaged or newer one."""
    path = folder / NAME
    try:
        run = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
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
    check_schema(run.get("schema"), path)
    return run


def check_schema(schema: object, path: Path) -> None:
    """Raise RecordingError unless this version of hotloop reads that schema."""
    try:
        version = int(str(schema))
    except ValueError:
        raise RecordingError(
            f"{path} does not say which schema it has", hint="give the folder that `hotloop run` printed"
        ) from None
    if version > SCHEMA_VERSION:
        raise RecordingError(
            f"{path} was written by a newer hotloop (schema {version}; this one reads {SCHEMA_VERSION})",
            hint="upgrade hotloop: pip install --upgrade hotloop",
        )


class Lock:
    """Held on the raw folder while its launcher lives; the kernel lets go of it when the launcher dies."""

    def __init__(self, raw: Path) -> None:
        self._path = raw / _LOCK
        self._handle = -1

    def take(self, *, unless_sure: bool = True) -> bool:
        """Whether it is ours now; raises OSError where the folder cannot be written.

        On a file system without locks nobody can tell: the answer is then ``unless_sure``.
        """
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(handle)
            return False
        except OSError:
            if not unless_sure:
                os.close(handle)
                return False
        self._handle = handle
        return True

    def release(self, *, remove: bool = True) -> None:
        """Let go; the lock file goes too."""
        if self._handle >= 0:
            if remove:
                self._path.unlink(missing_ok=True)
            os.close(self._handle)
            self._handle = -1


def system_id() -> str:
    """Names this boot and process namespace: a recording's pids mean something only under the same one."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}:{Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return ""
