"""How often a framework evaluates or writes checkpoints, where the user's code tells it so by a keyword."""

from __future__ import annotations

import re
from typing import Final, Literal

from hotloop.diagnose.evidence import Evidence, epoch_steps, of_note
from hotloop.diagnose.source import sources, text_of
from hotloop.findings import Place
from hotloop.torch_facts import normal

What = Literal["evaluation", "checkpoint"]

_NAMED: Final[dict[What, frozenset[str]]] = {
    "evaluation": frozenset(
        ["eval", "evaluate", "evaluation", "val", "valid", "validate", "validation", "test"]
    ),
    "checkpoint": frozenset(["save", "saving", "checkpoint", "checkpointing", "ckpt"]),
}
_HOW_OFTEN: Final = frozenset(["every", "interval", "freq", "frequency", "period", "step", "steps"])
#: Words of numbers that count something else.
_OTHER: Final = frozenset([
    "accumulation", "max", "num", "sanity", "warmup", "limit", "total", "start", "begin", "after", "delay",
    "resume", "load", "from", "batch",
])  # fmt: skip
_EPOCHS: Final = frozenset(["epoch", "epochs"])
_PER_EPOCH: Final = _HOW_OFTEN | {"epochs", "per"}
_WORD: Final = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
#: An option of a command that is given a number: ``--eval_steps 20``, ``trainer.val_check_interval=100``.
_OPTION: Final = re.compile(
    r"(?<![^\s,=])-{0,2}(?:\w[\w-]*\.)*(?P<name>[a-z_][\w-]*)[= ](?P<value>\d+)(?![^\s,])"
)
#: What a count is divided by in the test of an ``if``: ``if step % self.sample_step == 0``.
_DIVISOR: Final = re.compile(r"%\s*(?:\w+\.)*(\w+)\s*\)*\s*==")
#: A keyword that is given a number, and the call before it on its line.
_KEYWORD: Final = re.compile(r"(?:(?P<called>\w+)\([^()]*?)?\b(?P<name>[a-z_]\w*)=(?P<value>\d+)\b")


def asked_by(
    evidence: Evidence, what: What, every: float, where: Place | None
) -> tuple[Place | None, str] | None:
    """The option of the command that asks for it so often (``--eval_steps 20``), or a keyword and its place:
    ``eval_steps=5``, ``ModelCheckpoint(every_n_train_steps=1)``.

    Keywords only of a training that a framework runs whole: a loop of the user's says itself what it does
    when. None where none or several ask for that number, of batches or of updates.
    """
    steps, command = evidence.steps, " ".join(evidence.recording.command)
    wanted = {round(every), round(every / max(1.0, steps.backwards_per_update))}
    epoch = epoch_steps(steps)
    passes = (
        {round(every / epoch)} if epoch and round(every) == round(epoch) * round(every / epoch) else set()
    )
    options = [(one["name"], int(one["value"]), one[0]) for one in _OPTION.finditer(command)]
    for note in evidence.notes("config"):
        key, value = str(note.get("key")), note.get("value")
        if type(value) is int and not note.get("option"):
            options.append((key.rpartition(".")[2], value, f"{key}={value}{of_note(note)}"))
    divisors = _divisors(text_of(evidence, where.file), where.line) if where is not None else set()
    fits = [
        one
        for one in options
        if one[1] in wanted | passes and asks(what, "", one[0], epochs=one[1] in passes)
    ]
    fits = fits or [one for one in options if one[1] in wanted and normal(one[0]) in divisors]
    if len(fits) == 1:
        return None, fits[0][2]
    if steps.source_loop is not None:
        return None
    found = [
        (Place(file=file, line=number), f"{one['name']}={one['value']}")
        for file, text in sources(evidence).items()
        for number, line in enumerate(text.splitlines(), 1)
        for one in _KEYWORD.finditer(line)
        if int(one["value"]) in wanted and asks(what, one["called"] or "", one["name"])
    ]
    return found[0] if len(found) == 1 else None


def asks(what: What, called: str, name: str, *, epochs: bool = False) -> bool:
    """Whether a keyword of a call of this name says how often it is done; ``epochs``: it may count them."""
    own, words = _words(name), _words(name) | _words(called)
    often = own & (_PER_EPOCH if epochs else _HOW_OFTEN)
    return bool(often) and bool(words & _NAMED[what]) and not own & (_OTHER if epochs else _OTHER | _EPOCHS)


def _divisors(text: str, line: int) -> set[str]:
    """What counts are divided by in the tests of the ``if`` statements around a line of a function."""
    found: set[str] = set()
    depth = 1 << 16
    for one in reversed(text.splitlines()[:line]):
        code = one.strip()
        if code and len(one) - len(one.lstrip()) < depth:
            depth = len(one) - len(one.lstrip())
            found |= set(_DIVISOR.findall(code)) if code.startswith(("if ", "elif ", "if(")) else set()
            if code.startswith(("def ", "async def ", "class ")):
                break
    return found


def _words(name: str) -> frozenset[str]:
    return frozenset(word.lower() for word in _WORD.findall(name))
