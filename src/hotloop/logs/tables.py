"""Tables that system tools print again and again: ``iostat -x`` and ``nvidia-smi dmon``."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import numpy as np

from hotloop.logs.reading import chunks
from hotloop.logs.streams import Stream
from hotloop.logs.text import Read

_IOSTAT: Final = {"%util": ("disk_util", 0.01), "await": ("await", 0.001), "r_await": ("read_await", 0.001),
    "w_await": ("write_await", 0.001)}  # fmt: skip
_DMON: Final = {"sm": ("gpu_util", 0.01), "pwr": ("power", 1.0), "gtemp": ("temperature", 1.0),
    "fb": ("device_bytes", 2.0**20)}  # fmt: skip
#: The head of each kind of table, what the file is called, its columns, and the name of a row.
_HEADS: Final = (
    (re.compile(rb"(?m)^Device:? .*%util\s*$"), "iostat -x", _IOSTAT, "{}"),
    (re.compile(rb"(?m)^# *gpu .*\bsm\b"), "nvidia-smi dmon", _DMON, "GPU {}"),
)


def kind_of(text: bytes) -> str | None:
    """Which tool's table a text begins with."""
    return next((name for head, name, _, _ in _HEADS if head.search(text)), None)


def read_table(path: Path, read: Read) -> Read:
    """One stream per device; the first report of ``iostat`` is over the time since the boot, no sample."""
    streams: dict[str, Stream] = {}
    names: list[bytes] = []
    form, reports = _HEADS[0], 0
    for chunk in chunks(path, read.damage):
        for number, line in enumerate(chunk.body[1:].split(b"\n"), chunk.first_line):
            heads = [one for one in _HEADS if one[0].match(line)]
            cells = line.lstrip(b"# ").split()
            if heads:
                form, names, reports = heads[0], cells, reports + 1
            elif names and len(cells) == len(names) and not line.startswith(b"#") and len(streams) < 256:
                if form[1] == "iostat -x" and reports == 1:
                    continue
                name = form[3].format(cells[0].decode("utf-8", "replace")[:40])
                known = [(form[2][key.decode()], cell) for key, cell in zip(names, cells, strict=True)
                         if key.decode("ascii", "replace") in form[2]]  # fmt: skip
                row = {role: np.array([_number(cell) * factor]) for (role, factor), cell in known}
                streams.setdefault(name, Stream(name=name)).add({**row, "line": np.array([float(number)])})
    read.streams = list(streams.values())
    return read


def _number(cell: bytes) -> float:
    """NaN for a dash, and for what is no number; a decimal comma is one."""
    try:
        return float(cell.replace(b",", b"."))
    except ValueError:
        return float("nan")
