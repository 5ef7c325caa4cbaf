"""What a dataset and its pipeline are, as 32 bytes: classes, their code, their parameters and data.

Two processes that get the same bytes may share samples, so whatever could make samples differ goes in, and
what cannot be looked into is refused. Files that a dataset names are known by size and time of change.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

from hotloop.feed.identity.ingredients import Ingredients
from hotloop.feed.identity.sourcecode import bytecode_digest
from hotloop.feed.identity.sources import is_general, source_files


class Unknowable(Exception):  # noqa: N818 - an answer, not a fault
    """Something cannot be told from another of its kind; the message says where and what."""


def fingerprint(*parts: Any, seeds: bool = True) -> bytes:
    """32 bytes that are equal in another process exactly if these objects are; see Ingredients for ``seeds``.

    Raises:
        Unknowable: an object holds state that cannot be read (an open file of another library, say).
    """
    found = Ingredients(bytecode_digest, seeds=seeds)
    try:
        for position, part in enumerate(parts):
            found.visit(f"dataset({position})" if position else "dataset", part)
    except RecursionError:
        raise Unknowable("it is nested too deeply") from None
    for why in found.unreadable:
        raise Unknowable(why)
    files = source_files((path for path in found.paths if not is_general(path)), None)
    told = [found.code, found.parameters, sorted(found.paths), files, found.versions()]
    return hashlib.blake2b(json.dumps(told, sort_keys=True).encode(), digest_size=32).digest()
