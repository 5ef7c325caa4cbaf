"""Runs a command where its writes land in a folder that is thrown away. Started as a script; Linux.

``python -ISB within.py PLAN.json COMMAND...`` enters a mount namespace of its own, lays the plan's overlays
over the folders that can be written, binds what is to be kept through them, and becomes the command: same
pid, same user, same signals. It dies with hotloop.
Exit code 125 and one line on standard error say that the machine does not allow it;
then the command has not started.

The plan (JSON): ``layers`` [[folder, upper, work, flags, needed]], outer ones first; where an overlay is not
possible and not needed the folder becomes read-only; one that is gone by now is left out. ``kept`` [path]
stay what they are. ``frozen`` [[mount point, flags]] become read-only as far as nothing covers them.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NoReturn

REFUSED = 125

_NEWNS, _NEWUSER = 0x00020000, 0x10000000
_PR_SET_PDEATHSIG = 1
_RDONLY, _REMOUNT, _BIND, _REC, _PRIVATE = 1, 32, 4096, 16384, 1 << 18


def main() -> NoReturn:
    """Set up, then become the command."""
    command = sys.argv[2:]
    try:
        _enter(json.loads(Path(sys.argv[1]).read_text()))
    except OSError as error:
        sys.stderr.write(f"{error.filename}: {error.strerror}\n")
        raise SystemExit(REFUSED) from None
    for number in (signal.SIGPIPE, signal.SIGXFSZ):  # Python ignores these two; what it becomes should not
        signal.signal(number, signal.SIG_DFL)
    _become(command)


def _enter(plan: dict[str, Any]) -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def call(what: str, result: int) -> None:
        if result:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), what)

    def mount(source: str | None, target: str, kind: str | None, flags: int, data: str | None = None) -> None:
        words = [None if word is None else os.fsencode(word) for word in (source, target, kind, data)]
        what = f"{kind or 'mount'} on {target}"
        call(what, libc.mount(*words[:3], ctypes.c_ulong(flags), words[3]))

    alone = bool(libc.unshare(_NEWNS))
    if alone:  # only root may: as the owner of a user namespace everybody may, where the system allows those
        user, group = os.getuid(), os.getgid()
        call("unshare", libc.unshare(_NEWUSER | _NEWNS))
        maps = {"setgroups": "deny", "uid_map": f"{user} {user} 1", "gid_map": f"{group} {group} 1"}
        for name, text in maps.items():
            Path(f"/proc/self/{name}").write_text(text)
    libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # whoever threw it away is gone: so is this
    mount(None, "/", None, _REC | _PRIVATE)
    here = Path.cwd()
    # Once covered, a folder can only be reached through what was opened before.
    kept = [(path, handle) for path in plan["kept"] if (handle := _open(path)) is not None]
    layers = [(layer, handle) for layer in plan["layers"] if (handle := _open(layer[0])) is not None]
    for (path, upper, work, flags, needed), handle in layers:
        below = f"/proc/self/fd/{handle}"
        data = f"lowerdir={below},upperdir={_escaped(upper)},workdir={_escaped(work)}"
        try:
            mount("overlay", path, "overlay", 0, f"{data},{'userxattr' if alone else 'redirect_dir=on'}")
        except OSError:
            if not os.path.lexists(path):
                continue
            if needed:
                raise
            mount(below, path, None, _BIND | _REC)
            mount(None, path, None, _REMOUNT | _BIND | _RDONLY | flags)
    for path, handle in kept:
        mount(f"/proc/self/fd/{handle}", path, None, _BIND | _REC)
    for path, flags in plan["frozen"]:
        mount(None, path, None, _REMOUNT | _BIND | _RDONLY | flags)
    for _, handle in (*kept, *layers):
        os.close(handle)
    os.chdir(here)  # the same folder, now through what covers it


def _open(path: str) -> int | None:
    """A handle on a folder; None where it went since the plan was made."""
    try:
        return os.open(path, os.O_PATH)
    except FileNotFoundError:
        return None


def _escaped(path: str) -> str:
    return path.replace("\\", "\\\\").replace(",", "\\,").replace(":", "\\:")


def _become(command: Sequence[str]) -> NoReturn:
    try:
        os.execvp(command[0], list(command))
    except OSError as error:
        sys.stderr.write(f"hotloop: cannot run {command[0]}: {error.strerror}\n")
        raise SystemExit(127) from None


if __name__ == "__main__":
    main()
