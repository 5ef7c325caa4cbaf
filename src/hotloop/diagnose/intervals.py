"""How often a framework evaluates or writes checkpoints, where the user's code tells it so by a keyword."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from typing import Final, Literal

from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.source import sources
from hotloop.written import Written, tree_of

What = Literal["evaluation", "checkpoint"]

_NAMED: Final[dict[What, frozenset[str]]] = {
    "evaluation": frozenset(["eval", "evaluate", "evaluation", "val", "valid", "validation", "test"]),
    "checkpoint": frozenset(["save", "saving", "checkpoint", "checkpointing", "ckpt"]),
}
_HOW_OFTEN: Final = frozenset(["every", "interval", "freq", "frequency", "period", "steps"])
#: Words of numbers that count something else.
_OTHER: Final = frozenset(
    ["accumulation", "max", "num", "sanity", "warmup", "limit", "total", "epoch", "epochs"]
)
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")


def written(evidence: Evidence, what: What, every: float) -> Written | None:
    """The keyword that asks for it so often: ``eval_steps=5``, ``ModelCheckpoint(every_n_train_steps=1)``.

    Only of a training that a framework runs whole: a loop of the user's says itself what it does when. None
    where no keyword or several ask for that number, of batches or of updates.
    """
    steps = evidence.steps
    if steps.source_loop is not None:
        return None
    wanted = {round(every), round(every / max(1.0, steps.backwards_per_update))}
    found = [
        Written(file=file, line=keyword.value.lineno, text=ast.unparse(keyword))
        for file, text in sources(evidence).items()
        for call, keyword in _keywords(tree_of(text))
        if isinstance(keyword.value, ast.Constant)
        and type(keyword.value.value) is int
        and keyword.value.value in wanted
        and asks(what, ast.unparse(call.func).rpartition(".")[2], keyword.arg or "")
    ]
    return found[0] if len(found) == 1 else None


def _keywords(tree: ast.Module | None) -> Iterator[tuple[ast.Call, ast.keyword]]:
    for call in ast.walk(tree) if tree is not None else ():
        if isinstance(call, ast.Call):
            yield from ((call, keyword) for keyword in call.keywords)


def asks(what: What, called: str, name: str) -> bool:
    """Whether a keyword of a call of this name says how often it is done."""
    own, words = _words(name), _words(name) | _words(called)
    return bool(own & _HOW_OFTEN) and bool(words & _NAMED[what]) and not own & _OTHER


def _words(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(name))
