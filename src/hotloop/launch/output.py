"""What a command said in the end."""

from __future__ import annotations

import re
from typing import Final

#: torchrun ends with an error of its own and a table, whatever a rank raised before.
_OF_TORCHRUN: Final = "torch.distributed.elastic.multiprocessing.errors.ChildFailedError"
_RAISED: Final = re.compile(r"(?:^|[\s.])\w*(?:Error|Exception|Interrupt|Exit): \S")
_MOST: Final = 200


def last_words(output: str) -> str:
    """The last line of an output that says something; what a rank raised, where torchrun tells of it."""
    own, launched, _ = output.partition(_OF_TORCHRUN)
    said = [line.strip() for line in own.splitlines() if any(letter.isalnum() for letter in line)]
    raised = [line for line in said if _RAISED.search(line)] if launched else []
    return next(iter([*raised[-1:], *said[-1:]]), "")[:_MOST]
