"""A run that cannot touch the user's files: it reads them as they are, and what it writes is thrown away.

On Linux the command gets a mount namespace of its own (``launch.within``) in which every folder that can be
written is covered by an overlay: the real folder below, an empty one above it that takes what is written,
changed, deleted. The run folder and the caches of libraries are bound through and stay what they are, as do
/dev, /dev/shm and /run; what is mounted below those is covered, and a command whose files lie in one of them
is refused. Network, other machines and processes that were there before are not covered.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import getpass
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hotloop.errors import HotloopError
from hotloop.launch.guard import LEAST_DISK_BYTES
from hotloop.launch.mounts import Mount, mount_of, mounts
from hotloop.launch.within import REFUSED
from hotloop.units import size

_NAME: Final = "hotloop-throwaway-"


def places() -> dict[Path, int]:
    """Where one can be made, with the bytes that are free there: the most first, memory last."""
    shared = Path("/dev/shm")
    found = {}
    for path in dict.fromkeys(Path(name).resolve() for name in ("/var/tmp", tempfile.gettempdir(), shared)):
        with contextlib.suppress(OSError):
            if os.access(path, os.W_OK):
                found[path] = shutil.disk_usage(path).free
    return dict(sorted(found.items(), key=lambda item: (item[0] == shared, -item[1])))


def is_ours(name: str) -> bool:
    """Whether a folder of this name is a scratch folder: it may be gone at any time."""
    return name.startswith(_NAME)


def make_scratch(folder: Path) -> tuple[Path, int]:
    """A new folder and the handle that locks it. Raises OSError, also where a sweep came between the two."""
    new = tempfile.mkdtemp(prefix=_NAME, dir=folder)
    lock = os.open(new, os.O_RDONLY | os.O_DIRECTORY)
    fcntl.flock(lock, fcntl.LOCK_EX)
    return Path(new).resolve(strict=True), lock


def sweep(folder: Path) -> None:
    """Remove what a killed hotloop left: nobody holds its lock. Pids tell nothing across containers.

    Anybody may put anything in a shared folder: only real folders of this user count.
    """
    for path in folder.glob(f"{_NAME}*"):
        with contextlib.suppress(OSError):
            handle = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
            try:
                if os.fstat(handle).st_uid == os.getuid():
                    fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    remove_scratch(path)
            finally:
                os.close(handle)


def remove_scratch(scratch: Path) -> None:
    """All of it, folders without permission too: the kernel leaves some, and so may a script."""
    for words in (("rm", "-rf"), ("chmod", "-R", "u+rwx"), ("rm", "-rf")):  # however deep the folders are
        if scratch.exists():
            subprocess.run([*words, "--", str(scratch)], stderr=subprocess.DEVNULL, check=False)


_CHILD: Final = Path(__file__).with_name("within.py")
#: Libraries' caches, written in every run, and expensive to fill again.
_CACHES: Final = ("XDG_CACHE_HOME", "TORCH_HOME", "HF_HOME", "TRITON_CACHE_DIR", "TORCHINDUCTOR_CACHE_DIR")


class Refused(HotloopError):  # noqa: N818 - an answer of the machine
    """Writes cannot be kept apart here; the message says why."""


@dataclass(frozen=True, kw_only=True)
class Throwaway:
    """One run's folder of writes. ``prefix`` goes before the command."""

    scratch: Path
    plan: dict[str, Any]
    lock: int  # a handle, held as long as the folder is in use
    name: str = "run"

    def __post_init__(self) -> None:
        # By a file: as a word of a command it may be too long.
        (self.scratch / f"{self.name}.json").write_text(json.dumps(self.plan))

    @property
    def prefix(self) -> tuple[str, ...]:
        """What to put before a command so that its writes go to ``scratch``."""
        return (sys.executable, "-ISB", str(_CHILD), str(self.scratch / f"{self.name}.json"))

    def put(self, path: Path, data: bytes) -> None:
        """Show the command a file, by its real path, with other bytes. Raises Refused."""
        around = [one for one in self.plan["layers"] if path.is_relative_to(one[0])]
        if not around:
            raise Refused(f"{path} cannot be covered")
        folder, upper = map(Path, max(around, key=lambda one: len(one[0]))[:2])
        target = upper / path.relative_to(folder)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
        for one in (path, *path.parents):
            if one == folder:
                break
            shutil.copymode(one, upper / one.relative_to(folder))

    def close(self) -> None:
        """Drop all of it."""
        remove_scratch(self.scratch)
        os.close(self.lock)


