"""``run.json``: what was run, where and how it ended, and whether this user recorded it."""

from __future__ import annotations

import hmac
import json
import os
import secrets
import stat
from collections.abc import Mapping, Sequence
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


_BYTES: Final = 32


def mark(command: Sequence[str], cwd: str) -> str:
    """What only this user can put into ``run.json``; "" where no key can be kept. A recording is foreign
    data, and names a command: by this keyed checksum of it a user's own is known, and may be run again.
    """
    key = _key()
    text = json.dumps([list(command), cwd]).encode()
    return hmac.new(key, text, "sha256").hexdigest() if key else ""


def is_own(command: Sequence[str], cwd: str, given: str) -> bool:
    """Whether a mark is this user's for this command."""
    return bool(given.isascii() and given) and hmac.compare_digest(mark(command, cwd), given)


def _key() -> bytes:
    """This user's key, made where there is none; empty where it cannot be kept to this user."""
    path = Path(os.environ.get("XDG_STATE_HOME") or "~/.local/state", "hotloop", "key")
    try:
        path = path.expanduser()
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:  # noqa: PTH123
                file.write(secrets.token_bytes(_BYTES))
        facts = path.stat()
        private = stat.S_ISREG(facts.st_mode) and facts.st_uid == os.getuid() and not facts.st_mode & 0o077
        key = path.read_bytes() if private else b""
    except (OSError, RuntimeError):  # no home, or one that cannot be written
        return b""
    return key if len(key) == _BYTES else b""
