"""The proof: the command run again on a patched copy, up to the call that was changed, and then ended."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from difflib import SequenceMatcher
from pathlib import Path
from typing import Any, Final

import psutil

from hotloop.fix.patch import Patch
from hotloop.fix.plan import Expected
from hotloop.launch.command import observed_environment
from hotloop.launch.output import last_words
from hotloop.launch.throwaway import caches_of_libraries
from hotloop.measure.places import COMPREHENSIONS, Frame
from hotloop.measure.settings import same
from hotloop.record.recording import Note

#: Files up to this size are copied; larger ones that the run did not write are linked: they are data.
_COPIED_BYTES: Final = 1 << 20
#: A folder with more files than this is data; so is everything without code once so many were copied.
_MANY_FILES: Final = 1000
_MAX_FILES: Final = 20_000
_POLL_S: Final = 0.05
_GUARD: Final = Path(__file__).parent / "guard"
_SKIPPED: Final = frozenset(
    [".git", "__pycache__", ".venv", "venv", "node_modules", "hotloop-runs", ".mypy_cache"]
)


@dataclass(frozen=True, kw_only=True)
class Proof:
    """What the patched copy did. ``passed`` is None where nothing could be proven either way."""

    passed: bool | None
    words: str
    seconds: float = 0.0


def prove(patch: Patch, root: Path, *, started_unix_s: float, timeout_s: float) -> Proof:
    """Run the command in a patched copy of ``root`` until the run shows what the patch changed."""
    if not patch.scene.command:
        return Proof(passed=None, words="the recording has no command")
    outside = [path for path in patch.files if root not in path.parents]
    if outside:
        return Proof(passed=None, words=f"{outside[0]} lies outside {root}: a copy cannot be run")
    begin = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="hotloop-fix-") as scratch:
        copy = Path(scratch) / root.name
        try:
            _copied(root, copy, started_unix_s)
        except OSError as error:
            return Proof(passed=None, words=f"{root} could not be copied: {error.strerror or error}")
        for path, (_, new) in patch.files.items():
            target = copy / path.relative_to(root)
            target.unlink(missing_ok=True)
            target.write_bytes(new)
            target.chmod(path.stat().st_mode & 0o7777)
        proof = _Trial(patch, root, copy, Path(scratch), started_unix_s).run(timeout_s)
    return Proof(passed=proof.passed, words=proof.words, seconds=time.monotonic() - begin)


def _copied(root: Path, copy: Path, started_unix_s: float) -> None:
    """The tree without what the run wrote that is large; folders full of data are linked, not copied.

    A link is safe: the trial is refused to write through it.
    """
    number = 0
    for folder, names, files in os.walk(root):
        here = copy / Path(folder).relative_to(root)
        many = len(files) > _MANY_FILES or number > _MAX_FILES
        if many and folder != str(root) and not any(file.endswith(".py") for file in files):
            names.clear()
            here.symlink_to(folder)
            continue
        number += len(files)
        here.mkdir(parents=True, exist_ok=True)
        names[:] = [name for name in names if name not in _SKIPPED]
        for name in [name for name in names if Path(folder, name).is_symlink()]:
            (here / name).symlink_to(Path(folder, name).resolve())
        for name in files:
            _copied_file(Path(folder, name), here / name, started_unix_s)


def _copied_file(source: Path, target: Path, started_unix_s: float) -> None:
    facts = source.stat() if source.exists() else source.lstat()
    if facts.st_size <= _COPIED_BYTES and source.is_file():
        shutil.copy2(source, target)
    elif facts.st_mtime < started_unix_s:  # data: the run did not write it
        target.symlink_to(source.resolve())


class _Trial:
    """One run of the copy."""

    def __init__(self, patch: Patch, root: Path, copy: Path, scratch: Path, started_unix_s: float) -> None:
        self._patch, self._root, self._copy, self._started_unix_s = patch, root, copy, started_unix_s
        self._raw, self._output = scratch / "raw", scratch / "output.txt"
        self._scratch, self._refused = scratch, scratch / "refused.txt"

    def run(self, timeout_s: float) -> Proof:
        self._raw.mkdir()
        scene = self._patch.scene
        environment = observed_environment(
            os.environ, raw_dir=self._raw, src_dir=Path(__file__).resolve().parents[2], steps=1
        )
        inject, *others = environment["PYTHONPATH"].split(os.pathsep)
        environment |= {
            "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": os.pathsep.join([inject, str(_GUARD), *others]),
            "HOTLOOP_MAY_WRITE": os.pathsep.join(str(folder.resolve()) for folder in self._may_write()),
            "HOTLOOP_REFUSED": str(self._refused.resolve()),
            "TMPDIR": str(self._scratch),
        }
        words = [self._moved(word) for word in scene.command]
        inside = self._root in (scene.started, *scene.started.parents)
        cwd = self._copy / scene.started.relative_to(self._root) if inside else scene.started
        with self._output.open("wb") as output:
            try:
                child = subprocess.Popen(
                    words, cwd=cwd, env=environment, stdin=subprocess.DEVNULL,
                    stdout=output, stderr=subprocess.STDOUT, start_new_session=True,
                )  # fmt: skip
            except OSError as error:
                return Proof(passed=None, words=f"{words[0]} cannot be run: {error.strerror}")
            try:
                return self._watched(child, time.monotonic() + timeout_s, timeout_s)
            finally:
                self._end(child)

    def _may_write(self) -> list[Path]:
        """The trial's own folder, devices, and what torch and its like keep for themselves."""
        caches = [*caches_of_libraries(), Path.home() / ".triton"]
        return [self._scratch, Path("/dev"), Path("/proc"), *caches]

    def _moved(self, word: str) -> str:
        """A word of the command that names a file of the tree, naming it in the copy."""
        started = self._patch.scene.started
        path = Path(os.path.normpath(started / word))
        if word.startswith("..") and path.exists() and path.stat().st_mtime < self._started_unix_s:
            return str(path)  # data beside the tree; what the run wrote there goes to the scratch folder
        relative = not Path(word).is_absolute() and self._root in (path.parents)
        if relative and self._root in (started, *started.parents):
            return word
        if self._root in path.parents and (path.exists() or Path(word).is_absolute()):
            return str(self._copy / path.relative_to(self._root))
        return word

    def _watched(self, child: subprocess.Popen[bytes], until: float, timeout_s: float) -> Proof:
        while True:
            ended = child.poll() is not None
            proof = self._judged()
            if proof is not None:
                return proof
            if ended:
                return self._ended(child.returncode)
            if time.monotonic() > until:
                return Proof(passed=None, words=f"the copy did not get there in {timeout_s:g} s")
            time.sleep(_POLL_S)

    def _judged(self) -> Proof | None:
        """Whether the copy has shown what it must; None while it has not come so far."""
        notes = [note for path in sorted(self._raw.glob("*.notes")) for note in _notes(path)]
        # A copy that fails before its first update notes torch's settings as it ends.
        notes = [note for note in notes if note["note"] != "torch" or note.get("when") == "first_step"]
        sites = {note["id"]: note for note in notes if note["note"] == "site"}
        words = []
        for expected in self._patch.expected:
            found = [n for n in notes if n["note"] == expected.note and self._is_meant(n, sites, expected)]
            if not found:
                return None
            value = found[-1].get(expected.name)
            said = f"{expected.name}={value}" if expected.name != "class" else str(value)
            if not (value is expected.value or same(value, expected.value)):
                return Proof(passed=False, words=f"the patched copy has {said}, not {expected.value}")
            words.append(said)
        trained = any(note["note"] == "torch" for note in notes)
        if (self._patch.needs_update or not words) and not trained:
            return None
        ran = "runs to its first update" if trained else "runs to its loader"
        return Proof(
            passed=True, words=f"the patched copy {ran}{' with ' if words else ''}{', '.join(words)}"
        )

    def _is_meant(self, note: Note, sites: Mapping[Any, Note], expected: Expected) -> bool:
        if not expected.frames:
            return True
        site = sites.get(note.get("via") or note.get("where"), {})
        *above, last = expected.frames
        file = str(self._in_copy(last.file))
        func = str(site.get("func"))
        within = func.startswith(f"{last.func}.<locals>.<")
        within = within or (last.func == "<module>" and func in COMPREHENSIONS)
        if site.get("file") != file or not (within or func == last.func):
            return False
        if within:
            return True
        callers = site.get("stack", [])[:-1]
        if site.get("line") not in self._lines_now(last) or len(callers) != len(above):
            return False
        return all(
            name == str(self._in_copy(frame.file)) and line in self._lines_now(frame)
            for frame, (name, line, *_) in zip(above, callers, strict=True)
        )

    def _in_copy(self, file: str) -> Path:
        path = Path(file)
        return self._copy / path.relative_to(self._root) if self._root in path.parents else path

    def _lines_now(self, frame: Frame) -> range:
        """Where a line of the run stands in the copy."""
        if Path(frame.file) not in self._patch.files:
            return range(frame.line, frame.line + 1)
        text, new = self._patch.files[Path(frame.file)]
        return lines_now(text.encoded(text.text), new, frame.line)

    def _ended(self, code: int) -> Proof:
        refused = self._refused.read_text().splitlines() if self._refused.exists() else []
        if refused and code:
            words = f"the script writes {refused[-1]} before it gets there, which a trial must not"
            return Proof(passed=None, words=words)
        words = last_words(self._output.read_bytes().decode("utf-8", "replace"))
        last = f": {words}" if words else ""
        if code:
            return Proof(passed=False, words=f"the patched copy ended with exit code {code}{last}")
        return Proof(passed=None, words="the patched copy ended before it got there")

    def _end(self, child: subprocess.Popen[bytes]) -> None:
        """End everything the trial started, launchers first, so that they end their ranks themselves."""
        family: list[psutil.Process] = []
        try:
            family = [*psutil.Process(child.pid).children(recursive=True), psutil.Process(child.pid)]
        except psutil.NoSuchProcess:
            pass
        for number in (signal.SIGTERM, signal.SIGKILL):
            for process in family:
                try:
                    process.send_signal(number)
                except psutil.NoSuchProcess:
                    continue
            _, family = psutil.wait_procs(family, timeout=3)
        try:
            os.killpg(child.pid, signal.SIGKILL)  # in a session of its own
        except ProcessLookupError:
            pass
        child.wait()


def lines_now(before: bytes, after: bytes, line: int) -> range:
    """Where a line of a text stands after a change; what took its place where it was changed itself."""
    old, new = before.splitlines(), after.splitlines()
    for tag, i1, i2, j1, j2 in SequenceMatcher(None, old, new, autojunk=False).get_opcodes():
        if i1 < line <= i2:
            one_to_one = tag == "equal" or i2 - i1 == j2 - j1
            return range(line + j1 - i1, line + j1 - i1 + 1) if one_to_one else range(j1 + 1, j2 + 1)
    return range(0)


def _notes(path: Path) -> Iterator[Note]:
    for line in path.read_bytes().splitlines():
        try:
            note: Any = json.loads(line)
        except ValueError:
            continue  # still being written
        if isinstance(note, Mapping) and "note" in note:
            yield dict(note)
