"""Where in the user's source something happened: call sites and stacks, interned and written once."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from itertools import islice
from types import CodeType, FrameType
from typing import Any, Final

from hotloop import fast
from hotloop.record.rows import U16_MAX

#: Bounds on memory: a script that keeps generating code must not make the probe grow.
_MAX_CODES: Final = 50_000
_MAX_STACKS: Final = 20_000
_MAX_LIBRARY: Final = 16

#: Stands for "no user code" where a code object's sites would be.
_LIBRARY: Final[dict[int, int]] = {}

_OWN: Final = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep

#: A frame as notes carry it: file, line, function, first line of the function.
Frame = tuple[str, int, str, int]
Note = Callable[..., None]


class UserCode:
    """Tells the user's code from the code of installed packages, the standard library and hotloop."""

    def __init__(self, torch_folder: str) -> None:
        self._cwd = cwd()
        self._known: dict[int, tuple[CodeType, bool]] = {}
        self._files: dict[str, bool] = {}
        self._command_line = sys.argv[:1] == ["-c"]
        library = {os.path.dirname(os.__file__), torch_folder, _OWN.rstrip(os.sep)}
        for prefix in (sys.prefix, sys.base_prefix, sys.exec_prefix):
            library.update(os.path.join(prefix, name) for name in ("lib", "lib64"))
        library |= {os.path.realpath(folder) for folder in library}
        self._library = tuple(sorted(folder + os.sep for folder in library))
        self._package = _running_package()

    def __call__(self, code: CodeType) -> bool:
        """Whether this code is the user's."""
        found = self._known.get(id(code))
        if found is not None and found[0] is code:
            return found[1]
        if len(self._known) >= _MAX_CODES:
            self._known.clear()
        user = self.file(code.co_filename)
        self._known[id(code)] = (code, user)  # held, so that its id is not given to another
        return user

    def file(self, filename: str) -> bool:
        """Whether a source file is the user's."""
        found = self._files.get(filename)
        if found is None:
            if len(self._files) >= _MAX_CODES:
                self._files.clear()
            found = self._files[filename] = self._judge(filename)
        return found

    def installed(self, code: CodeType) -> bool:
        """Whether this code belongs to an installed package, the standard library left out."""
        return not code.co_filename.startswith(_OWN) and _is_installed(self.path(code.co_filename))

    def path(self, filename: str) -> str:
        """The file name made absolute (against the directory the process started in)."""
        if filename.startswith("<"):
            return filename
        return os.path.normpath(os.path.join(self._cwd, filename))

    def _judge(self, filename: str) -> bool:
        if filename.startswith("<"):
            return filename.startswith(("<ipython", "<stdin>")) or (
                filename == "<string>" and self._command_line
            )
        path = self.path(filename)
        if self._package and path.startswith(self._package):
            return True
        if _is_installed(path) or "/torchinductor_" in path or "/_remote_module_" in path:
            return False
        return not path.startswith(self._library)


