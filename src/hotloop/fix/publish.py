"""Writing a patch into the user's files: all of it or none of it, and never over what changed meanwhile."""

from __future__ import annotations

import os
from pathlib import Path

from hotloop.errors import UsageError
from hotloop.fix.config_files import scripts
from hotloop.fix.patch import Patch
from hotloop.fix.scene import Scene
from hotloop.record.publish import write_bytes_atomic


def write(patch: Patch) -> None:
    """Apply the patch. Raises UsageError, with every file as it was."""
    for path, (text, _) in patch.files.items():
        _check(path, text.encoded(text.text))
    try:
        for path, (_, new) in sorted(patch.files.items()):
            _replace(path, new)
    except BaseException as error:  # an interrupt too
        for done, (text, new) in patch.files.items():
            if done.read_bytes() == new:
                _replace(done, text.encoded(text.text))
        if not isinstance(error, OSError):
            raise
        raise UsageError(f"{path} cannot be written: {error.strerror}; nothing is changed") from error


def _replace(path: Path, data: bytes) -> None:
    real = path.resolve()  # a link stays a link
    mode = real.stat().st_mode
    write_bytes_atomic(real, data)
    real.chmod(mode & 0o7777)


def _check(path: Path, before: bytes) -> None:
    try:
        now = path.read_bytes()
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}; nothing is changed") from error
    if now != before:
        raise UsageError(f"{path} changed meanwhile; nothing is changed", hint="run hotloop fix again")
    if not os.access(path, os.W_OK) or not os.access(path.resolve().parent, os.W_OK):
        raise UsageError(
            f"{path} cannot be written; nothing is changed",
            hint="make it writable, or take the diff: hotloop fix RUN > fix.patch",
        )


def root_of(patch: Patch) -> Path:
    """The folder a patch is applied in: its tree where that holds all files, else what all of them lie in.

    Within a work tree that is its top: git takes the paths of a patch from there, and skips the others.
    """
    tree = tree_of(patch)
    if all(tree in path.parents for path in patch.files):
        return tree
    return _top(Path(os.path.commonpath([path.parent for path in patch.files])))


def tree_of(patch: Patch) -> Path:
    """The folder a patch belongs to: the git work tree of the run's folder or of the files, else these."""
    candidates = [_folder(patch.scene), *(path.parent for path in sorted(patch.files))]
    roots = [_top(folder) for folder in candidates]
    return next((r for r in roots if all(r in path.parents for path in patch.files)), roots[0])


def _folder(scene: Scene) -> Path:
    """Where the process ran; with the shell script that went there, where both lie in the run's folder."""
    found = [script.parent for script in scripts(scene.command, scene.started)]
    if not found:
        return scene.cwd
    both = Path(os.path.commonpath([scene.cwd, *found]))
    return both if scene.started in (both, *both.parents) else scene.cwd


def _top(cwd: Path) -> Path:
    for folder in (cwd, *cwd.parents):
        if (folder / ".git").exists():
            return folder
    return cwd
