"""The changes of one patch: spans of text, keywords, statements; and what is left to say."""

from __future__ import annotations

import ast
import copy
from collections.abc import Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hotloop.fix.scene import Already, Built, Cannot, Scene
from hotloop.measure.places import Frame
from hotloop.source.code import Code
from hotloop.source.nodes import DEFINITIONS, argument, spread_of, text_of
from hotloop.source.text import Edit, Text, edited
from hotloop.source.tokens import plain, tokens_of


@dataclass(frozen=True, kw_only=True)
class Change:
    """One place that the patch changes."""

    remedy: str
    file: str
    line: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Left:
    """What the patch leaves to a person: where, why, and what to write there; ``already``: it is there."""

    remedy: str
    why: str
    write: str
    file: str = ""
    line: int = 0
    already: bool = False


@dataclass(frozen=True, kw_only=True)
class Expected:
    """What the patched copy must show when it runs: an entry of a note.

    Of a loader it is the one built by a call of these frames; of anything else the last that was noted.
    """

    note: str
    name: str
    value: Any
    frames: tuple[Frame, ...] = ()  # of the call, outermost first, before the change


#: What is undone where a rewrite cannot be finished.
_UNDONE: Final = ("changes", "expected", "remarks", "_given", "_edits", "_keywords", "_statements")


