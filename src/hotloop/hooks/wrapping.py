"""Making wrappers that torch.compile does not notice.

Dynamo decides by the file of a code object whether to trace into it. A wrapper compiled under the file name
of the function it wraps is skipped or inlined as that function would be, so frames, graphs and graph breaks
stay what they are. The first thing every wrapper asks is whether it is being compiled.
"""

from __future__ import annotations

import ast
import builtins
import functools
import sys
from _thread import get_ident
from collections.abc import Callable
from types import CodeType, FrameType, FunctionType
from typing import Any, Final

from hotloop.hooks.imports import IMPORT_FILE

#: ``begin(args, kwargs, frame)``: before the call; ``frame`` is the caller's. What it returns is handed to
#: ``end``; None leaves this call unobserved.
Begin = Callable[[tuple[Any, ...], dict[str, Any], FrameType], Any]
#: ``end(token, start, stop, result)``: after the call (nanoseconds); ``result`` is RAISED where it raised.
End = Callable[[Any, int, int, Any], None]


#: No line of any file: no source is shown.
_NO_LINE: Final = 0

#: Handed to ``end`` instead of a result.
RAISED: Final = object()

#: Reports each call of ``original`` made by the recorded thread, or by any.
AROUND: Final = """
def {name}(*args, **kwargs):
    if is_compiling():
        return original(*args, **kwargs)
    if {elsewhere}:
        return original(*args, **kwargs)
    try:
        token = begin(args, kwargs, getframe(1))
    except Exception as error:
        token = None
        failed(switch, error)
    if token is None:
        return original(*args, **kwargs)
    result = raised
    start = now()
    try:
        result = original(*args, **kwargs)
        return result
    finally:
        stop = now()
        try:
            end(token, start, stop, result)
        except Exception as error:
            failed(switch, error)
"""


_UNSEEN: Final = ("    except BaseException as through:", "        hide(through)", "        raise")


def hide(error: BaseException) -> None:
    """Takes the frame that caught an error out of its traceback: raised on from there it stays away."""
    if error.__traceback__ is not None:
        error.__traceback__ = error.__traceback__.tb_next


def compile_beside(original: Any, source: str, filename: str = "", **names: Any) -> Any:
    """The function in ``source`` (its name written ``{name}``), compiled under the file name of
    ``original``.

    Its globals are ``names`` besides ``original``, ``is_compiling``, ``get_ident`` and ``getframe``, and the
    ``owner`` of a ``switch`` among them. It carries the name, documentation and signature of ``original``.
    What is raised through it has no frame of it in its traceback.
    """
    plain = getattr(original, "__name__", "")
    name = plain if plain.isidentifier() else "wrapper"
    # C functions have no code: torch's own tensor methods live beside torch/_tensor.py.
    code = getattr(original, "__code__", None) or getattr(
        getattr(original, "__wrapped__", None), "__code__", None
    )
    if not filename:
        beside = getattr(sys.modules.get("torch._tensor"), "__file__", None) or "<hotloop>"
        filename = code.co_filename if code is not None else beside
        if filename.endswith("torch/_compile.py"):  # dynamo is told not to enter it: nor this one
            filename = IMPORT_FILE
    if filename == IMPORT_FILE:  # dynamo never enters it
        source = source.replace("is_compiling()", "False")
    template = _template(source)
    names = {
        "original": original,
        "is_compiling": _is_compiling(),
        "get_ident": get_ident,
        "getframe": sys._getframe,
        "hide": hide,
        **names,
    }
    if "switch" in names:
        names["owner"] = names["switch"].owner
    # What is used lies close together. No __name__: dynamo would look our names up in the module called so.
    inner = (const for const in template.__code__.co_consts if isinstance(const, CodeType))
    used = [name for one in (template.__code__, *inner) for name in one.co_names]
    namespace = {"__builtins__": vars(builtins)} | {name: names[name] for name in used if name in names}
    # In a traceback the wrapper is one line, the original's own first one.
    line = code.co_firstlineno if code is not None and code.co_filename == filename else _NO_LINE
    code = template.__code__.replace(
        co_filename=filename, co_name=name, co_qualname=name, co_firstlineno=line
    )
    function = FunctionType(code, namespace, name, template.__defaults__)
    function.__kwdefaults__ = template.__kwdefaults__
    return functools.update_wrapper(function, original)


def same_code(one: CodeType | None, other: CodeType) -> bool:
    """Whether two functions do the same, whatever their files, names, lines and annotations."""
    return one is not None and _bare(one) == _bare(other)


def _bare(code: CodeType) -> CodeType:
    """The code without what only says where it was written."""
    consts = tuple(_bare(one) if isinstance(one, CodeType) else one for one in code.co_consts)
    bare: dict[str, Any] = {
        "co_name": "",
        "co_qualname": "",
        "co_firstlineno": 1,
        "co_linetable": b"",
        "co_consts": consts,
    }
    return code.replace(co_flags=code.co_flags & 0xFF, **bare)


def code_of(source: str) -> CodeType:
    """The code of the one function in a source."""
    names: dict[str, Any] = {}
    exec(compile(source, "<hotloop>", "exec"), names)  # nosec B102
    function: FunctionType = next(value for name, value in names.items() if name != "__builtins__")
    return function.__code__


@functools.cache
def _template(source: str) -> FunctionType:
    """The function in a source, compiled once: each wrapper takes its code under another name."""
    lines = source.replace("{name}", "wrapper").strip().splitlines()
    # Dynamo sees no more than the first statement; a wrapper that does what the original did has its frame.
    if lines[1].startswith("    if ") and any("original(" in line for line in lines[3:]):
        lines[3:] = ["    try:", *(f"    {line}" for line in lines[3:]), *_UNSEEN]
    tree = ast.parse("\n".join(lines))
    for node in ast.walk(tree):
        if isinstance(node, ast.expr | ast.stmt):
            node.lineno = node.end_lineno = 1
            node.col_offset = node.end_col_offset = 0
    names: dict[str, Any] = {}
    exec(compile(tree, "<hotloop>", "exec"), names)  # nosec B102
    function: FunctionType = names["wrapper"]
    return function


def _is_compiling() -> Callable[[], bool]:
    """Dynamo replaces it by True while tracing; outside it is the cheapest function there can be."""
    compiler = getattr(sys.modules.get("torch"), "compiler", None)
    return getattr(compiler, "is_dynamo_compiling", None) or (lambda: False)
