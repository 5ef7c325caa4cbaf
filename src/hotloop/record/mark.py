"""Whether this user recorded a run, with this command in this folder: then the command may be run again.

A recording is foreign data, and names a command. Its mark is a keyed checksum of what it names; the key
lies in the user's own state folder and in no recording.
"""

from __future__ import annotations

import hmac
import json
import os
import secrets
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Final

_BYTES: Final = 32


def mark(command: Sequence[str], cwd: str) -> str:
    """What only this user can put into ``run.json``; "" where no key can be kept."""
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
