"""One worker as the loader sees it."""

from __future__ import annotations

from typing import Any

from hotloop.feed.channel import Life, Link, connect
from hotloop.feed.ring import Slot
from hotloop.feed.worker import Reply, Setup, run


class Task:
    """One batch on its way: which worker makes it, in which slot, and what came of it."""

    __slots__ = ("index", "number", "reply", "slot", "worker")

    def __init__(self, number: int, worker: Member, slot: Slot, index: Any) -> None:
        self.number = number
        self.worker = worker
        self.slot = slot
        self.index = index
        self.reply: Reply | None = None


class Member:
    """A worker process and the pipes to it.

    ``active``: it is given tasks in this epoch. ``num_to_make``: those it has; ``num_tasks``: also those it
    made that were not handed out yet.
    """

    __slots__ = ("__weakref__", "active", "link", "num_tasks", "num_to_make", "number", "pid", "process")

    def __init__(self, number: int, process: Any, link: Link) -> None:
        self.number = number
        self.process = process
        self.pid = int(process.pid)
        self.link = link
        self.active = True
        self.num_tasks = 0
        self.num_to_make = 0

    @property
    def is_alive(self) -> bool:
        """Whether its process runs."""
        return bool(self.process.is_alive())

    def send(self, message: tuple[Any, ...]) -> None:
        """A message it will read when it comes to it."""
        self.link.send(message)


class Arrivals:
    """The replies that wait in the pipes, for whoever asks how far ahead the workers are."""

    def __init__(self, poll: Any) -> None:
        self._poll = poll

    def qsize(self) -> int:
        """How many workers have at least one reply there."""
        return len(self._poll.poll(0))


def start_process(context: Any, setup: Setup, number: int, life: Life) -> Member:
    """A worker process, started.

    Raises:
        OSError: the system refuses another process, pipe or more memory.
    """
    link, ends = connect(life.read)
    try:
        process = context.Process(target=run, args=(setup, ends, number), daemon=True)
        process.start()
    except BaseException:
        link.close()
        raise
    finally:
        ends.close()
    return Member(number, process, link)
