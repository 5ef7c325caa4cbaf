"""A remedy: one change that would remove a cause, in every form it can be given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from hotloop.errors import UsageError
from hotloop.feed.budget import named_bytes, total_memory_bytes
from hotloop.findings import ENTRIES

#: ``exact`` keeps batches and losses bit for bit; ``numeric`` stays within float noise or a lower precision;
#: ``semantic`` changes what is trained or when, or leaves less of it on record (log lines, pictures, prints).
Effect = Literal["exact", "numeric", "semantic"]
EFFECTS: tuple[Effect, ...] = ("exact", "numeric", "semantic")

Kind = Literal["count", "number", "size", "text"]


@dataclass(frozen=True, kw_only=True)
class Parameter:
    """The value a remedy takes: ``num-workers=4``.

    ``default`` is used where none is given (None: the live form follows from the machine, see ``words``).
    ``finding_key`` names the entry of a finding's ``data`` that holds the value the run asks for.
    ``choices`` limits text values; a size stays the text it was given as. Where it is ``needed`` there is no
    live form without a value.
    """

    name: str
    kind: Kind
    words: str
    default: int | float | str | None = None
    minimum: float = 0
    finding_key: str = ""
    choices: tuple[str, ...] = ()
    needed: bool = False

    def parse(self, text: str) -> int | float | str:
        """The value that ``text`` spells. Raises ValueError with what was expected."""
        if self.kind == "text":
            if self.choices and text not in self.choices:
                raise ValueError(f"one of {', '.join(self.choices)}")
            return text
        if self.kind == "size":
            if text.strip().lower() != "auto":
                try:
                    named_bytes(text, total_memory_bytes)
                except ValueError:
                    raise ValueError("a size: 4GiB, 500MB, 40%, auto") from None
            return text
        expected = f"a {'whole ' if self.kind == 'count' else ''}number, at least {self.minimum:g}"
        try:
            value = int(text) if self.kind == "count" else float(text)
        except ValueError:
            raise ValueError(expected) from None
        if not value >= self.minimum:
            raise ValueError(expected)
        return value


@dataclass(frozen=True, kw_only=True)
class Remedy:
    """One change.

    ``alters`` says for people what may change ("" where nothing does). ``also`` are the ids of findings that
    it would remove and whose home (``ENTRIES``) does not name it. ``live`` (``module:Class``) is the form
    that ``run --apply`` installs, "" where there is none; ``source`` (``module:function``) what ``fix``
    writes. ``source_effect`` is set where that may alter more than the live form does, ``depends`` where the
    script then imports hotloop, ``indexed`` where samples need a number, which those of an iterable dataset
    have not, ``stores`` where it writes files that stay, ``rewrites`` where the source form computes the same
    by other code, as losses can show, ``where_named`` where a finding that it answers has other causes too,
    and names it only for this one, ``redraws`` where samples that draw random numbers draw others under it.
    ``config_keys`` are the meanings (``torch_facts.py``) of configuration
    keys that hold its value. ``excludes`` names remedies that cannot be applied beside it. ``words`` is what
    to tell a person, ``{value}`` being the value.
    """

    id: str = ""  # from the name of its entry, see ``catalogue``
    summary: str
    effect: Effect
    words: str
    alters: str = ""
    also: tuple[str, ...] = ()
    parameter: Parameter | None = None
    live: str = ""
    source: str = ""
    source_effect: Effect | None = None
    depends: bool = False
    indexed: bool = False
    stores: bool = False
    rewrites: bool = False
    where_named: bool = False
    redraws: bool = False
    config_keys: tuple[str, ...] = ()
    excludes: tuple[str, ...] = ()

    @property
    def answers(self) -> tuple[str, ...]:
        """The ids of the findings that it would remove."""
        return (*(name for name, home in ENTRIES.items() if self.id in home.remedies), *self.also)

    @property
    def written_effect(self) -> Effect:
        """What its source form may alter."""
        return self.source_effect or self.effect

    def effect_where(self, drawn: bool, *, live: bool = False) -> Effect:
        """What it may alter in a run whose samples draw random numbers, or do not."""
        return "semantic" if drawn and self.redraws else self.effect if live else self.written_effect

    @property
    def forms(self) -> tuple[str, ...]:
        """How hotloop can give it: ``live``, ``source``; ``words`` where a person writes it."""
        return tuple(name for name in ("live", "source") if getattr(self, name)) or ("words",)

    def value(self, text: str | None) -> Any:
        """The value of ``ID=text``, or the default where no text is given. Raises UsageError."""
        if self.parameter is None:
            if text is not None:
                raise UsageError(f"{self.id} takes no value, got {text!r}", hint=f"write {self.id}")
            return None
        if text is None:
            return self.parameter.default
        try:
            return self.parameter.parse(text)
        except ValueError as expected:
            raise UsageError(
                f"{self.id}={text}: {self.parameter.name} is {expected}",
                hint=f"for instance {self.id}={self._example()}; {self.parameter.words}",
            ) from None

    def has_live(self, value: Any) -> bool:
        """Whether it can be applied to a running script with this value."""
        return bool(self.live) and (value is not None or self.parameter is None or not self.parameter.needed)

    def spell(self, value: Any) -> str:
        """How the remedy with this value is written on the command line."""
        return self.id if value is None or self.parameter is None else f"{self.id}={value}"

    def said(self, value: Any) -> str:
        """What to write by hand, with this value; N where there is none."""
        plain, exact = ("N", "N") if value is None else (str(value), repr(value))
        return self.words.replace("{value!r}", exact).replace("{value}", plain)

    def _example(self) -> int | float | str:
        assert self.parameter is not None
        if self.parameter.default is not None:
            return self.parameter.default
        if self.parameter.kind == "size":
            return "4GiB"
        return self.parameter.choices[0] if self.parameter.choices else 4
