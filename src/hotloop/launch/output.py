"""What a command said in the end."""

from __future__ import annotations

import re
from typing import Final

#: torchrun ends with an error of its own and a table, whatever a rank raised before.
_OF_TORCHRUN: Final = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
_RAISED: Final = re.compile(r"(?:^|[\s.])\w*(?:Error|Exception|Interrupt|Exit): \S")
#: What a traceback in the end says was raised, in its first line: a few more are hints.
_TRACED: Final = re.compile(
    r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+(\S.*)(?:\n(?!.*Traceback \(most).*){0,6}\Z"
)
_MOST: Final = 200


def last_words(output: str) -> str:
    """What a traceback in the end says was raised, else the last line that says something.

    Where torchrun tells of it, what a rank raised.
    """
    own, launched, _ = output.partition(_OF_TORCHRUN)
    said = [line.strip() for line in own.splitlines() if any(letter.isalnum() for letter in line)]
    raised = [line for line in said if _RAISED.search(line)] if launched else []
    traced = _TRACED.search(own) if not launched else None
    if traced:
        return traced[1].strip()[:_MOST]
    return next(iter([*raised[-1:], *said[-1:]]), "")[:_MOST]
