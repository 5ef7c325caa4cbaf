"""Collects the changes of one patch: spans of text, keywords, statements; and what is left to say."""

from __future__ import annotations

import ast
import copy
import re
import shlex
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import libcst as cst

from hotloop.measure.places import Frame
from hotloop.measure.settings import same
from hotloop.record.recording import Note
from hotloop.remedy.source import config_files, layout
from hotloop.remedy.source.code import Code, argument, has_spread, last_name, spread_of
from hotloop.remedy.source.follow import Absent, Entry, Follower, Literal, Target
from hotloop.remedy.source.scene import Already, Built, Cannot, Scene
from hotloop.remedy.source.text import Edit, Text, edited


@dataclass(frozen=True, kw_only=True)
class Change:
    """One place that the patch changes."""

    remedy: str
    file: str
    line: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Left:
    """What the patch leaves to a person: where, why, and what to write there."""

    remedy: str
    why: str
    write: str
    file: str = ""
    line: int = 0


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the patched copy must show when it runs: an entry of a note.

    Of a loader it is the one built by a call of these frames; of anything else the last that was noted.
    """

    note: str
    name: str
    value: Any
    frames: tuple[Frame, ...] = ()  # of the call, outermost first, before the change


@dataclass(kw_only=True)
class _Pending:
    edits: dict[Path, list[Edit]] = field(default_factory=dict)
    keywords: dict[tuple[Path, int, int], dict[str, str]] = field(default_factory=dict)
    statements: dict[Path, list[str]] = field(default_factory=dict)
    changes: list[Change] = field(default_factory=list)
    expected: list[Expected] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)


class Plan:
    """The patch in the making. A rewrite that raises Cannot leaves nothing of itself in it."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.remedy = ""
        self.asked: frozenset[str] = frozenset()  # ids of all remedies that the patch is to write
        self.left: list[Left] = []
        self.settings: dict[str, Any] = {}  # loader arguments that this patch gives the driving loader
        self.beside: dict[tuple[int, str], Any] = {}  # and others, by their id, that the same calls build
        self._pending = _Pending()
        self._calls: dict[tuple[Path, int, int], tuple[Code, cst.Call]] = {}

    @property
    def changes(self) -> list[Change]:
        """What is changed so far."""
        return self._pending.changes

    @property
    def remarks(self) -> list[str]:
        """What a reader of the patch should know."""
        return self._pending.remarks

    @property
    def expected(self) -> list[Expected]:
        """What a run of the patched copy must show."""
        return self._pending.expected

    def attempt(self, remedy: str, words: str, rewrite: Any, value: Any) -> None:
        """Run one rewrite; what cannot be changed is left with its place and the text to write."""
        self.remedy = remedy
        before = copy.deepcopy(self._pending), dict(self.settings), dict(self.beside)
        try:
            rewrite(self, value)
        except Cannot as cannot:
            self._pending, self.settings, self.beside = before
            self.leave(cannot, words)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """All that is changed within, or nothing of it where Cannot is raised."""
        before = copy.deepcopy(self._pending)
        try:
            yield
        except Cannot:
            self._pending = before
            raise

    def leave(self, cannot: Cannot, write: str) -> None:
        """Say what is not changed."""
        words = cannot.write or write
        self.left.append(
            Left(remedy=self.remedy, why=cannot.why, write=words, file=cannot.file, line=cannot.line)
        )

    # -- what rewrites ask for ---------------------------------------------------------------------------

    def put(self, target: Target, name: str, value: Any, new: str | None = None) -> None:
        """Give a followed value: ``new`` is the expression to write instead of the value itself."""
        if isinstance(target, Entry):
            self._configure(target.note, value)
        elif isinstance(target, Absent):
            self.keyword(target.code, target.call, target.name, new or repr(value))
        else:
            self._literal(target, name, value, new)

    def _literal(self, target: Literal, name: str, value: Any, new: str | None) -> None:
        code, node = target.code, target.node
        old = code.source(node)
        text = new or config_files.spelled(old, value)
        if text == old:
            raise Already(f"{name} is {old} already", str(code.path), code.line(node))
        self.edit(code.text, *code.span(node), text)
        self._say(code, code.span(node)[0], f"{target.name or name}: {old} → {text}")

    def keyword(self, code: Code, call: cst.Call, name: str, value: str) -> None:
        """Give a call a keyword argument, replacing the one it has."""
        given = argument(call, name)
        if given is not None:
            old = code.source(given)
            if old == value:
                raise Already(f"{name} is {old} already", str(code.path), code.line(call))
            self.edit(code.text, *code.span(given), value)
            self._say(code, code.span(given)[0], f"{name}: {old} → {value}")
            return
        key = (code.path, *code.span(call))
        wanted = self._pending.keywords.setdefault(key, {})
        if wanted.get(name, value) != value:
            raise Cannot(f"{name}={wanted[name]} is asked for too", str(code.path), code.line(call))
        if name not in wanted:
            spread = spread_of(call) if self.scene.spells(name) else None
            unless = f", unless **{code.source(spread.value)} has one" if spread is not None else ""
            self._say(code, key[1], f"{name}={value} added{unless}")
        wanted[name] = value
        self._calls[key] = code, call

    def statement(self, code: Code, text: str) -> None:
        """A statement at the start of a script, behind its imports."""
        if any(code.source(line).strip() == text for line in code.module.body) or _imported(code, text):
            return  # it stands there
        wanted = self._pending.statements.setdefault(code.path, [])
        if text not in wanted:
            wanted.append(text)
            self._say(code, layout.after_imports(code)[0], text)

    def replace(self, code: Code, node: cst.CSTNode, new: str, says: str) -> None:
        """Other text for an expression."""
        self.edit(code.text, *code.span(node), new)
        self._say(code, code.span(node)[0], says)

    def insert(self, code: Code, at: int, text: str, says: str) -> None:
        """Text at a place of its own."""
        self.edit(code.text, at, at, text)
        self._say(code, at, says)

    def rewrite(self, code: Code, start: int, end: int, new: str, says: str) -> None:
        """Other text for characters that are no expression of their own; "" says nothing."""
        self.edit(code.text, start, end, new)
        if says:
            self._say(code, start, says)

    def remove(self, code: Code, start: int, end: int, says: str) -> None:
        """Nothing in the place of characters."""
        self.edit(code.text, start, end, "")
        self._say(code, code.text.text.index(code.text.text[start:end].lstrip(), start), says)

    def edit(self, text: Text, start: int, end: int, new: str) -> None:
        """Other characters for a span. The same change asked for twice is one. Raises Cannot."""
        if text.path.suffix == ".py":  # of configuration the value itself is held beside the run's
            self.scene.unchanged(text.path)
        edits = self._pending.edits.setdefault(text.path, [])
        edit = Edit(start=start, end=end, new=new)
        for other in edits:
            if other != edit and other.start < end and start < other.end:
                raise Cannot(f"{other.new} is to be written there too", str(text.path), text.line(start))
        if edit not in edits or start == end:
            edits.append(edit)

    def remark(self, words: str) -> None:
        """Say what a reader of the patch should know."""
        self._pending.remarks.append(words)

    def expect(self, built: Built, name: str, value: Any) -> None:
        """The loader must come out with this setting."""
        self.settings[name] = value
        expected = Expected(note="loader", name=name, value=value, frames=built.site.frames)
        self._pending.expected.append(expected)

    def expect_noted(self, note: str, name: str, value: Any) -> None:
        """A note of this kind must come out with this entry."""
        self._pending.expected.append(Expected(note=note, name=name, value=value))

    def _say(self, code: Code, offset: int, text: str) -> None:
        line = code.text.line(offset)
        self.changes.append(Change(remedy=self.remedy, file=str(code.path), line=line, text=text))

    # -- configuration -----------------------------------------------------------------------------------

    def _configure(self, note: Note, value: Any) -> None:
        source, key = note.get("source"), str(note.get("key"))
        if source == "hydra":
            self._composed(note, key, value)
            return
        if source == "argparse" and note.get("option"):
            self._argument(note, value)
            return
        file = note.get("file")
        if not file:
            raise Cannot(f"the file that sets {key} is not known")
        if Path(str(file)).suffix == ".py":
            target = Follower(self.scene, ()).constant(self.scene.code(file), tuple(key.split(".")))
            self.put(target, key.rpartition(".")[2], value)
            return
        text = self.scene.text(file)
        edit = config_files.change(text, key, value)
        old = text.text[edit.start : edit.end]
        if edit.new == old:
            raise Already(f"{key} is {old} already", str(file), text.line(edit.start))
        if not same(_plain(old), note.get("value")):
            raise Cannot(
                f"{key} is {old} there, {note.get('value')} in the run", str(file), text.line(edit.start)
            )
        self.change_text(text, edit, f"{key}: {old} → {edit.new}")

    def change_text(self, text: Text, edit: Edit, says: str) -> None:
        """Other characters in a file that is no code."""
        self.edit(text, edit.start, edit.end, edit.new)
        line = text.line(edit.start)
        self.changes.append(Change(remedy=self.remedy, file=str(text.path), line=line, text=says))

    def _argument(self, note: Note, value: Any) -> None:
        option, key = str(note.get("option")), str(note.get("key"))
        if not note.get("given"):
            self._default(note, option, key, value)
            return
        for script in config_files.scripts(self.scene.command, self.scene.started):
            text = self.scene.text(script)
            raw = str(note.get("raw"))
            start, end = config_files.in_command(text, option, raw)
            self.change_text(text, Edit(start=start, end=end, new=str(value)), f"{option} {raw} → {value}")
            return
        raise Cannot(f"{option} is given on the command line", write=self._command(option, note, value))

    def _composed(self, note: Note, key: str, value: Any) -> None:
        """A value that Hydra put together: changed in the one file it can come from, else in the command."""
        given = [word for word in self.scene.command if word.lstrip("+").partition("=")[0] == key]
        files = [
            other
            for other in self.scene.config
            if other.get("file") and f".{key}".endswith(f".{other.get('key')}")
            and same(other.get("value"), note.get("value"))
        ]  # fmt: skip
        if not given and len(files) == 1:
            self._configure(files[0], value)
            return
        kept = [word for word in self.scene.command if word not in given]
        raise Cannot(f"{key} is composed by Hydra", write=shlex.join([*kept, f"{key}={value}"]))

    def _command(self, option: str, note: Note, value: Any) -> str:
        """The command with another value for an option, where that can be said."""
        words = list(self.scene.command)
        is_flag = isinstance(note.get("value"), bool)
        for at, word in enumerate(words):
            if word.startswith(option + "="):
                words[at] = f"{option}={value}"
                return shlex.join(words)
            if word == option and not is_flag and at + 1 < len(words):
                words[at + 1] = str(value)
                return shlex.join(words)
        if is_flag:
            return f"run it with{'' if value else 'out'} {option}"
        return f"run it with {option} {value}"

    def _default(self, note: Note, option: str, key: str, value: Any) -> None:
        found = []
        files = [Path(str(note["file"]))] if note.get("file") else self.scene.files()
        for file in files:
            code = self.scene.code(file)
            for call in code.nodes(cst.Call):
                names = [a.value.evaluated_value for a in call.args if isinstance(a.value, cst.SimpleString)]
                dest = argument(call, "dest")
                named = isinstance(dest, cst.SimpleString) and dest.evaluated_value == key
                if last_name(call.func) == "add_argument" and (option in names or named):
                    found.append((code, call))
        if len(found) != 1:
            raise Cannot(
                f"{option} has a default that is not written in one place: run with {option} {value}"
            )
        code, call = found[0]
        action = argument(call, "action")
        if isinstance(action, cst.SimpleString):
            words = shlex.join([*self.scene.command, option]) if value else f"run it without {option}"
            raise Cannot(f"{option} is a switch", str(code.path), code.line(call), write=words)
        default = argument(call, "default")
        if default is None and has_spread(call):
            words = shlex.join([*self.scene.command, option, str(value)])
            raise Cannot(f"{option} has a default by **", str(code.path), code.line(call), write=words)
        if default is None:
            self.keyword(code, call, "default", repr(value))
        else:
            self.put(Follower(self.scene, ()).expression(code, default, None), f"default of {option}", value)

    # -- the result --------------------------------------------------------------------------------------

    def results(self) -> dict[Path, tuple[Text, bytes]]:
        """Every changed file with its new bytes. Raises Cannot where a file would not be one any more."""
        edits = {path: list(found) for path, found in self._pending.edits.items()}
        for key, keywords in self._pending.keywords.items():
            code, call = self._calls[key]
            mine = edits.setdefault(code.path, [])
            beneath = {name for name in keywords if self.scene.spells(name)}
            mine += layout.with_keywords(code, call, keywords, mine, beneath)
        for path, statements in self._pending.statements.items():
            code = self.scene.code(path)
            edits.setdefault(path, []).append(layout.with_statements(code, statements))
        found = {}
        for path, changes in edits.items():
            text = self.scene.text(path)
            try:
                new = edited(text.text, changes)
                if path.suffix == ".py":
                    ast.parse(new)
                found[path] = text, text.encoded(new)
            except (ValueError, SyntaxError) as error:
                raise Cannot(f"{path.name} would not be what it was: {error}", str(path)) from None
        return found


def _plain(text: str) -> Any:
    return re.sub(r"""^(["'])(.*)\1$""", r"\2", text)


def _imported(code: Code, text: str) -> bool:
    """Whether ``import NAME`` stands at the top of a file among others: ``import os, gc``."""
    return any(
        isinstance(small, cst.Import)
        and any(text == f"import {code.source(one.name)}" and one.asname is None for one in small.names)
        for line in code.module.body
        if isinstance(line, cst.SimpleStatementLine)
        for small in line.body
    )
