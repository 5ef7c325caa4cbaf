"""PLY files of points: floats of 32 bits are written, any numbers are read, little-endian both."""

import os
from pathlib import Path

import numpy as np

TYPES = {
    "char": "i1", "uchar": "u1", "short": "i2", "ushort": "u2", "int": "i4", "uint": "u4", "float": "f4",
    "double": "f8", "int8": "i1", "uint8": "u1", "int16": "i2", "uint16": "u2", "int32": "i4", "uint32": "u4",
    "float32": "f4", "float64": "f8",
}  # fmt: skip


def write_vertices(path, names, values):
    """Write ``path``, whole or not at all: values (N, len(names)), as floats of 32 bits."""
    head = ["ply", "format binary_little_endian 1.0", f"element vertex {len(values)}"]
    head += [*(f"property float {name}" for name in names), "end_header", ""]
    path = Path(path)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        partial.write_bytes("\n".join(head).encode() + np.ascontiguousarray(values, "<f4").tobytes())
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def read_vertices(path):
    """Property name -> array (N,) of a file's vertices; ValueError with its name for what is no such file."""
    path = Path(path)
    data = path.read_bytes()
    if not data.startswith((b"ply\n", b"ply\r\n")):
        raise ValueError(f"{path} is no PLY file: it begins with {data[:8]!r}")
    head, found, body = data.partition(b"end_header")
    if not found:
        raise ValueError(f"{path}: the PLY header has no end_header")
    body = body[body.find(b"\n") + 1 :]
    count, fields, element = 0, {}, None
    for line in head.decode("ascii", "replace").splitlines()[1:]:
        words = line.split()
        if words[:1] == ["format"] and words[1:2] != ["binary_little_endian"]:
            raise ValueError(f"{path}: {line!r}: only binary_little_endian is read")
        if words[:1] == ["element"]:
            if element is None and words[1:2] != ["vertex"]:
                raise ValueError(f"{path}: {line!r}: the first element is not vertex")
            element = words[1]
            if element == "vertex":
                if len(words) != 3 or not words[2].isdigit():
                    raise ValueError(f"{path}: {line!r} does not say how many vertices there are")
                count = int(words[2])
        if words[:1] == ["property"] and element == "vertex":
            if len(words) != 3 or words[1] not in TYPES:
                raise ValueError(f"{path}: {line!r}: vertices have single numbers only")
            if words[2] in fields:
                raise ValueError(f"{path}: {line!r} is there twice")
            fields[words[2]] = "<" + TYPES[words[1]]
    layout = np.dtype(list(fields.items()))
    if len(body) < count * layout.itemsize:
        raise ValueError(
            f"{path} is cut off: {count:,} vertices of {layout.itemsize} bytes, {len(body):,} bytes are there"
        )
    vertices = np.frombuffer(body, layout, count)
    return {name: vertices[name] for name in fields}
