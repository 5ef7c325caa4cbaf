"""A patch in force: this process runs the patched text of files that stay on disk as they are.

Imported by sitecustomize where HOTLOOP_PATCH names a folder (``fix.in_force``). Modules get their
text from the loader, without a .pyc read or written; the main script is handed to the interpreter the way a
zip file is, by a path hook for this one path, so that exit codes, signals and threads at exit stay its
affair; what runs a file by its path (multiprocessing's spawn, cProfile) reads it through ``io.open_code``.
Standard library only.
"""

import io
import sys
from os import environ, fsdecode
from os.path import basename, dirname, realpath

_MAIN_FRAME = {"co_filename": "<frozen runpy>", "co_name": "_run_code"}  # as under python -m


def _texts(folder):
    with open(folder + "/files", encoding="utf-8", errors="surrogateescape") as stream:
        paths = stream.read().split("\n")
    texts = {}
    for number, path in enumerate(paths):
        with open(f"{folder}/{number}.py", "rb") as stream:
            texts[path] = stream.read()
    return texts


def text_of(path):
    """The patched text of a file as bytes, None of one that is as it is on disk."""
    name = fsdecode(path) if isinstance(path, (str, bytes)) or hasattr(path, "__fspath__") else ""
    return _TEXTS.get(realpath(name)) if basename(name) in _NAMES else None


def _met(path, text):
    """The text is about to run as ``path``: tracebacks show it, and the launcher is told."""
    import linecache
    from importlib.util import decode_source

    lines = decode_source(text).splitlines(keepends=True)
    linecache.cache[path] = len(text), None, lines, path
    if sys.excepthook is sys.__excepthook__:
        sys.excepthook = _print_exception
    real = realpath(path)
    if real not in _TOLD:
        _TOLD.add(real)
        try:
            with open(
                environ["HOTLOOP_RAW"] + "/patch-met", "a", encoding="utf-8", errors="surrogateescape"
            ) as file:
                file.write(real + "\n")
        except Exception:  # a full disk, an environment that was cleared: the script goes on
            pass


def _get_code(self, fullname):
    text = text_of(self.path)
    if text is None:
        return _code_of(self, fullname)
    _met(self.path, text)
    return self.source_to_code(text, self.path)


def _open_code(path):
    text = text_of(path)
    if text is None:
        return _opened(path)
    _met(fsdecode(path), text)
    return io.BytesIO(text)


def _hook(entry):
    """The interpreter asks whether the script is a folder or an archive with a ``__main__``."""
    text = _TEXTS.get(realpath(entry))
    if text is None:
        raise ImportError
    import runpy

    native = runpy._run_module_as_main

    def run(name, alter_argv=True):
        runpy._run_module_as_main = native
        sys.path_hooks.remove(_hook)
        sys.path_importer_cache.pop(entry, None)
        folder = [] if sys.flags.safe_path else [dirname(realpath(entry))]
        sys.path[:1] = folder  # the entry itself, as it would be of a zip file
        _met(entry, text)
        space = sys.modules["__main__"].__dict__
        space.update(__file__=entry, __cached__=None, __loader__=_Loader("__main__", entry))
        code = compile(text, entry, "exec", dont_inherit=True)
        exec(code, space)  # nosec B102

    run.__code__ = run.__code__.replace(**_MAIN_FRAME)
    _OURS.append(run.__code__)
    runpy._run_module_as_main = run
    return run


def _print_exception(kind, error, trace):
    """What the interpreter would print, with the lines that ran: before 3.13 it reads them from the disk."""
    ours = trace is not None and trace.tb_frame.f_code in _OURS
    if sys.stderr is not None:
        import traceback

        traceback.print_exception(kind, error, trace.tb_next if ours else trace)


_Loader = type(__spec__.loader)
_TEXTS = _texts(environ["HOTLOOP_PATCH"])
_NAMES = {basename(path) for path in _TEXTS}
_TOLD = set()
_OURS = []  # code of our own frame under the main script

_code_of, _opened = _Loader.get_code, io.open_code
_Loader.get_code, io.open_code = _get_code, _open_code  # not get_data: py_compile would write what it gives
if sys.argv[0] not in ("", "-c", "-m") and realpath(sys.argv[0]) in _TEXTS:
    sys.path_hooks.insert(0, _hook)