def prepare(
    command: Sequence[str] = (), *, keep: Iterable[Path] = (), instead: Mapping[Path, bytes] | None = None
) -> Throwaway:
    """A folder of writes for one run, to be closed; ``keep`` are folders that stay really written.

    ``instead``: files that the command sees with other bytes.

    Raises Refused where the machine does not allow it.
    """
    new = {path.resolve(): data for path, data in (instead or {}).items()}
    needed = [*_needed(command), *(path.parent for path in new)]
    kept = _kept(keep, needed)
    room = places()
    roomy = [folder for folder, free in room.items() if free >= LEAST_DISK_BYTES]
    if not roomy:
        known = ", ".join(f"{folder} has {size(free)}" for folder, free in room.items()) or "none was found"
        raise Refused(
            f"no temporary folder with {size(LEAST_DISK_BYTES)} free: {known}; TMPDIR can name another"
        )
    why = ""
    for folder in roomy:
        sweep(folder)
        try:
            return _room(folder, kept, needed, new)
        except Refused as refused:
            why = refused.message
        except OSError as error:
            why = f"{error.filename or folder}: {error.strerror}"
    raise Refused(why)


def _room(folder: Path, kept: Sequence[Path], needed: Sequence[Path], new: Mapping[Path, bytes]) -> Throwaway:
    """One in a temporary folder; raises Refused, OSError."""
    scratch, lock = make_scratch(folder)
    try:
        # Layers of their own: those of the attempt may be in use a moment longer than it.
        plan = _plan(scratch, "try", kept, needed)
        _try(Throwaway(scratch=scratch, plan=plan, lock=lock, name="try"), needed[0])
        room = Throwaway(scratch=scratch, plan=_plan(scratch, "run", kept, needed), lock=lock)
        for path, data in new.items():
            room.put(path, data)
        return room
    except BaseException:
        remove_scratch(scratch)
        os.close(lock)
        raise


