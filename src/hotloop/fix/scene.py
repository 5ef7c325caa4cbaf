"""What a run says about the code that made it: who built which loader, what was configured, where."""

from __future__ import annotations

import ast
import hashlib
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from hotloop.diagnose.costs import waited_for
from hotloop.findings import Finding, Place
from hotloop.measure.places import Frame, Places, places_of
from hotloop.measure.settings import same
from hotloop.measure.steps import Interval, Setting, Steps
from hotloop.record import rows as row
from hotloop.record.recording import Note, Process, Recording
from hotloop.remedy import catalogue
from hotloop.source.code import Code
from hotloop.source.nodes import argument, text_of
from hotloop.source.text import Text, read

#: What gives a mapping entries by keywords.
_FILLS = ("dict", "update", "setdefault")


class Cannot(Exception):  # noqa: N818 - an answer, not a failure
    """A change that is not made: why, where it belongs, and what to write or run instead, if it is known."""

    def __init__(self, why: str, file: str = "", line: int = 0, *, write: str = "") -> None:
        super().__init__(why)
        self.why, self.file, self.line, self.write = why, file, line, write

    @classmethod
    def at(cls, why: str, code: Code, node: ast.AST, *, write: str = "") -> Self:
        """The same with the place of a node."""
        return cls(why, str(code.path), code.line(node), write=write)


class Already(Cannot):
    """A change that has been made."""

    def __init__(self, why: str, file: str = "", line: int = 0, *, write: str = "") -> None:
        super().__init__(why, file, line, write=write or "nothing is left to write")


@dataclass(frozen=True, kw_only=True)
class Site:
    """A call the run made: the user's frames, outermost first, and where the innermost call ends."""

    frames: tuple[Frame, ...]
    end: tuple[int, int] | None = None


@dataclass(frozen=True, kw_only=True)
class Built:
    """A loader the run built."""

    id: int
    site: Site
    kind: str  # name of its class
    settings: Mapping[str, Any]
    given: frozenset[str]  # arguments that DataLoader itself was given
    role: str = "train"
    by: str = ""  # the function of an installed package that built it