class Edits:
    """The changes that rewrites ask for. One that raises Cannot leaves nothing of itself in them."""

    def __init__(self, scene: Scene) -> None:
        self.scene = scene
        self.remedy = ""
        self.left: list[Left] = []
        self.changes: list[Change] = []  # so far
        self.expected: list[Expected] = []  # what a run of the patched copy must show
        self.remarks: list[str] = []  # what a reader of the patch should know
        self._given: dict[tuple[int, str], Any] = {}  # loaders' arguments in this patch, by the loader's id
        self._edits: dict[Path, list[Edit]] = {}
        self._keywords: dict[tuple[Path, int, int], dict[str, str]] = {}
        self._statements: dict[Path, list[str]] = {}
        self._calls: dict[tuple[Path, int, int], tuple[Code, ast.Call]] = {}

    def attempt(self, remedy: str, words: str, rewrite: Any, value: Any) -> None:
        """Run one rewrite; what cannot be changed is left with its place and the text to write."""
        self.remedy = remedy
        try:
            with self.whole():
                rewrite(self, value)
        except Cannot as cannot:
            self.leave(cannot, words)

    @contextmanager
    def whole(self) -> Iterator[None]:
        """All that is changed within, or nothing of it where Cannot is raised."""
        before = {name: copy.deepcopy(getattr(self, name)) for name in _UNDONE}
        try:
            yield
        except Cannot:
            vars(self).update(before)
            raise

    def leave(self, cannot: Cannot, write: str) -> None:
        """Say what is not changed."""
        words = cannot.write or write
        there = isinstance(cannot, Already)
        left = Left(
            remedy=self.remedy, why=cannot.why, write=words, file=cannot.file, line=cannot.line, already=there
        )
        self.left.append(left)

    # -- what rewrites ask for ---------------------------------------------------------------------------

    def keyword(self, code: Code, call: ast.Call, name: str, value: str) -> None:
        """Give a call a keyword argument, replacing the one it has."""
        given = argument(call, name)
        if given is not None:
            old = code.source(given)
            if old == value:
                raise Already.at(f"{name} is {old} already", code, call)
            self.replace(code, given, value, f"{name}: {old} → {value}")
            return
        key = (code.path, *code.span(call))
        wanted = self._keywords.setdefault(key, {})
        if wanted.get(name, value) != value:
            raise Cannot.at(f"{name}={wanted[name]} is asked for too", code, call)
        if name not in wanted:
            spread = spread_of(call) if self.scene.spells(name) else None
            unless = f", unless **{code.source(spread.value)} has one" if spread is not None else ""
            self.say(code, key[1], f"{name}={value} added{unless}")
        wanted[name] = value
        self._calls[key] = code, call

    def statement(self, code: Code, text: str) -> None:
        """A statement at the start of a script, behind its imports."""
        code = self.scene.code(code.path)
        name = text.removeprefix("import ")
        imported = any(one.imported == name for one in code.global_names(name))
        if imported or any(code.source(line) == text for line in code.module.body):
            return  # it stands there
        wanted = self._statements.setdefault(code.path, [])
        if text not in wanted:
            wanted.append(text)
            self.say(code, after_imports(code), text)

    def replace(self, code: Code, node: ast.AST, new: str, says: str) -> None:
        """Other text for an expression."""
        self.rewrite(code, *code.span(node), new, says)

    def insert(self, code: Code, at: int, text: str, says: str) -> None:
        """Text at a place of its own."""
        self.rewrite(code, at, at, text, says)

    def rewrite(self, code: Code, start: int, end: int, new: str, says: str) -> None:
        """Other text for characters that are no expression of their own; "" says nothing."""
        self.edit(code.text, start, end, new)
        if says:
            self.say(code, start, says)

    def edit(self, text: Text, start: int, end: int, new: str) -> None:
        """Other characters for a span. The same change asked for twice is one. Raises Cannot."""
        if text.path.suffix == ".py":  # of configuration the value itself is held beside the run's
            self.scene.unchanged(text.path)
        edits = self._edits.setdefault(text.path, [])
        edit = Edit(start=start, end=end, new=new)
        for other in edits:
            if other != edit and other.start < end and start < other.end:
                raise Cannot(f"{other.new} is to be written there too", str(text.path), text.line(start))
        if edit not in edits or start == end:
            edits.append(edit)

    def change_text(self, text: Text, edit: Edit, says: str) -> None:
        """Other characters in a file that is no code."""
        self.edit(text, edit.start, edit.end, edit.new)
        self._note(text, edit.start, says)

    def remark(self, words: str) -> None:
        """Say what a reader of the patch should know."""
        if words not in self.remarks:
            self.remarks.append(words)

    def setting(self, built: Built, name: str) -> Any:
        """What a loader is given for an argument once this patch is written."""
        return self._given.get((built.id, name), built.settings.get(name))

    def give(self, built: Built, name: str, value: Any) -> None:
        """Note what this patch gives a loader for an argument."""
        self._given[built.id, name] = value

    def expect(self, built: Built, name: str, value: Any) -> None:
        """The loader must come out with this setting."""
        self.give(built, name, value)
        self.expected.append(Expected(note="loader", name=name, value=value, frames=built.site.frames))

    def expect_noted(self, note: str, name: str, value: Any) -> None:
        """A note of this kind must come out with this entry."""
        self.expected.append(Expected(note=note, name=name, value=value))

    def say(self, code: Code, offset: int, text: str) -> None:
        """Note a change that was made at a character."""
        self._note(code.text, offset, text)

    def _note(self, text: Text, offset: int, says: str) -> None:
        change = Change(remedy=self.remedy, file=str(text.path), line=text.line(offset), text=says)
        if change not in self.changes:  # one line may serve several loaders
            self.changes.append(change)

    # -- the result --------------------------------------------------------------------------------------

    def results(self) -> dict[Path, tuple[Text, bytes]]:
        """Every changed file with its new bytes. Raises Cannot where a file would not be one any more."""
        edits = {path: list(found) for path, found in self._edits.items()}
        for key, keywords in self._keywords.items():
            code, call = self._calls[key]
            mine = edits.setdefault(code.path, [])
            beneath = {name for name in keywords if self.scene.spells(name)}
            mine += with_keywords(code, call, keywords, beneath)
        for path, statements in self._statements.items():
            code = self.scene.code(path)
            edits.setdefault(path, []).append(with_statements(code, statements))
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


# How added text is laid out


_ENDS_HEAD: Final = (*DEFINITIONS, ast.For, ast.AsyncFor, ast.While, ast.With)


def with_keywords(
    code: Code,
    call: ast.Call,
    keywords: Mapping[str, str],
    beneath: Set[str] = frozenset(),
) -> list[Edit]:
    """Keywords behind the last argument: on lines of their own where the arguments are.

    Those of the names in ``beneath`` may be among what the call spreads by ``**``: then these count.
    """
    words = [f"{name}={value}" for name, value in keywords.items()]
    text, end = code.text.text, code.span(call)[1]
    given: list[ast.expr | ast.keyword] = sorted([*call.args, *call.keywords], key=code.begin)
    if not given:
        opening = tokens_of(code).after(tokens_of(code).outer(call.func)[1])
        inside = opening.end if opening is not None else end - 1
        return [Edit(start=inside, end=inside, new=", ".join(words))]
    spread = spread_of(call)
    if spread is not None:  # what is spread stays last
        words = [f"{name}={value}" for name, value in keywords.items() if name not in beneath]
        under = {name: value for name, value in keywords.items() if name in beneath}
        front = [_in_front(code, code.span(spread)[0], words)] if words else []
        return [*front, *_beneath(code, spread.value, under)] if under else front
    begin, behind = _extent(code, given[-1])
    comma = tokens_of(code).comma_after(behind)
    if not text[code.line_start(begin) : begin].strip():
        return _on_lines(code, begin, behind, comma, end - 1, words)
    if comma >= 0:
        return [Edit(start=comma + 1, end=comma + 1, new="".join(f" {word}," for word in words))]
    return [Edit(start=behind, end=behind, new=", ".join(["", *words]))]


