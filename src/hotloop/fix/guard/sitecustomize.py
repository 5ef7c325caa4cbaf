"""Runs in every Python process of a trial: what would write outside the trial's folders is refused.

A patched copy is run only to see that it gets to the changed call; it must not touch the user's outputs.
The user's own sitecustomize runs as it would without us. Standard library only.
"""

from __future__ import annotations

import os
import sys

_ALLOWED = tuple(os.environ.get("HOTLOOP_MAY_WRITE", "").split(os.pathsep))
_REPORT = os.environ.get("HOTLOOP_REFUSED", "")
_WRITES = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
#: Events whose first arguments, so many, are paths that change.
_CHANGES = {
    "os.remove": 1,
    "os.rmdir": 1,
    "os.mkdir": 1,
    "os.truncate": 1,
    "os.rename": 2,
    "os.chmod": 1,
    "shutil.rmtree": 1,
    "shutil.move": 2,
}


def _look(event: str, args: tuple[object, ...]) -> None:
    if event == "open":
        if isinstance(args[2], int) and args[2] & _WRITES:
            _allow(args[0])
    elif event in _CHANGES:
        for path in args[: _CHANGES[event]]:
            _allow(path)


def _allow(path: object) -> None:
    if not isinstance(path, str | bytes | os.PathLike):
        return
    full = os.path.realpath(os.fsdecode(path))
    if any(full == folder or full.startswith(folder + os.sep) for folder in _ALLOWED):
        return
    if full.startswith("/memfd:"):  # memory without a name, reached through /proc: a cache of hotloop.feed
        return
    if _REPORT:
        handle = os.open(_REPORT, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(handle, os.fsencode(full) + b"\n")
        os.close(handle)
    raise PermissionError(13, "a trial of hotloop does not write here", full)


def _run_users_own() -> None:
    from importlib.machinery import PathFinder
    from importlib.util import module_from_spec

    own = os.path.dirname(os.path.abspath(__file__))  # noqa: PTH100, PTH120
    sys.path[:] = [path for path in sys.path if path != own]
    spec = PathFinder.find_spec("sitecustomize", sys.path)
    if spec is not None and spec.loader is not None:
        module = module_from_spec(spec)
        sys.modules["sitecustomize"] = module
        spec.loader.exec_module(module)


if _ALLOWED != ("",):
    sys.addaudithook(_look)
_run_users_own()