@dataclass(frozen=True, kw_only=True)
class Scene:
    """One training process, and the files it ran from as they were when it ran, parsed once."""

    process: Process
    command: tuple[str, ...]
    launched: Path | None = None  # where the command was started, None not known
    started_unix_s: float | None = None  # when the run began
    settings: tuple[Setting, ...] = ()  # in effect, beside what was configured
    roles: Mapping[int, str] = field(default_factory=dict)  # of loaders, by id
    lead: int | None = None  # the loader that drives training
    #: remedy id -> the loader it is for, where that is not the one that drives: its finding speaks of another
    #: that is waited for, or none does
    fed: Mapping[str, int] = field(default_factory=dict)
    loop: Place | None = None  # where the steps are driven
    where: Mapping[str, Place] = field(default_factory=dict)  # remedy id -> the finding that asks for it
    times: Mapping[str, int] = field(default_factory=dict)  # how often it happened, by the same
    passes: int = 0  # of the loader that drives training, 0 not known
    _texts: dict[Path, Text] = field(default_factory=dict)
    _codes: dict[Path, Code] = field(default_factory=dict)

    @cached_property
    def cwd(self) -> Path:
        """Where the process was started: a script may have gone elsewhere before."""
        return Path(str(self.process.first("process").get("cwd") or "."))

    @property
    def started(self) -> Path:
        """The folder that the words of the command are read from."""
        return self.launched or self.cwd

    @cached_property
    def argv(self) -> tuple[str, ...]:
        """The script and its arguments, as the process saw them."""
        return tuple(map(str, self.process.first("process").get("argv") or ()))

    @cached_property
    def hashes(self) -> dict[Path, str]:
        """SHA-256 of every file of code as it ran."""
        return {Path(str(n["file"])): str(n.get("sha256")) for n in self.process.notes.get("source", ())}

    def text(self, file: Path | str) -> Text:
        """A file as it is now. Raises Cannot where it is not what ran."""
        path = Path(file)
        if path not in self._texts:
            try:
                found = read(path)
            except (OSError, ValueError) as error:
                words = getattr(error, "strerror", None) or str(error)
                raise Cannot(f"{path.name} cannot be read: {words}", str(path)) from None
            recorded = self.hashes.get(path)
            data = found.encoded(found.text)
            if recorded is not None and hashlib.sha256(data).hexdigest() != recorded:
                raise Cannot(f"{path.name} changed since the run: run again, then fix", str(path))
            self._texts[path] = found
        return self._texts[path]

    def code(self, file: Path | str) -> Code:
        """A Python file, parsed. Raises Cannot."""
        path = Path(file)
        if path not in self._codes:
            if not path.suffix == ".py":
                raise Cannot(f"{path.name or file} is no Python file", str(path))
            if any(part in ("site-packages", "dist-packages") for part in path.parts):
                raise Cannot(f"{path.name} belongs to an installed package", str(path))
            text = self.text(path)
            try:
                self._codes[path] = Code(text)
            except ValueError as error:
                raise Cannot(str(error).replace(str(path), path.name), str(path)) from None
        return self._codes[path]

    def files(self) -> list[Path]:
        """The files of code that ran, the main script first."""
        return sorted(self.hashes, key=lambda path: (path != self.main, str(path)))

    def loaded(self) -> list[Path]:
        """The user's files that were loaded, those of them first that were seen to run."""
        loaded = (file for note in self.process.notes.get("files", ()) for file in note.get("files", ()))
        return list(dict.fromkeys([*self.files(), *map(Path, loaded)]))

    def codes(self, word: str) -> Iterator[Code]:
        """The user's files that were loaded and hold a word; those that cannot be read are left out."""
        for path in self.loaded():
            try:
                if word in self.text(path).text:
                    yield self.code(path)
            except Cannot:
                continue

    def spells(self, key: str) -> bool:
        """Whether the user's code has an entry of that name somewhere: what is spread may hold it."""
        return any(
            any(text_of(node) == key for node in code.nodes(ast.Constant))
            or any(argument(call, key) is not None for name in _FILLS for call in code.calls(name))
            for code in self.codes(key)
        )

    def unchanged(self, path: Path) -> None:
        """Raises Cannot where a file without a checksum was written since the run began."""
        if path not in self.hashes and self.started_unix_s and path.stat().st_mtime > self.started_unix_s:
            raise Cannot(f"{path.name} changed since the run: run again, then fix", str(path))

    def module(self, name: str, importer: Path) -> Path | None:
        """The user's file that an import names: beside the main script, the importer, or in the folder."""
        if not name:
            return None
        inside = Path(*name.split("."))
        roots = [importer.parent, self.cwd, *([self.main.parent] if self.main else [])]
        roots += [folder for folder in importer.parents if self.cwd in (folder, *folder.parents)]
        for root in dict.fromkeys(roots):
            for candidate in (root / inside.with_suffix(".py"), root / inside / "__init__.py"):
                if candidate.is_file():
                    return candidate
        return None

    @cached_property
    def places(self) -> Places:
        """Sites and stacks by id."""
        return places_of(self.process)

    @cached_property
    def config(self) -> tuple[Note, ...]:
        """Configured values, in the order seen."""
        return tuple(self.process.notes.get("config", ()))

    @cached_property
    def device(self) -> str:
        """What autocast calls the device that trained."""
        flags = self.process.first("torch")
        return "cuda" if flags.get("cuda") and flags.get("device_count") else "cpu"

    @cached_property
    def loaders(self) -> tuple[Built, ...]:
        """Loaders whose place in the code is known; those that drive training first."""
        found = []
        for note in self.process.notes.get("loader", ()):
            site = self.site(note.get("via") or note.get("where"))
            if site is None:
                continue
            built = Built(
                id=int(note["id"]),
                site=site,
                kind=str(note.get("class", "")).replace(":", ".").rpartition(".")[2],
                settings=note,
                given=frozenset(note.get("given") or ()),
                role=self.roles.get(note["id"], "train"),
                by=str(note.get("by") or ""),
            )
            found.append(built)
        return tuple(sorted(found, key=lambda one: (one.id != self.lead, one.role != "train")))

    def asked_of(self, remedy: str) -> Built | None:
        """The loader that a remedy is for: the one that is waited for, else what drives training."""
        fed = self.fed.get(remedy)
        return next((one for one in self.loaders if fed in (None, one.id)), None)

    def site(self, number: Any) -> Site | None:
        """The call site of this id."""
        stack = self.places.sites.get(number) if isinstance(number, int) and number else None
        if stack is None or not stack.frames:
            return None
        note = next(n for n in self.process.notes["site"] if n.get("id") == number)
        end = (note.get("end_line"), note.get("end_col"))
        known = isinstance(end[0], int) and isinstance(end[1], int)
        return Site(frames=stack.frames, end=end if known else None)  # type: ignore[arg-type]

    def call(self, site: Site) -> tuple[Code, ast.Call | None]:
        """The call that was made at a site, None where several may be it. Raises Cannot."""
        frame = site.frames[-1]
        code = self.code(frame.file)
        return code, code.call_at(frame.line, frame.col, site.end)

    def sites(self, rows: Any) -> list[Site]:
        """Where rows came from, the most frequent first."""
        numbers, counts = np.unique(rows["site"], return_counts=True)
        found = (self.site(int(numbers[i])) for i in np.argsort(-counts, kind="stable"))
        return [site for site in found if site is not None]

    def callers(self, file: str, line: int) -> tuple[Frame, ...]:
        """The frames by which the run reached a line. Raises Cannot where they were not always the same."""
        ways = set()
        for stack in self.places.sites.values():
            at = [i for i, one in enumerate(stack.frames) if (one.file, one.line) == (file, line)]
            ways |= {stack.frames[: at[-1]]} if at else set()
        if len(ways) > 1:
            raise Cannot("it is called from several places", file, line)
        return ways.pop() if ways else ()

    @cached_property
    def updating(self) -> tuple[Frame, ...]:
        """Every frame that a backward, an update or what belongs to it was reached through."""
        rows = self.process.rows
        kinds = (row.BACKWARD, row.OPTIMIZER, row.SCALER, row.ZERO_GRAD)
        return self._frames(rows[np.isin(rows["kind"], kinds)])

    @cached_property
    def scoring(self) -> tuple[Frame, ...]:
        """Every frame that a forward without gradients was reached through."""
        rows = self.process.rows
        flags = rows["flags"] & (row.FORWARD_GRAD | row.FORWARD_PARAMS)
        return self._frames(rows[(rows["kind"] == row.FORWARD) & (flags == row.FORWARD_PARAMS)])

    def _frames(self, rows: Any) -> tuple[Frame, ...]:
        return tuple(dict.fromkeys(frame for site in self.sites(rows) for frame in site.frames))

    @cached_property
    def main(self) -> Path | None:
        """The script that was started."""
        for site in (built.site for built in self.loaders):
            if site.frames[0].func == "<module>":
                return Path(site.frames[0].file)
        script = self.argv[0] if self.argv else ""
        return self.cwd / script if script.endswith(".py") else None

    @classmethod
    def of(cls, process: Process, recording: Recording, steps: Steps, findings: Iterable[Finding]) -> Scene:
        """The scene of a measured run."""
        driving, waited = steps.train_loader(), waited_for(steps)
        findings = list(findings)
        asking = {name: one for one in reversed(findings) for name in one.remedies}
        names = (remedy.id for remedy in catalogue.remedies())
        of_input = [n for n in names if n not in asking or asking[n].id.startswith("input/")]
        return cls(
            process=process,
            command=recording.command,
            launched=Path(recording.cwd) if recording.cwd else None,
            settings=steps.settings,
            roles={use.id: use.role for use in steps.loaders},
            lead=driving.id if driving else None,
            fed={n: waited.id for n in of_input if waited}
            | {n: int(one.data["loader_id"]) for n, one in asking.items() if one.data.get("loader_id")},
            loop=steps.source_loop,
            where={n: f.where for f in reversed(findings) if f.where for n in f.remedies},
            times={
                "less-frequent-evaluation": _most_at_a_place(steps.evaluations),
                "less-frequent-checkpoint": _most_at_a_place(steps.checkpoints),
            },
            passes=len(driving.iter_s) if driving else 0,
            started_unix_s=recording.start_unix_s,
        )

    def configured(self, name: str) -> Note | None:
        """What was written down for a setting and never came into effect."""
        setting = next((s for s in self.settings if s.name == name), None)
        if setting is None or not setting.differs:
            return None
        notes = [
            n for n in self.config if n.get("meaning") == name and same(n.get("value"), setting.configured)
        ]
        return next((n for n in notes if n.get("source") != "argparse" or n.get("given")), None)


def _most_at_a_place(intervals: Iterable[Interval]) -> int:
    """How often something was done, where several files are written at a time too."""
    places = Counter(one.place for one in intervals)
    return max(places.values(), default=0)