class Places:
    """Interns call sites and stacks; an id is 0 where there is no user frame or the table is full."""

    def __init__(self, user: UserCode, note: Note) -> None:
        self._user = user
        self._note = note
        # id of a code object -> its sites by instruction; code objects are held, so that an id stays theirs.
        self._by_code: dict[int, dict[int, int]] = {}
        #: The id of the innermost user frame at or above a frame.
        self.site: Callable[[FrameType | None], int] = self._site
        #: The id of the whole stack at a frame: user frames, and the library frames below the last of them.
        self.stack: Callable[[FrameType | None], int] = self._stack
        self._forget: Callable[[], None] = self._by_code.clear
        if fast.Sites is not None:
            self.site = fast.Sites(self._by_code, _LIBRARY, self._new_code, self._new_site, self._stack)
            self._forget, self.stack = self.site.forget, self.site.stack  # type: ignore[attr-defined]
        self.restart()

    def restart(self) -> None:
        """Forget every id: another process writes its own notes.

        What a forked child leaves behind it keeps: to free it would copy the pages it shares with its parent.
        """
        self._left = [vars(self).get(name) for name in ("_held", "_stacks", "_contents")]
        self._forget()
        self._held: dict[int, CodeType] = {}
        self._num_sites = 0
        self._stacks: dict[tuple[Any, ...], int] = {}
        self._contents: dict[tuple[Any, ...], int] = {}
        self._columns: dict[tuple[int, int], int] = {}
        self._by_stack: dict[tuple[int, ...], int] = {}
        self.files: set[str] = set()

    def see(self, filename: str) -> None:
        """The text of a file is wanted, where it is the user's."""
        if filename and self._user.file(filename):
            self.files.add(self._user.path(filename))

    def mention(self, pattern: str, unread: bool) -> bool:
        """Whether a text of the user's seen so far matches; ``unread`` of one that cannot be read."""
        for file in sorted(self.files):
            try:
                with open(file, encoding="utf-8", errors="replace") as stream:
                    found = re.search(pattern, stream.read()) is not None
            except OSError:
                found = unread
            if found:
                return True
        return False

    def _site(self, frame: FrameType | None) -> int:
        """``site`` where it is not compiled."""
        by_code = self._by_code
        while frame is not None:
            lines = by_code.get(id(frame.f_code))
            if lines is None:
                lines = self._new_code(frame.f_code)
            if lines is not _LIBRARY:
                found = lines.get(frame.f_lasti)
                return self._new_site(lines, frame) if found is None else found
            frame = frame.f_back
        return 0

    def site_by_stack(self, frame: FrameType | None) -> int:
        """A site that is told apart by who called as well: one factory builds the loaders of a whole script.

        ``site`` has the stack of the first call only.
        """
        site, frame = self.site(frame), self.user_frame(frame)
        key: list[int] = []
        above = frame
        while above is not None:
            if self._user(above.f_code):
                key += (id(above.f_code), above.f_lasti)
            above = above.f_back
        found = self._by_stack.get(tuple(key))
        if found is None:
            if not site or frame is None or len(self._by_stack) >= _MAX_STACKS:
                return site
            found = site if site not in self._by_stack.values() else self._new_site({}, frame)
            self._by_stack[tuple(key)] = found
        return found or site

    def user_frame(self, frame: FrameType | None) -> FrameType | None:
        """The innermost user frame at or above ``frame``."""
        while frame is not None and not self._user(frame.f_code):
            frame = frame.f_back
        return frame

    def called(self, frame: FrameType | None) -> str:
        """The function of an installed package, torch's left out, that the innermost user frame called on the
        way to ``frame``; "" where there is none.
        """
        found = ""
        while frame is not None and not self._user(frame.f_code):
            name = _library_name(frame.f_code) if self._user.installed(frame.f_code) else ""
            found = name if name and not name.startswith("torch.") else found
            frame = frame.f_back
        return found if frame is not None else ""

    def _stack(self, frame: FrameType | None) -> int:
        """``stack`` where it is not compiled, or does not know it yet."""
        by_code = self._by_code
        key: list[int] = []
        above = frame
        while above is not None:  # line numbers cost more than all of this, and are needed once per stack
            code = above.f_code
            number = id(code)
            key.append(number)
            lines = by_code.get(number)
            if lines is None:
                lines = self._new_code(code)
            if lines is not _LIBRARY:  # where inside a library function does not matter
                key.append(above.f_lasti)
            above = above.f_back
        interned = tuple(key)
        found = self._stacks.get(interned)
        return self._new_stack(interned, frame) if found is None else found

    def _new_code(self, code: CodeType) -> dict[int, int]:
        if len(self._held) >= _MAX_CODES:
            self._held.clear()
            self._forget()
            self._stacks.clear()
            self._columns.clear()
            self._by_stack.clear()
        self._held[id(code)] = code
        lines: dict[int, int] = {} if self._user(code) else _LIBRARY
        self._by_code[id(code)] = lines
        return lines

    def _new_site(self, lines: dict[int, int], frame: FrameType) -> int:
        code = frame.f_code
        if self._num_sites >= U16_MAX - 1:
            return 0
        self._num_sites += 1
        lines[frame.f_lasti] = self._num_sites
        line, end_line, col, end_col = _position(code, frame.f_lasti)
        stack = []
        above: FrameType | None = frame
        while above is not None:
            if self._user(above.f_code):
                column = self._column(above.f_code, above.f_lasti)
                stack.append((*self._frame(above), column))
            above = above.f_back
        self._note(
            "site",
            id=self._num_sites,
            file=self._user.path(code.co_filename),
            line=line or frame.f_lineno,
            end_line=end_line,
            col=col,
            end_col=end_col,
            func=code.co_qualname,
            func_line=code.co_firstlineno,
            stack=stack[::-1],
        )
        return self._num_sites

    def _new_stack(self, key: tuple[int, ...], frame: FrameType | None) -> int:
        user: list[tuple[str, int, str, int, int]] = []
        library: list[str] = []
        while frame is not None:  # innermost first
            code = frame.f_code
            if self._user(code):
                # Where it was called from; in one function a column for every instruction would be too much.
                column = self._column(code, frame.f_lasti) if user or library else -1
                user.append((*self._frame(frame), column))
            elif not user and not code.co_filename.startswith(_OWN):
                library.append(_library_name(code))
            frame = frame.f_back
        content = (tuple(user), tuple(library[-_MAX_LIBRARY:]))
        found = self._contents.get(content, 0)
        if not found:
            if len(self._contents) >= _MAX_STACKS:
                return 0
            found = self._contents[content] = len(self._contents) + 1
            self._note("stack", id=found, frames=user[::-1], library=library[-_MAX_LIBRARY:][::-1])
        if len(self._stacks) >= _MAX_STACKS:
            self._stacks.clear()
        self._stacks[key] = found
        return found

    def _column(self, code: CodeType, lasti: int) -> int:
        """The column an instruction's source begins at, -1 unknown. Finding it walks the code: kept."""
        found = self._columns.get((id(code), lasti))
        if found is None:
            column = _position(code, lasti)[2]
            found = self._columns[id(code), lasti] = -1 if column is None else column
        return found

    def _frame(self, frame: FrameType) -> Frame:
        code = frame.f_code
        file = self._user.path(code.co_filename)
        self.files.add(file)
        line = frame.f_lineno or _line_before(code, frame.f_lasti)
        return (file, line, code.co_qualname, code.co_firstlineno)


