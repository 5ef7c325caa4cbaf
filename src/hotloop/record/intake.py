"""Raw files into SQLite: which process goes into which file, one transaction per file and tick."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hotloop.record import raw
from hotloop.record.bucket import Bucket, files_of
from hotloop.record.living import parent_of
from hotloop.record.member import Member
from hotloop.record.owners import Facts, assign
from hotloop.record.rows import ROW

#: A process that shows no work (a launcher's agent) gets a file of its own once it has this much to store.
_TOO_MUCH_TO_HOLD: Final = 1 << 20


class Intake:
    """The processes of one run folder and the files they go to. Raises OSError and sqlite3.Error.

    After an error nothing is lost: what was not committed is still in the raw files and in memory.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._raw = folder / "raw"
        self._members: dict[str, Member] = {}
        self._buckets: dict[str, Bucket] = {}
        self._parents: dict[int, int] = {}

    @property
    def members(self) -> Sequence[Member]:
        """Every process seen so far."""
        return tuple(self._members.values())

    def adopt(self) -> None:
        """Go on where a launcher that was killed stopped."""
        for path in files_of(self._folder):
            bucket = self._bucket(path.stem)
            for facts, rows_in, notes_in in bucket.processes():
                start_ns = int(facts.key.partition("-")[2])
                files = raw.RawFiles(folder=self._raw, pid=facts.pid, start_ns=start_ns)
                self._members[facts.key] = Member(
                    files=files,
                    facts=facts,
                    bucket=bucket,
                    rows_read=rows_in,
                    notes_read=notes_in,
                    removed=not (files.rows.exists() or files.notes.exists()),
                )

    def take_in(self, *, last: bool = False) -> None:
        """Read on in all raw files and store what is due; ``last`` stores everything."""
        found = raw.find(self._raw)
        newest = {files.pid: files.start_ns for files in found}
        for files in found:
            self._member(files).look(superseded=newest[files.pid] > files.start_ns)
        self._seat(last=last)
        waiting: dict[str, list[Member]] = {}
        for member in self._members.values():
            if not member.removed and (last or member.is_due):
                waiting.setdefault(self._name(member), []).append(member)
        for name, members in waiting.items():
            if name:
                self._write(self._bucket(name), members)

    def take_in_rest(self, root_pid: int, root_end_ns: int) -> None:
        """Take in until nothing more comes; ``root_pid`` is the command's own process, which has ended."""
        roots = [member for member in self._members.values() if member.facts.pid == root_pid]
        if roots:  # the newest: a command may have replaced itself
            root = max(roots, key=lambda member: member.facts.start_ns)
            root.gone_ns = root.alive_ns = root_end_ns
            root.ended = True
        self.take_in(last=True)
        before = -1  # once more at least: a process is done with when nothing came since it was seen gone
        while before != (before := sum(member.rows_read + member.notes_read for member in self.members)):
            self.take_in(last=True)

    def publish(self) -> None:
        """Close every file; a process that came to work late gets its rank's name."""
        for open_bucket in self._buckets.values():
            open_bucket.close()
        self._buckets.clear()
        for member in self._members.values():
            seat, bucket = member.seat, member.bucket
            if seat and bucket and seat.role == "main" and bucket.path.stem.startswith("other-"):
                path = self._folder / f"{self._free_name(seat.rank)}.sqlite"
                bucket.path.rename(path)
                bucket.path = path

    def _member(self, files: raw.RawFiles) -> Member:
        member = self._members.get(files.key)
        if member is None:
            facts = Facts(key=files.key, pid=files.pid, start_ns=files.start_ns)
            member = self._members[files.key] = Member(files=files, facts=facts)
        return member

    def _seat(self, *, last: bool) -> None:
        if not last and all(member.seat for member in self._members.values()):
            return
        for member in self._members.values():
            self._remember_parent(member.facts)
        seats = assign([member.facts for member in self._members.values()], self._parents)
        for key, member in self._members.items():
            seat = seats[key]
            # A worker whose trainer has not shown work yet waits for it.
            owner = self._members[seat.owner].facts if seat.owner else None
            waits = seat.role == "worker" and (owner is None or not owner.active)
            is_idle = seat.role != "worker" and not member.facts.active
            member.seat = None if (waits or is_idle) and not last else seat

    def _remember_parent(self, facts: Facts) -> None:
        """Keep the line of processes above a worker that are not observed themselves, while they live."""
        if facts.role != "worker" or facts.ppid in self._parents:
            return
        pid = facts.ppid
        for _ in range(8):
            parent = parent_of(pid)
            if parent <= 1:
                return
            self._parents[pid] = parent
            pid = parent

    def _name(self, member: Member) -> str:
        """The file a member's rows go to, "" while it is too early to tell."""
        if member.bucket is not None:
            return member.bucket.path.stem
        seat = member.seat
        if seat is None:
            too_much = member.num_rows * ROW.size > _TOO_MUCH_TO_HOLD
            return f"other-{member.facts.pid}" if too_much else ""
        if seat.role == "worker" and seat.owner:
            return self._name(self._members[seat.owner])
        if seat.role != "main":
            return f"other-{member.facts.pid}"
        name = self._free_name(seat.rank)
        member.bucket = self._bucket(name)
        return name

    def _free_name(self, rank: int) -> str:
        taken = {member.bucket.path.stem for member in self._members.values() if member.bucket is not None}
        name, number = f"rank-{rank}", 1
        while name in taken:
            number += 1
            name = f"rank-{rank}-{number}"
        return name

    def _bucket(self, name: str) -> Bucket:
        if name not in self._buckets:
            self._buckets[name] = Bucket(self._folder / f"{name}.sqlite")
        return self._buckets[name]

    def _write(self, bucket: Bucket, members: Sequence[Member]) -> None:
        with bucket.transaction():
            for member in members:
                member.put_into(bucket)
        for member in members:
            member.stored(bucket)
