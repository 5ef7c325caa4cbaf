"""Files and texts from elsewhere, which may be anything: read within limits, shown as text, never run."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, Final

#: Of a file that is read whole.
MOST_BYTES: Final = 64 << 20
#: How deep folders and YAML go, and how many values YAML holds where each alias counts as what it stands for.
_DEEPEST, _MOST_VALUES = 100, 200_000


def opened(path: Path) -> BinaryIO:
    """A regular file, to read. Raises OSError, of a pipe or a device at once."""
    handle = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY)
    if stat.S_ISREG(os.fstat(handle).st_mode):
        return os.fdopen(handle, "rb")
    os.close(handle)
    raise OSError(errno.EINVAL, "not a regular file", str(path))


def read(path: Path, most: int = MOST_BYTES) -> bytes:
    """All of a regular file. Raises OSError, of a larger one as well."""
    with opened(path) as file:
        data = file.read(most + 1)
    if len(data) > most:
        raise OSError(errno.EFBIG, f"larger than {most >> 20} MiB", str(path))
    return data


def clean(text: object) -> str:
    """Text without control characters: a file name must not move the cursor or hide what follows."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in str(text))


def walk(root: Path) -> Iterator[tuple[str, list[str], list[str]]]:
    """``os.walk``, so deep and no deeper: a folder may hold folders without end."""
    for folder, names, files in os.walk(root):
        if folder.count(os.sep) - str(root).count(os.sep) >= _DEEPEST:
            names.clear()
        yield folder, names, files


def yaml_value(text: str, loader: Any) -> Any:
    """The value of a YAML text. Raises ValueError where it is none, too deep, or too large."""
    import yaml

    around: list[tuple[str | None, int]] = []
    sizes: dict[str, int] = {}
    total = 0
    try:
        for event in yaml.parse(text, Loader=loader):
            if isinstance(event, yaml.CollectionEndEvent):
                anchor, before = around.pop()
            elif isinstance(event, yaml.AliasEvent):  # of itself: larger than anything
                total += sizes.get(event.anchor or "", _MOST_VALUES)
                continue
            elif isinstance(event, yaml.NodeEvent):
                anchor, before = event.anchor, total
                total += 1
            else:
                continue
            if isinstance(event, yaml.CollectionStartEvent):
                around.append((anchor, before))
            elif anchor:
                sizes[anchor] = total - before
            if len(around) > _DEEPEST or total > _MOST_VALUES:
                raise ValueError("it is too deep, or too large")
        return yaml.load(text, loader)  # nosec B506
    except yaml.YAMLError as error:
        raise ValueError(str(error)) from error