def _is_installed(path: str) -> bool:
    return "/site-packages/" in path or "/dist-packages/" in path


def _line_before(code: CodeType, lasti: int) -> int:
    """The line of what precedes an instruction that has none: the jump back to a loop's head, where several
    branches end in it. Python looks for signals there, so most samples of such a loop fall on it.
    """
    found = code.co_firstlineno
    for start, _, line in code.co_lines():
        if start > lasti:
            break
        found = line or found
    return found


def _position(code: CodeType, lasti: int) -> tuple[int | None, int | None, int | None, int | None]:
    return next(islice(code.co_positions(), lasti // 2, None), (None, None, None, None))


def _library_name(code: CodeType) -> str:
    """``package.module:function`` out of a file name: the frame's globals are not at hand for interned
    code.
    """
    path = code.co_filename
    for marker in ("/site-packages/", "/dist-packages/"):
        if marker in path:
            path = path.split(marker)[-1]
            break
    else:
        path = path.replace("<frozen ", "").rstrip(">")
        stdlib = os.path.dirname(os.__file__) + os.sep
        path = path[len(stdlib) :] if path.startswith(stdlib) else os.path.basename(path)
    module = path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return f"{module}:{code.co_qualname}"


def cwd() -> str:
    """The working folder, "/" where it was removed under the process."""
    try:
        return os.getcwd()
    except OSError:
        return "/"


def _running_package() -> str:
    """The folder of an installed package that is run with ``python -m package``: then it is the user's
    code.
    """
    spec = getattr(sys.modules.get("__main__"), "__spec__", None)
    name = getattr(spec, "name", None) or ""
    top = name.partition(".")[0]
    if not top or top in ("torch", "accelerate", "lightning", "deepspeed", "pytest", "__main__", "runpy"):
        return ""
    module = sys.modules.get(top)
    file = getattr(module, "__file__", None) or ""
    folder = os.path.dirname(file)
    return folder + os.sep if "/site-packages/" in folder and file.endswith("__init__.py") else ""
