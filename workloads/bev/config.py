"""Configurations as Python files of dictionaries, with a record of which keys were read.

    data = dict(samples_per_gpu=4, workers_per_gpu=2)
    runner = dict(type="IterBasedRunner", max_iters=200000)

``_base_ = "other.py"`` begins with the keys of a file beside it, as in mmcv; a dictionary changes those
that it names.

A key counts as known when the training asks for it. After set-up ``require_read`` therefore finds misspelt
keys and keys that nothing reads alike, and can name the nearest one that is read.
"""

import ast
import difflib
import runpy
import traceback
from pathlib import Path
from types import ModuleType


class ConfigError(ValueError):
    """The configuration has a key nobody reads, or a value that cannot be meant."""


def merged(base, changes):
    """The keys of ``base``, and those of ``changes`` over them."""
    both = {
        key: merged(base[key], value)
        if isinstance(value, dict) and isinstance(base.get(key), dict)
        else value
        for key, value in changes.items()
    }
    return {**base, **both}


class Config:
    """Values by dotted key: ``config["data.samples_per_gpu"]``."""

    def __init__(self, path, values):
        self.path, self.values, self.asked = path, values, set()

    @classmethod
    def fromfile(cls, path):
        """Run a configuration file; everything it defines in lower case is a key."""
        try:
            found = runpy.run_path(str(path))
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror}") from None
        except SyntaxError as error:
            raise ConfigError(f"{path}, line {error.lineno}: {error.msg}") from None
        except Exception as error:
            lines = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(path)]
            place = f"{path}, line {lines[-1]}" if lines else path
            raise ConfigError(f"{place}: {error!r}") from None
        values = {k: v for k, v in found.items() if k[0].islower() and not isinstance(v, ModuleType)}
        if "_base_" in found:
            values = merged(cls.fromfile(Path(path).with_name(found["_base_"])).values, values)
        return cls(path, values)

    def merge(self, options):
        """Put ``a.b=c`` in; values are Python literals, anything else is text."""
        for option in options:
            key, equals, text = option.partition("=")
            if not equals:
                raise ConfigError(f"--options {option}: expected KEY=VALUE")
            try:
                value = ast.literal_eval(text)
            except (ValueError, SyntaxError):
                value = text
            self.set(key, value)

    def set(self, key, value):
        *sections, last = key.split(".")
        place = self.values
        for section in sections:
            place = place.setdefault(section, {})
            if not isinstance(place, dict):
                raise ConfigError(f"{self.path}: {key}: {section} holds no keys")
        place[last] = value

    def get(self, key, default=None):
        self.asked.add(key)
        place = self.values
        for part in key.split("."):
            if not isinstance(place, dict) or part not in place:
                return default
            place = place[part]
        return place

    def __getitem__(self, key):
        value = self.get(key, self)
        if value is self:
            raise ConfigError(f"{self.path}: {key} is missing")
        return value

    def count(self, key, least=1, default=None):
        """A whole number, at least ``least``."""
        value = self[key] if default is None else self.get(key, default)
        if type(value) is not int or value < least:
            raise ConfigError(f"{self.path}: {key} is {value!r}: expected a whole number from {least}")
        return value

    def number(self, key, default=None):
        value = self[key] if default is None else self.get(key, default)
        if type(value) not in (int, float):
            raise ConfigError(f"{self.path}: {key} is {value!r}: expected a number")
        return value

    def keys(self):
        """All keys that have values, dotted."""

        def walk(place, before):
            for key, value in place.items():
                if isinstance(value, dict) and value:
                    yield from walk(value, f"{before}{key}.")
                else:
                    yield f"{before}{key}"

        return list(walk(self.values, ""))

    def require_read(self, may_be_dead=()):
        """Raise ConfigError for the first key that nothing asked for; return those that may be dead."""
        covered = tuple(f"{key}." for key in self.asked)  # a section that was read whole
        unread = [key for key in self.keys() if key not in self.asked and not key.startswith(covered)]
        for key in unread:
            if key.rpartition(".")[2] in may_be_dead:
                continue
            near = difflib.get_close_matches(key, self.asked, n=1, cutoff=0.8)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(self.siblings(key))}"
            raise ConfigError(f"{self.path}: {key} is read by nothing: {hint}")
        return unread

    def siblings(self, key):
        section = key.rpartition(".")[0]
        inside = sorted(k for k in self.asked if k.rpartition(".")[0] == section)
        return inside or sorted({k.partition(".")[0] for k in self.asked})