def _try(found: Throwaway, here: Path) -> None:
    """Raises Refused where a file of the working folder could not be written under the cover."""
    words = ["sh", "-c", ': > "$0"', str(here / f".{found.scratch.name}")]
    done = subprocess.run(
        [*found.prefix, *(words if os.access(here, os.W_OK) else ["true"])],
        capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"},
    )  # fmt: skip
    if not done.returncode:
        return
    why = (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
    if os.strerror(errno.EOVERFLOW) in why:  # how the kernel says it in a user namespace
        owner = here.stat().st_uid
        raise Refused(f"{here} belongs to user {owner}: only that user and root can run there like this")
    raise Refused(why if done.returncode == REFUSED else f"{here} cannot be written like this: {why}")


def _needed(command: Sequence[str]) -> list[Path]:
    """The folders whose files must be safe: the working folder, home, those that the command names."""
    here, home = Path.cwd(), Path.home().resolve()
    if here == Path("/"):
        raise Refused("the working folder is /, which holds everything: start the command in one of its own")
    return [here, *([home] if home != Path("/") and _is_folder(home) else []), *_named(command)]


def caches_of_libraries() -> list[Path]:
    """Where libraries keep what is written in every run, as the environment says it or by default."""
    named = [Path(value).expanduser() for name in _CACHES if (value := os.environ.get(name))]
    usual = [Path("~/.cache").expanduser(), Path("~/.triton").expanduser()]
    with contextlib.suppress(OSError, KeyError):  # nobody that the system knows
        user = re.sub(r'[\\/:*?"<>|]', "_", getpass.getuser())
        usual.append(Path(tempfile.gettempdir()) / f"torchinductor_{user}")  # torch._inductor's default
    return [*usual, *named]


def _kept(keep: Iterable[Path], needed: Sequence[Path]) -> list[Path]:
    """The folders that stay really written: ``keep``, and libraries' caches that hold nothing else."""
    kept = [path.resolve() for path in keep if _is_folder(path)]
    for one, path in ((one, path) for path in kept for one in needed if one.is_relative_to(path)):
        raise Refused(f"{path} is really written, and {one} lies in it")
    caches = [path.resolve() for path in caches_of_libraries() if _is_folder(path)]
    return [*kept, *(cache for cache in caches if not any(one.is_relative_to(cache) for one in needed))]


# -- which folders -------------------------------------------------------------------------------------------


def _plan(scratch: Path, name: str, keep: Sequence[Path], needed: Sequence[Path]) -> dict[str, Any]:
    """Every folder that can be written gets a layer, except those on the way to ``scratch``: read-only.

    Raises Refused where a folder that is needed lies on that way.
    """
    known = mounts()
    layers: list[Path] = []
    split: list[Mount] = []
    for mount in known:
        if not mount.holds_files:
            continue
        if mount.path == Path("/") or scratch.is_relative_to(mount.path):
            split.append(mount)
            layers += _around(mount.path, scratch, {other.path for other in known}, needed)
        else:
            layers.append(mount.path)
    for path in needed:
        _check(path, mount_of(path, known), layers)
    layers = sorted({*layers, *(_owned(path, layers) for path in needed if _below(path, layers))})
    flags = {mount.path: mount.flags for mount in known}
    kept = [path for path in (*(m.path for m in known if not m.holds_files), *keep) if _below(path, layers)]
    return {
        "layers": [
            [
                str(path),
                *_pair(scratch / name, number),
                flags.get(path, 0),
                any(_below(one, [path]) for one in needed),
            ]
            for number, path in enumerate(layers)
        ],
        "kept": [str(path) for path in sorted(set(kept)) if path.exists()],
        "frozen": [[str(mount.path), mount.flags] for mount in split],
    }


def _check(path: Path, mount: Mount | None, layers: Sequence[Path]) -> None:
    """Raises Refused where a folder that is needed would be written for real, or could not be written."""
    if mount is None or not mount.writable:
        return
    if not mount.holds_files:
        raise Refused(f"{path} lies in {mount.path}, which is really written")
    if not _below(path, layers):
        raise Refused(f"{path} cannot be covered")


def _around(folder: Path, scratch: Path, mounted: set[Path], needed: Sequence[Path]) -> list[Path]:
    """The folders in ``folder`` that together hold all but the way to ``scratch``."""
    if folder in needed:
        raise Refused(f"{scratch.parent} and {folder} cannot be told apart")
    found: list[Path] = []
    children: list[Path] = []
    with contextlib.suppress(PermissionError):  # what cannot be listed stays read-only
        children = sorted(folder.iterdir())
    for child in children:
        if child.is_symlink() or not _is_folder(child) or child in mounted or is_ours(child.name):
            continue
        found += _around(child, scratch, mounted, needed) if scratch.is_relative_to(child) else [child]
    return found


def _pair(scratch: Path, number: int) -> tuple[str, str]:
    upper, work = scratch / str(number) / "upper", scratch / str(number) / "work"
    upper.mkdir(parents=True)
    work.mkdir()
    return str(upper), str(work)


def _named(command: Sequence[str]) -> list[Path]:
    """The folders that a command's words name; devices and what is in /proc are none."""
    found = []
    for word in command:
        named = Path(word.partition("=")[2] or word)
        with contextlib.suppress(OSError, ValueError, RuntimeError):  # too long, not to be read: no folder
            real = named.resolve()
            if real.is_dir() or real.is_file() or (named.is_absolute() and not real.exists()):
                found.append(next(one for one in (real, *real.parents) if _is_folder(one)))
    return [one for one in dict.fromkeys(found) if not one.is_relative_to("/proc") and one != Path("/")]


def _is_folder(path: Path) -> bool:
    try:
        return path.is_dir()
    except (OSError, ValueError):  # a word that is too long, a folder that may not be looked at
        return False


def _owned(path: Path, layers: Sequence[Path]) -> Path:
    """The outermost folder around a path that is this user's: in a user namespace no other can be copied."""
    around = [one for one in (path, *path.parents) if _below(one, layers)]
    return next((one for one in reversed(around) if one.stat().st_uid == os.getuid()), around[-1])


def _below(path: Path, layers: Iterable[Path]) -> bool:
    return any(path.is_relative_to(layer) for layer in layers)
