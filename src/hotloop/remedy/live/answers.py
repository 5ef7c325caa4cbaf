"""Whether a call's answer is read: what nobody reads can be left out."""

from __future__ import annotations

from functools import lru_cache
from opcode import opmap
from types import CodeType
from typing import Final

_CACHE, _POP_TOP = opmap.get("CACHE", 0), opmap["POP_TOP"]
_KNOWN: Final = 1_000


@lru_cache(maxsize=_KNOWN)
def dropped(code: CodeType, at: int) -> bool:
    """Whether the call at an instruction (``f_lasti``) is a statement of its own."""
    behind, at = code.co_code, at + 2
    while at < len(behind) and behind[at] == _CACHE:
        at += 2
    return at < len(behind) and behind[at] == _POP_TOP
