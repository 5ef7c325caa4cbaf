"""``--throw-away``: what the command writes is dropped when it ends, and told."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hotloop.errors import UsageError

if TYPE_CHECKING:
    from hotloop.launch.guard import Guard
    from hotloop.launch.throwaway import Throwaway

#: Files named in full; of more the number is told.
_FEW = 8


def add_argument(parser: argparse.ArgumentParser) -> None:
    """The option of ``run`` and ``what-if``."""
    parser.add_argument(
        "--throw-away", action="store_true", help="drop what the command writes (Linux); reads are real"
    )


@contextmanager
def apart(
    command: Sequence[str], folder: Path, *, way_out: str = "leave --throw-away out"
) -> Iterator[Throwaway]:
    """A run whose writes are dropped, those to ``folder`` kept. Raises UsageError where it cannot be."""
    from hotloop.launch.throwaway import Refused, throwaway

    try:
        room = throwaway(command, keep=[folder])
        found = room.__enter__()
    except Refused as refused:
        with suppress(OSError):  # nothing ran: leave no empty folder
            (folder / "raw").rmdir()
            if folder.resolve() != Path.cwd():
                folder.rmdir()
        raise UsageError(
            f"what the command writes cannot be kept apart from your files here ({refused.message})",
            hint=f"run it on a copy, or {way_out}: then it writes where it always does",
        ) from refused
    try:
        yield found
    finally:
        room.__exit__(None, None, None)


@contextmanager
def thrown_away(asked: bool, command: Sequence[str], folder: Path) -> Iterator[dict[str, Any]]:
    """What ``flow.observe`` takes for a run whose writes are dropped, if asked for; told when it is over."""
    if not asked:
        yield {}
        return
    with apart(command, folder) as room:
        guard = disk_guard(room)
        yield {"apart": room, "guard": guard}
        tell(room, guard)


def disk_guard(found: Throwaway | None) -> Guard | None:
    """What ends a run before it fills the disk that its writes go to."""
    from hotloop.launch.guard import Guard

    return Guard(disk=found.scratch, only_disk=True) if found is not None else None


def tell(found: Throwaway, guard: Guard | None = None) -> None:
    """What would have been written, and what the run was ended for, on standard error."""
    if guard is not None and guard.why:
        print(f"hotloop: the command was ended: it {guard.why}", file=sys.stderr)
    changes = found.written()
    if not changes:
        return
    print("hotloop: thrown away, as asked; the command would have", file=sys.stderr)
    for kind, path in changes[:_FEW]:
        print(f"    {kind} {path}", file=sys.stderr)
    if len(changes) > _FEW:
        print(f"    and {len(changes) - _FEW} more", file=sys.stderr)
