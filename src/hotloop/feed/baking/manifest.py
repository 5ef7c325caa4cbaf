"""What a bake says about itself: ``manifest.json``, with a checksum of its own, and where its bytes lie.

::

    OUT/manifest.json       this
    OUT/columns/000-x.bin   one dense leaf: all samples in a row, no header
    OUT/ends.bin            where each sample's record ends in its part's file (int64), if there are records
    OUT/records/00007.bin   what is not dense, of the samples of part 7, if there is any
    OUT/checksums.bin       crc32 of every sample (uint32): of its columns in their order, then of its record
"""

from __future__ import annotations

import base64
import dataclasses
import json
import pickle
import re
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from hotloop.feed.baking import plain
from hotloop.feed.baking.schema import Column, Schema
from hotloop.feed.errors import BakeError, DamagedBakeError, NotPlainError, StaleBakeError
from hotloop.feed.identity.fingerprint import Fingerprint
from hotloop.feed.layout import Field

VERSION = 3
FILE = "manifest.json"
CHECKSUMS = "checksums.bin"
ENDS = "ends.bin"


class Table(NamedTuple):
    """One dense file: ``row_bytes`` a sample."""

    file: str
    row_bytes: int


@dataclasses.dataclass(frozen=True, kw_only=True)
class Manifest:
    """All that is needed to write a bake's parts and to read them.

    ``part_samples`` samples make a part. ``record_bytes`` (bytes of each part's record file) and
    ``checksums_crc`` are known once all parts are there. ``versions`` is what ran.
    """

    num_samples: int
    part_samples: int
    schema: Schema
    fingerprint: Fingerprint
    versions: dict[str, str]
    record_bytes: tuple[int, ...] = ()
    checksums_crc: int = 0

    @property
    def num_parts(self) -> int:
        """Parts, the last of which may be short."""
        return -(-self.num_samples // self.part_samples)

    def samples(self, part: int) -> range:
        """The indices that make up a part."""
        first = part * self.part_samples
        return range(first, min(first + self.part_samples, self.num_samples))

    def tables(self) -> list[Table]:
        """The dense files: every column's, then the ends of the records."""
        columns = [Table(column_file(k, c), c.field.num_bytes) for k, c in enumerate(self.schema.columns)]
        return [*columns, Table(ENDS, 8)]

    def part_files(self) -> Iterator[tuple[int, str, int]]:
        """Part, file and bytes of every file of records there is."""
        for part, num_bytes in enumerate(self.record_bytes):
            if num_bytes:
                yield part, record_file(part), num_bytes

    @property
    def has_records(self) -> bool:
        """Whether anything lies outside the columns."""
        return any(self.record_bytes)

    @property
    def num_bytes(self) -> int:
        """Bytes of samples, dense and records."""
        return self.num_samples * self.schema.row_bytes + sum(self.record_bytes)


def column_file(number: int, column: Column) -> str:
    """The path of a column inside the bake's folder."""
    name = re.sub(r"[^A-Za-z0-9_.-]+", "-", column.name).strip("-.")[:40]
    return f"columns/{number:03}-{name}.bin" if name else f"columns/{number:03}.bin"


def record_file(part: int) -> str:
    """The path of a part's records inside the bake's folder."""
    return f"records/{part:05}.bin"


def dumps(manifest: Manifest) -> str:
    """The manifest as JSON: what a person wants to know first, and the checksum of it all."""
    content = {
        "hotloop_bake": VERSION,
        "num_samples": manifest.num_samples,
        "part_samples": manifest.part_samples,
        "columns": [
            {"position": c.position, "name": c.name, **c.field._asdict(), "file": t.file}
            for c, t in zip(manifest.schema.columns, manifest.tables(), strict=False)
        ],
        "leaves": list(manifest.schema.leaves),
        "structure": base64.b64encode(pickle.dumps(manifest.schema.structure, protocol=4)).decode(),
        "fingerprint": dataclasses.asdict(manifest.fingerprint),
        "versions": manifest.versions,
        "record_bytes": list(manifest.record_bytes),
        "checksums_crc": manifest.checksums_crc,
    }
    lines = [f" {json.dumps(key)}: {json.dumps(value)}" for key, value in content.items()]
    lines.append(f' "crc": {_crc(content)}')
    return "{\n" + ",\n".join(lines) + "\n}\n"


def read(folder: Path, name: str = FILE, *, trust: bool = False) -> Manifest:
    """The manifest of the bake in ``folder``.

    Raises:
        BakeError: there is none; a StaleBakeError where it is of another version.
        NotPlainError: the samples' class is not imported, and ``trust`` is not said.
        DamagedBakeError: it is not what was written.
    """
    path = folder / name
    try:
        text = path.read_text(encoding="utf-8")
    except (FileNotFoundError, NotADirectoryError):
        hint = "make it with hotloop bake MODULE:DATASET OUT, or hotloop.feed.bake(dataset, out)"
        raise BakeError(f"{folder} is not a bake: it has no {name}", hint=hint) from None
    except (OSError, UnicodeDecodeError) as error:
        raise damaged(path, str(error)) from error
    try:
        content = json.loads(text)
        crc = content.pop("crc")
        version = content["hotloop_bake"]
    except (ValueError, KeyError, AttributeError, TypeError) as error:
        raise damaged(path, f"not readable ({error})") from error
    if _crc(content) != crc or not text.endswith("}\n"):
        raise damaged(path, "its checksum does not match")
    if version != VERSION:
        raise StaleBakeError(
            f"{path} has format {version}; this hotloop reads format {VERSION}",
            hint="bake again with overwrite=True, or use the hotloop that wrote it",
        )
    return _parsed(content, path, trust)


def _parsed(content: dict[str, Any], path: Path, trust: bool) -> Manifest:
    columns = tuple(
        Column(c["position"], c["name"], Field(c["kind"], c["dtype"], tuple(c["shape"]), 0, c["num_bytes"]))
        for c in content["columns"]
    )
    try:
        structure = plain.loads(base64.b64decode(content["structure"]), trust)
    except NotPlainError as error:
        raise NotPlainError(f"{path}: {error.message}", hint=error.hint) from None
    except Exception as error:  # whatever importing the module of a sample's class raises
        raise BakeError(
            f"{path}: the samples' own classes cannot be imported: {type(error).__name__}: {error}",
            hint="make the module that defines the dataset's sample classes importable (PYTHONPATH)",
        ) from error
    return Manifest(
        num_samples=content["num_samples"],
        part_samples=content["part_samples"],
        schema=Schema(structure, tuple(content["leaves"]), columns),
        fingerprint=Fingerprint.from_json(content["fingerprint"]),
        versions=content["versions"],
        record_bytes=tuple(content["record_bytes"]),
        checksums_crc=content["checksums_crc"],
    )


def damaged(path: Path, words: str) -> DamagedBakeError:
    """The error for a file that is not as it was written."""
    hint = "bake again with overwrite=True (hotloop bake --overwrite)"
    return DamagedBakeError(f"{path} is damaged: {words}", hint=hint)


def _crc(content: dict[str, Any]) -> int:
    return zlib.crc32(json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
