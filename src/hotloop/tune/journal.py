"""trials.jsonl: every finished trial of a tuning, so that one that was ended goes on where it was."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import platform
import weakref
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any, Final

from hotloop.errors import UsageError
from hotloop.tune.trial import PROOF, Trial

NAME: Final = "trials.jsonl"
#: Files named by a command that are larger are data.
MOST_BYTES: Final = 1 << 20


class Journal:
    """The trials of one folder by key. The search asks for the same keys in the same order each time.

    Those of a round that did not come to its end are not taken up again: its launches are compared with each
    other, and were made at another time. ``seconds``: what all trials cost, those too.
    Raises UsageError where another process has it open. To be closed (``close``).
    """

    def __init__(self, folder: Path, heading: dict[str, Any], nodes: int = 1) -> None:
        self._path, self._nodes = folder / NAME, nodes
        self.trials: dict[str, Trial] = {}
        self.seconds = 0.0
        self._finished: set[str] = set()
        self._held: dict[str, str] = {}  # files that the unmodified run read
        handle = os.open(self._path, os.O_RDWR | os.O_CREAT, 0o666)
        self.close = weakref.finalize(self, os.close, handle)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise UsageError(
                f"a tuning is going on in this folder: {folder}",
                hint="wait for it, or give --out another folder",
            ) from error
        lines = self._read()
        if not lines:
            self._append({"schema": 1, **heading})
            return
        self._compare(lines[0], heading)
        self._finished = {str(line["finished"]) for line in lines if "finished" in line}
        self._held = next((line["held"] for line in lines if "held" in line), {})
        for trial in (Trial.of_json(line) for line in lines[1:] if "key" in line):
            self.seconds += self._share_s(trial)
            if (one := _round_of(trial.key)) is None or one in self._finished:
                self.trials[trial.key] = trial

    def add(self, trial: Trial) -> None:
        """On disk when this returns."""
        self._append(trial.to_json())
        self.trials[trial.key] = trial
        self.seconds += self._share_s(trial)

    def _share_s(self, trial: Trial) -> float:
        """What a trial cost of the time; those of a round run on all nodes at once."""
        return trial.seconds / (self._nodes if _round_of(trial.key) else 1)

    def finish(self, key: str) -> None:
        """The round of this key is whole."""
        if key not in self._finished:
            self._finished.add(key)
            self._append({"finished": key})

    def hold(self, files: Iterable[Path]) -> None:
        """The run as found read these. Raises UsageError where one of them is not what it was then."""
        files = list(files)
        if not self._held and files:
            self._held = {str(path): digest(path) for path in files}
            self._append({"held": self._held})
        self._compare({"files": self._held}, {"files": {name: digest(Path(name)) for name in self._held}})

    def _read(self) -> list[dict[str, Any]]:
        """The whole lines; a tuning that was killed while it wrote left part of one, which goes."""
        found: list[dict[str, Any]] = []
        good = 0
        for line in self._path.read_bytes().splitlines(keepends=True):
            if not line.endswith(b"\n"):
                break
            try:
                found.append(json.loads(line))
            except ValueError:
                break
            good += len(line)
        os.truncate(self._path, good)
        return found

    def _compare(self, found: dict[str, Any], heading: dict[str, Any]) -> None:
        for name, value in heading.items():
            if found.get(name) != value:
                raise UsageError(
                    f"{self._path.parent} holds a tuning of {_differing(name, found.get(name), value)}",
                    hint="give --out a new folder" + (name != "files") * ", or the same command and options",
                )

    def _append(self, line: dict[str, Any]) -> None:
        with self._path.open("a") as stream:
            stream.write(json.dumps(line) + "\n")
            stream.flush()
            os.fsync(stream.fileno())


def _round_of(key: str) -> str | None:
    """``race-1/0`` of ``race-1/0/ARM``; None of what is launched by itself. Arms may have slashes too."""
    kind, *more = key.split("/", 2)
    return f"{kind}/{more[0]}" if len(more) == 2 and not key.startswith(PROOF) else None


def _differing(name: str, before: Any, now: Any) -> str:
    if isinstance(now, dict):
        before = before if isinstance(before, dict) else {}
        names = sorted(one for one in {*before, *now} if before.get(one) != now.get(one))
        return f"other {name}, changed since: {', '.join(names[:3])}{', ...' * (len(names) > 3)}"
    return f"another {name}: {' '.join(map(str, before)) if isinstance(before, list) else before}"


def subject(command: Sequence[str]) -> dict[str, Any]:
    """Folder, host, torch, and digests of the small files named; the journal holds what the run read."""
    torch = ""
    with suppress(metadata.PackageNotFoundError):
        torch = metadata.version("torch")
    files = {str(path): digest(path) for path in sorted(set(_files(command)))}
    return {"folder": str(Path.cwd()), "host": platform.node(), "torch": torch, "files": files}


def _files(command: Sequence[str]) -> Iterator[Path]:
    for word in command[1:]:
        path = Path(word.partition("=")[2] or word)
        with suppress(OSError, ValueError):
            if path.is_file() and path.stat().st_size < MOST_BYTES:
                yield path.resolve()


def digest(path: Path) -> str:
    """What a file holds, in few characters; "" where it is gone."""
    if not path.is_file():
        return ""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:16]
