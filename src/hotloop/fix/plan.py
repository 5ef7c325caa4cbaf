"""The patch in the making: edits, and values that are written where they were followed to."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hotloop.fix import config_files
from hotloop.fix.edits import Edits
from hotloop.fix.follow import Absent, Entry, Follower, Target
from hotloop.fix.scene import Already, Cannot
from hotloop.measure.settings import same
from hotloop.record.recording import Note
from hotloop.source.nodes import argument, has_spread, text_of
from hotloop.source.text import Edit


class Plan(Edits):
    """The patch in the making. A rewrite that raises Cannot leaves nothing of itself in it."""

    def put(self, target: Target, name: str, value: Any, new: str | None = None) -> None:
        """Give a followed value: ``new`` is the expression to write instead of the value itself."""
        if isinstance(target, Entry):
            self._configure(target.note, value)
        elif isinstance(target, Absent):
            self.keyword(target.code, target.call, target.name, new or repr(value))
        else:
            code, node = target.code, target.node
            old = code.source(node)
            text = new or config_files.spelled(old, value)
            if text == old:
                raise Already.at(f"{name} is {old} already", code, node)
            self.replace(code, node, text, f"{target.name or name}: {old} → {text}")

    # -- configuration -----------------------------------------------------------------------------------

    def _configure(self, note: Note, value: Any) -> None:
        source, key = note.get("source"), str(note.get("key"))
        if source == "hydra":
            raise Cannot(f"{key} is composed by Hydra", write=f"run it with {key}={value}")
        if source == "argparse" and note.get("option"):
            self._argument(note, value)
            return
        file = note.get("file")
        if not file:
            raise Cannot(f"the file that sets {key} is not known")
        if Path(str(file)).suffix == ".py":
            target = Follower(self.scene, ()).constant(self.scene.code(file), tuple(key.split(".")))
            self.put(target, key.rpartition(".")[2], value)
            return
        text = self.scene.text(file)
        edit = config_files.change(text, key, value)
        old, line = text.text[edit.start : edit.end], text.line(edit.start)
        if edit.new == old:
            raise Already(f"{key} is {old} already", str(file), line)
        if not same(re.sub(r"""^(["'])(.*)\1$""", r"\2", old), note.get("value")):
            raise Cannot(f"{key} is {old} there, {note.get('value')} in the run", str(file), line)
        self.change_text(text, edit, f"{key}: {old} → {edit.new}")

    def _argument(self, note: Note, value: Any) -> None:
        option, key = str(note.get("option")), str(note.get("key"))
        if not note.get("given"):
            self._default(note, option, key, value)
            return
        for script in config_files.scripts(self.scene.command, self.scene.started):
            text = self.scene.text(script)
            raw = str(note.get("raw"))
            start, end = config_files.in_command(text, option, raw)
            self.change_text(text, Edit(start=start, end=end, new=str(value)), f"{option} {raw} → {value}")
            return
        raise Cannot(f"{option} is given on the command line", write=_option(option, value))

    def _default(self, note: Note, option: str, key: str, value: Any) -> None:
        found = []
        for file in [Path(str(note["file"]))] if note.get("file") else self.scene.files():
            code = self.scene.code(file)
            for call in code.calls("add_argument"):
                named = option in map(text_of, call.args) or text_of(argument(call, "dest")) == key
                found += [(code, call)] if named else []
        if len(found) != 1:
            words = f"{option} has a default that is not written in one place"
            raise Cannot(words, write=_option(option, value))
        code, call = found[0]
        if text_of(argument(call, "action")) is not None:
            raise Cannot.at(f"{option} is a switch", code, call, write=_option(option, value))
        default = argument(call, "default")
        if default is not None:
            target = Follower(self.scene, ()).expression(code, default, None)
            self.put(target, f"default of {option}", value)
        elif has_spread(call):
            raise Cannot.at(f"{option} has a default by **", code, call, write=_option(option, value))
        else:
            self.keyword(code, call, "default", repr(value))


def _option(option: str, value: Any) -> str:
    """How to give an option another value."""
    if isinstance(value, bool):
        return f"run it with{'' if value else 'out'} {option}"
    return f"run it with {option} {value}"
