"""The files that code reads and writes, as far as the names in its text tell them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

import libcst as cst

from hotloop.remedy.source.code import Code, argument, last_name
from hotloop.remedy.source.values import text_of

#: What a variable may stand for; nothing where that is not known.
Values = Callable[[Code, cst.Name], list[tuple[Code, cst.BaseExpression]]]

#: Calls that read a file.
_READS: Final = frozenset([
    "open", "load", "memmap", "open_memmap", "mmap", "fromfile", "from_file", "loadtxt", "genfromtxt",
    "loadmat", "imread", "File", "safe_open", "load_file", "connect", "listdir", "scandir", "glob", "rglob",
    "iglob", "iterdir", "walk",
])  # fmt: skip
#: Of them those that go on reading later.
_LASTING: Final = frozenset(
    ["open", "memmap", "open_memmap", "mmap", "from_file", "File", "safe_open", "connect"]
)
#: Calls that write a file, by where its name stands among the arguments.
_WRITES: Final = {
    "save": 0, "savez": 0, "savez_compressed": 0, "savetxt": 0, "tofile": 0, "to_csv": 0, "to_parquet": 0,
    "to_pickle": 0, "to_hdf": 0, "to_json": 0, "imwrite": 0, "imsave": 0, "savefig": 0, "savemat": 0,
    "save_file": 1, "save_image": 1, "copy": 1, "copyfile": 1, "copy2": 1, "copytree": 1, "move": 1,
    "rename": 1, "replace": 1, "symlink": 1, "link": 1, "remove": 0, "unlink": 0, "truncate": 0, "rmtree": 0,
    "write_text": -1, "write_bytes": -1, "connect": 0, "save_checkpoint": 0, "save_state": 0,
    "save_model": 0, "save_pretrained": 0,
}  # fmt: skip
#: Of them those that are meant only of these packages: lists and texts have such methods too.
_ONLY_OF: Final = {
    "copy": "shutil.", "copy2": "shutil.", "move": "shutil.", "copyfile": "shutil.", "copytree": "shutil.",
    "rmtree": "shutil.", "remove": "os.", "symlink": "os.", "link": "os.", "connect": "sqlite3.",
}  # fmt: skip
#: Calls that open a file to read or to write it, by where the mode stands and what it is where none is given.
_OPENS: Final = {
    "open": (1, "r"), "File": (1, "r"), "memmap": (2, "r+"), "open_memmap": (1, "r+"), "load": (1, "r"),
}  # fmt: skip
_HANDLES: Final = ("json.", "pickle.", "yaml.", "marshal.", "tomllib.", "dill.")
_WRITING: Final = frozenset("wax+")
_SAME: Final = frozenset(["str", "Path", "fspath", "abspath", "expanduser", "normpath", "as_posix"])
_FORMATS: Final = re.compile(r"%(\(\w+\))?[-#0-9 +.]*[a-zA-Z%]|\{[^}]*\}")
_DEEP: Final = 20


class Name(NamedTuple):
    """The end of a path; ``whole`` where it is the whole of it."""

    text: str
    whole: bool

    @property
    def last(self) -> Name:
        """Its last component, or the end of that."""
        _, slash, last = self.text.replace("\\", "/").rpartition("/")
        return Name(last, self.whole or bool(slash)) if last else _UNKNOWN

    def is_other(self, name: Name) -> bool:
        """Whether both are certainly two files."""
        one, other = self.last, name.last
        if one.whole and other.whole:
            return one.text != other.text
        if one.whole or other.whole:
            full, end = (one, other) if one.whole else (other, one)
            return not full.text.endswith(end.text)
        return not one.text.endswith(other.text) and not other.text.endswith(one.text)


_UNKNOWN: Final = Name("", False)


def reads(code: Code, under: cst.CSTNode, *, lasting: bool = False) -> Iterator[cst.Call]:
    """Calls that read a file; only those that may read it later too, where that is asked."""
    for call in code.nodes(cst.Call, under):
        name, whole = last_name(call.func), _package(code, call)
        if name == "load" and (whole.startswith(_HANDLES) or not call.args):
            continue  # of what was opened
        if name == "connect" and not whole.startswith("sqlite3."):
            continue
        mapped = argument(call, "mmap_mode") is not None or argument(call, "mmap") is not None
        if lasting:
            reading = name in _LASTING or (name == "load" and mapped)
        else:
            reading = name in _READS or (name.startswith("read_") and isinstance(call.func, cst.Attribute))
        if reading:
            yield call


def named_by(code: Code, call: cst.Call, values: Values) -> list[Name]:
    """What a call that reads may read."""
    node = _file_of(code, call, 0)
    return _names(code, node, values, 0) if node is not None else [_UNKNOWN]


def writes(code: Code, call: cst.Call, values: Values) -> list[Name]:
    """What a call may write; nothing where it writes no file."""
    name, whole = last_name(call.func), _package(code, call)
    if whole.startswith("subprocess.") or whole in ("os.system", "os.popen", "os.chdir", "os.fchdir"):
        return [_UNKNOWN]  # what paths mean is another from there on
    if name in _OPENS:
        if not opens_to_write(code, call):
            return []
        node = _file_of(code, call, 0)
        return _names(code, node, values, 0) if node is not None else [_UNKNOWN]
    at = _place(code, call)
    if at is None:
        return []
    node = _file_of(code, call, at)
    found = _names(code, node, values, 0) if node is not None else [_UNKNOWN]
    if name in ("rename", "replace", "move") and call.args:  # gone from there
        source = _file_of(code, call, 0 if whole else -1)
        found += _names(code, source, values, 0) if source is not None else [_UNKNOWN]
    return found


def opens_to_write(code: Code, call: cst.Call) -> bool:
    """Whether a call opens a file to write into it."""
    name = last_name(call.func)
    if name not in _OPENS:
        return False
    at, mode = _OPENS[name]
    if name == "load":
        given = argument(call, "mmap_mode")
        return given is not None and _writing(given)
    if name == "open" and isinstance(call.func, cst.Attribute) and not _package(code, call):
        at = 0 if len(call.args) < 2 or call.args[1].keyword is not None else 1  # path.open("w")
    given = argument(call, "mode", at)
    return _writing(given) if given is not None else bool(_WRITING & set(mode))


def _writing(mode: cst.BaseExpression) -> bool:
    text = text_of(mode)
    if text is None:
        return not (isinstance(mode, cst.Name) and mode.value == "None")
    return bool(_WRITING & set(text)) and text != "readonly" and text != "copyonwrite"


def _place(code: Code, call: cst.Call) -> int | None:
    """Where the name of the file that a call writes stands; -1: before the method. None: it writes none."""
    name, whole = last_name(call.func), _package(code, call)
    if name == "dump":
        return 1 if whole.startswith("joblib.") else None  # into what was opened
    if name not in _WRITES or (name in _ONLY_OF and not whole.startswith(_ONLY_OF[name])):
        return None
    if name == "save":
        return 1 if whole.startswith(("torch.", "safetensors.")) else (0 if call.args else None)
    if name == "unlink" and not whole:
        return -1
    if name in ("rename", "replace", "truncate") and not whole:  # path.rename(target)
        moved = name != "truncate" and len(call.args) == 1 and call.args[0].keyword is None
        return 0 if moved else None
    return _WRITES[name] if call.args or _WRITES[name] < 0 else None


def _package(code: Code, call: cst.Call) -> str:
    """The full name of a package's function; "" of a method of what another expression gives."""
    node = call.func
    while isinstance(node, cst.Attribute):
        node = node.value
    return code.qualified(call.func) if isinstance(node, cst.Name) else ""


