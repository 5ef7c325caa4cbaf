"""trials.jsonl: every finished trial of a tuning, so that one that was ended goes on where it was."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from hotloop.errors import UsageError
from hotloop.tune.trial import Trial

NAME: Final = "trials.jsonl"


class Journal:
    """The trials of one folder by key. The search asks for the same keys in the same order each time."""

    def __init__(self, folder: Path, heading: dict[str, Any]) -> None:
        self._path = folder / NAME
        self.trials: dict[str, Trial] = {}
        lines = self._read()
        if not lines:
            self._append({"schema": 1, **heading}, mode="w")
        else:
            self._compare(lines[0], heading)
            found = (Trial.of_json(line) for line in lines[1:])
            self.trials = {trial.key: trial for trial in found}
            if not self._path.read_bytes().endswith(b"\n"):  # torn: write what is whole anew
                self._rewrite(lines)

    @property
    def seconds(self) -> float:
        """What all trials cost so far."""
        return sum(trial.seconds for trial in self.trials.values())

    def add(self, trial: Trial) -> None:
        """On disk when this returns."""
        self._append(trial.to_json())
        self.trials[trial.key] = trial

    def _read(self) -> list[dict[str, Any]]:
        try:
            text = self._path.read_text(errors="replace")
        except FileNotFoundError:
            return []
        found: list[dict[str, Any]] = []
        for line in text.splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                break  # the last line of a tuning that was killed while it wrote
        return found

    def _compare(self, found: dict[str, Any], heading: dict[str, Any]) -> None:
        for name, value in heading.items():
            if found.get(name) != value:
                raise UsageError(
                    f"{self._path.parent} holds a tuning of another {name}: {_words(found.get(name))}",
                    hint="give --out a new folder, or the same command and options",
                )

    def _append(self, line: dict[str, Any], mode: str = "a") -> None:
        with self._path.open(mode) as stream:
            stream.write(json.dumps(line) + "\n")
            stream.flush()
            os.fsync(stream.fileno())

    def _rewrite(self, lines: Sequence[dict[str, Any]]) -> None:
        temporary = self._path.with_suffix(".tmp")
        temporary.write_text("".join(json.dumps(line) + "\n" for line in lines))
        temporary.replace(self._path)


def _words(value: Any) -> str:
    return " ".join(map(str, value)) if isinstance(value, list) else str(value)