def _extent(code: Code, given: ast.expr | ast.keyword) -> tuple[int, int]:
    """An argument from its keyword, stars or opening parentheses to behind its closing ones."""
    tokens = tokens_of(code)
    if isinstance(given, ast.keyword | ast.Starred):
        return code.span(given)[0], tokens.outer(given.value)[1]
    return tokens.outer(given)


def _in_front(code: Code, begin: int, words: Sequence[str]) -> Edit:
    own_line = not code.text.text[code.line_start(begin) : begin].strip()
    between = code.text.newline + code.indent(begin) if own_line else " "
    return Edit(start=begin, end=begin, new="".join(f"{word},{between}" for word in words))


def _beneath(code: Code, spread: ast.expr, keywords: Mapping[str, str]) -> list[Edit]:
    """``**options`` becomes ``**{"num_workers": 2, **options}``: what the options have counts."""
    text = code.text.text
    quote = "'" if text.count("'") > text.count('"') else '"'
    entries = "".join(f"{quote}{name}{quote}: {value}, " for name, value in keywords.items())
    start, end = code.span(spread)
    if isinstance(spread, ast.Dict) and spread.values:
        return [Edit(start=start + 1, end=start + 1, new=entries)]
    opens, closes = ("**", "}") if plain(spread) else ("**(", ")}")
    return [Edit(start=start, end=start, new=f"{{{entries}{opens}"), Edit(start=end, end=end, new=closes)]


def _on_lines(
    code: Code, begin: int, behind: int, comma: int, close: int, words: Sequence[str]
) -> list[Edit]:
    newline, indent = code.text.newline, code.indent(begin)
    line_end = code.line_end(max(behind, comma))
    tail = "," if comma >= 0 else ""
    lines = ",".join(f"{newline}{indent}{word}" for word in words) + tail
    if line_end > close:  # the bracket closes on the same line
        return [Edit(start=behind, end=behind, new="," + lines.removesuffix(tail))]
    edits = [] if comma >= 0 else [Edit(start=behind, end=behind, new=",")]
    return [*edits, Edit(start=line_end, end=line_end, new=lines)]


def after_imports(code: Code) -> int:
    """Behind the last import at the head of a file, else behind its docstring and its first comments."""
    found: ast.stmt | None = None
    for at, statement in enumerate(code.module.body):
        is_import = isinstance(statement, ast.Import | ast.ImportFrom)
        if is_import or (
            at == 0 and isinstance(statement, ast.Expr) and text_of(statement.value) is not None
        ):
            found = statement
        elif isinstance(statement, _ENDS_HEAD) or "__name__" in code.source(statement)[:40]:
            break
    if found is not None:
        return code.line_end(max(code.span(found)[1] - 1, 0))
    first = code.module.body[0] if code.module.body else None
    return code.line_start(code.span(first)[0]) if first is not None else len(code.text.text)


def with_statements(code: Code, statements: Sequence[str]) -> Edit:
    """Imports directly behind the others, then a blank line and the rest."""
    at = after_imports(code)
    newline = code.text.newline
    others = [s for s in statements if not s.startswith(("import ", "from "))]
    imports = _joined([s for s in statements if s not in others])
    lines = [*imports, *(["", *others] if others else [])]
    text = code.text.text
    if at < len(text) and text[at] in "\r\n" and at > 0 and text[at - 1] not in "\r\n":
        new = "".join(newline + line for line in lines)
        blank = text[at:].startswith(newline * 2) or not text[at:].lstrip("\r\n")
        return Edit(start=at, end=at, new=new + ("" if blank or not others else newline))
    return Edit(start=at, end=at, new="".join(line + newline for line in [*imports, *others]))


def _joined(imports: Sequence[str]) -> list[str]:
    """Imports from one module as one line."""
    found: dict[str, list[str]] = {}
    for line in imports:
        module, _, names = line.partition(" import ")
        found.setdefault(module, []).append(names)
    return [f"{module} import {', '.join(names)}" if names[0] else module for module, names in found.items()]
