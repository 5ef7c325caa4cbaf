"""The one exception tree.

::

    HotloopError            exit code 3: hotloop itself failed
    ├── UsageError          exit code 2: the user's input is wrong
    │   └── RecordingError  exit code 2: a run folder cannot be read as a recording
    └── CheckFailed         exit code 1: a check said no

A message says what was wrong, where, and what to do; ``hint`` holds the way out.
"""

from __future__ import annotations


class HotloopError(Exception):
    """Any failure hotloop reports in words; ``exit_code`` is what the command line returns."""

    exit_code = 3

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(HotloopError):
    """The user's input is wrong: a path, a value, a command."""

    exit_code = 2


class RecordingError(UsageError):
    """A folder or file cannot be read as a recording."""


class CheckFailed(HotloopError):  # noqa: N818 - a check that says no is an answer
    """A check the user asked for said no."""

    exit_code = 1


def told(error: Exception) -> str:
    """What an exception says: the message of hotloop's own, else its kind as well."""
    return error.message if isinstance(error, HotloopError) else f"{type(error).__name__}: {error}"