def _file_of(code: Code, call: cst.Call, at: int) -> cst.BaseExpression | None:
    """The argument at a place, or what a method is called of."""
    func = call.func
    method = func.value if isinstance(func, cst.Attribute) and not _package(code, call) else None
    name = last_name(func)
    own = name in ("read_text", "read_bytes", "write_text", "write_bytes", "iterdir", "glob", "rglob")
    if method is not None and (at == -1 or own or (name == "open" and len(call.args) < 2)):
        return method
    if at == -1:
        return None
    for keyword in ("f", "file", "filename", "path", "fname", "dst", "fp"):
        given = argument(call, keyword)
        if given is not None:
            return given
    if any(arg.star for arg in call.args[: at + 1]) or len(call.args) <= at:
        return None
    return call.args[at].value if call.args[at].keyword is None else None


def _names(code: Code, node: cst.BaseExpression, values: Values, depth: int) -> list[Name]:
    """What an expression may give as a path."""
    if depth > _DEEP:
        return [_UNKNOWN]

    def of(one: cst.BaseExpression) -> list[Name]:
        return _names(code, one, values, depth + 1)

    text = text_of(node)
    if text is not None:
        return [Name(text, True)]
    if isinstance(node, cst.ConcatenatedString):
        return _joined([of(node.left), of(node.right)])
    if isinstance(node, cst.FormattedString):
        return _joined(
            [
                [Name(one.value, True)] if isinstance(one, cst.FormattedStringText) else of(one.expression)
                for one in node.parts
                if isinstance(one, cst.FormattedStringText | cst.FormattedStringExpression)
            ]
        )
    if isinstance(node, cst.BinaryOperation):
        if isinstance(node.operator, cst.Add):
            return _joined([of(node.left), of(node.right)])
        if isinstance(node.operator, cst.Divide):
            return _joined([of(node.left), [Name("/", True)], of(node.right)])
        return (
            [_filled(one) for one in of(node.left)] if isinstance(node.operator, cst.Modulo) else [_UNKNOWN]
        )
    if isinstance(node, cst.IfExp):
        return of(node.body) + of(node.orelse)
    if isinstance(node, cst.Name):
        given = values(code, node)
        return [name for where, one in given for name in _names(where, one, values, depth + 1)] or [_UNKNOWN]
    if isinstance(node, cst.Call):
        return _of_call(code, node, of)
    return [_UNKNOWN]


def _of_call(code: Code, call: cst.Call, of: Callable[[cst.BaseExpression], list[Name]]) -> list[Name]:
    name = last_name(call.func)
    args = [arg.value for arg in call.args]
    if name == "format" and isinstance(call.func, cst.Attribute):
        return [_filled(one) for one in of(call.func.value)]
    if name == "open":
        node = _file_of(code, call, 0)
        return of(node) if node is not None else [_UNKNOWN]
    if any(arg.star or arg.keyword is not None for arg in call.args):
        return [_UNKNOWN]
    if name in ("join", "joinpath", "Path") and args:
        if name == "join" and not _package(code, call).startswith(("os.path.", "posixpath.")):
            return [_UNKNOWN]
        between = [Name("/", True)]
        if name == "joinpath" and isinstance(call.func, cst.Attribute):
            args = [call.func.value, *args]
        return _joined([part for one in args for part in (between, of(one))])
    return of(args[0]) if name in _SAME and len(args) == 1 else [_UNKNOWN]


def _filled(name: Name) -> Name:
    """A text whose gaps are filled with anything."""
    parts = list(_FORMATS.finditer(name.text))
    return Name(name.text[parts[-1].end() :], False) if parts else name


def _joined(parts: list[list[Name]]) -> list[Name]:
    """What the parts give one behind the other."""
    found = [Name("", True)]
    for part in parts:
        found = [Name(one.text + end.text, one.whole) if end.whole else end for one in found for end in part]
    return found
