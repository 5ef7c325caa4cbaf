"""What was configured: known keys of argparse, YAML, JSON, TOML, OmegaConf, mmengine and mmcv.

Values pass through untouched; only keys that ``probe.config`` knows are noted, each value once per place. A
script that parses its arguments before it imports torch is caught up with from the globals of ``__main__``.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from hotloop.probe.config import known_values, meaning_of, value_for
from hotloop.probe.keylines import line_of

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe

#: Larger files are data.
MAX_FILE_BYTES: Final = 256_000
#: A process says no more than this many values.
MAX_NOTES: Final = 400
_SYNTAX: Final = {".yaml": "yaml", ".yml": "yaml", ".json": "json", ".toml": "toml", ".py": "python"}

Wrap = Callable[[Callable[..., Any]], Callable[..., Any]]


class Configured:
    """Notes configured values of one process."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._seen: set[tuple[Any, ...]] = set()
        self._places: dict[int, tuple[Any, str | None, int | None]] = {}  # id(action) -> action, file, line
        self._parsing = False
        guard = probe.hooks.guard
        self.tree = guard("configs", self._tree)
        self.arguments = guard("configs", self._arguments)
        self.declared = guard("configs", self._declared)
        self.earlier = guard("configs", self._earlier)
        self.overrides = guard("configs", self._overrides)

    def say(
        self, source: str, file: str | None, line: int | None, key: str, value: Any, given: bool, **more: Any
    ) -> None:
        """Write one value, unless it was said before."""
        meaning = meaning_of(key)
        plain = None if meaning is None else value_for(meaning, value)
        identity = (source, file, key, repr(plain), given)
        if plain is None or identity in self._seen or len(self._seen) >= MAX_NOTES:
            return
        self._seen.add(identity)
        more["raw"] = value if isinstance(value, (bool, int, float)) else str(value)[:100]
        self._probe.note(
            "config",
            source=source,
            file=file,
            line=line,
            key=key,
            meaning=meaning,
            value=plain,
            given=given,
            **more,
        )

    def _tree(self, source: str, file: str | None, result: Any) -> None:
        """A configuration file was read into nested mappings."""
        if not isinstance(result, Mapping) or not file:
            return
        path = os.path.abspath(file)  # noqa: PTH100
        if not os.path.isfile(path) or os.path.getsize(path) > MAX_FILE_BYTES:  # noqa: PTH113, PTH202
            return
        text: str | None = None
        for key, _, value in known_values(result):
            if text is None:
                with open(path, encoding="utf-8", errors="replace") as stream:  # noqa: PTH123
                    text = stream.read()
            syntax = _SYNTAX.get(os.path.splitext(path)[1].lower(), source)  # noqa: PTH122
            self.say(source, path, line_of(text, key, syntax), key, value, given=True)

    def _declared(self, action: Any, frame: FrameType | None) -> None:
        """``add_argument`` was called: keep where, for the arguments hotloop knows."""
        if meaning_of(getattr(action, "dest", "")) is None or len(self._places) > MAX_NOTES:
            return
        user = self._probe.user_frame(frame)
        if user is not None:
            self._places[id(action)] = (action, os.path.abspath(user.f_code.co_filename), user.f_lineno)  # noqa: PTH100

    def _arguments(self, parser: Any, args: Any, namespace: Any) -> None:
        """``parse_known_args`` returned."""
        words = [str(word) for word in (sys.argv[1:] if args is None else args)]
        for action in _actions(parser):
            if meaning_of(action.dest) is None or not hasattr(namespace, action.dest):
                continue
            options = list(action.option_strings)
            value = getattr(namespace, action.dest)
            given = _given(options, words) if options else value != action.default
            _, file, line = self._places.get(id(action), (None, None, None))
            option = max(options, key=len, default="")
            self.say("argparse", file, line, action.dest, value, given, option=option)

    def _earlier(self) -> None:
        """Arguments that were parsed before torch was imported, and constants of configuration modules."""
        namespace_type = getattr(sys.modules.get("argparse"), "Namespace", None)
        main = getattr(sys.modules.get("__main__"), "__dict__", {})
        for value in list(main.values()):
            if namespace_type is not None and isinstance(value, namespace_type):
                for key, item in list(vars(value).items()):
                    if meaning_of(key) is not None and not self._said("argparse", key):
                        option = "--" + key
                        given = _given([option, option.replace("_", "-")], sys.argv[1:])
                        self.say("argparse", None, None, key, item, given, option=option)

    def _overrides(self) -> None:
        """``key=value`` words of the command line, where a library that reads them is in use."""
        if not any(name in sys.modules for name in ("omegaconf", "hydra", "mmengine", "mmcv")):
            return
        for word in sys.argv[1:]:
            key, equals, value = word.lstrip("+").partition("=")
            if equals and not key.startswith("-") and meaning_of(key) is not None:
                self.say("argparse", None, None, key, value, given=True, option=key)

    def _said(self, source: str, key: str) -> bool:
        return any(identity[0] == source and identity[2] == key for identity in self._seen)


def install(probe: Probe) -> None:
    """Watch the readers of configuration that are imported, now or later."""
    configured = Configured(probe)
    hooks = probe.hooks

    def on_argparse(module: Any) -> None:
        hooks.patch(module.ArgumentParser, "parse_known_args", lambda original: _parse(configured, original))
        hooks.patch(module._ActionsContainer, "add_argument", lambda original: _declare(configured, original))

    def on_yaml(module: Any) -> None:
        hooks.patch(module, "load", lambda original: _reader(configured, "yaml", original))

    def on_json(module: Any) -> None:
        hooks.patch(module, "load", lambda original: _reader(configured, "json", original))

    def on_toml(module: Any) -> None:
        hooks.patch(module, "load", lambda original: _reader(configured, "toml", original))

    def on_config_class(module: Any) -> None:
        owner = getattr(module, "Config", None)
        if owner is not None:
            hooks.patch(owner, "fromfile", lambda original: _from_file(configured, original))

    hooks.on_import("argparse", on_argparse, "configs")
    hooks.on_import("yaml", on_yaml, "configs")
    hooks.on_import("json", on_json, "configs")
    for name in ("tomllib", "tomli", "toml"):
        hooks.on_import(name, on_toml, "configs")
    for name in ("mmengine.config.config", "mmcv.utils.config"):
        hooks.on_import(name, on_config_class, "configs")

    def once() -> None:
        probe.off_update(once)
        configured.earlier()
        configured.overrides()

    probe.on_update("configs", once)


def _parse(configured: Configured, original: Callable[..., Any]) -> Callable[..., Any]:
    def parse_known_args(self: Any, args: Any = None, namespace: Any = None, **kwargs: Any) -> Any:
        outer, configured._parsing = configured._parsing, True
        try:
            result = original(self, args, namespace, **kwargs)
        finally:
            configured._parsing = outer
        if not outer:  # a sub-parser's own call is part of its parser's
            configured.arguments(self, args, result[0] if isinstance(result, tuple) else result)
        return result

    return _dressed(parse_known_args, original)


def _declare(configured: Configured, original: Callable[..., Any]) -> Callable[..., Any]:
    def add_argument(self: Any, *args: Any, **kwargs: Any) -> Any:
        action = original(self, *args, **kwargs)
        configured.declared(action, sys._getframe(1))
        return action

    return _dressed(add_argument, original)


def _reader(configured: Configured, source: str, original: Callable[..., Any]) -> Callable[..., Any]:
    def load(stream: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(stream, *args, **kwargs)
        configured.tree(source, _name(stream), result)
        return result

    return _dressed(load, original)


def _from_file(configured: Configured, original: Callable[..., Any]) -> Callable[..., Any]:
    def fromfile(filename: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(filename, *args, **kwargs)
        configured.tree("python", str(filename), getattr(result, "_cfg_dict", None))
        return result

    return _dressed(fromfile, original)


def _dressed(wrapper: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    import functools

    return functools.update_wrapper(wrapper, original)


def _name(stream: Any) -> str | None:
    """The file an open stream reads; None for text, sockets and buffers."""
    name = getattr(stream, "name", None)
    return name if isinstance(name, str) and hasattr(stream, "read") else None


def _actions(parser: Any) -> list[Any]:
    """The actions of a parser and of its sub-parsers."""
    found: list[Any] = []
    waiting = [parser]
    while waiting and len(found) < 5000:
        for action in waiting.pop()._actions:
            choices = getattr(action, "choices", None)
            if type(action).__name__ == "_SubParsersAction" and isinstance(choices, dict):
                waiting.extend(choices.values())
            else:
                found.append(action)
    return found


def _given(options: list[str], words: list[str]) -> bool:
    """Whether one of an argument's spellings, abbreviated or joined to its value, is among the words."""
    for word in words:
        if word == "--":
            return False
        name = word.partition("=")[0]
        for option in options:
            if word == option or name == option:
                return True
            if option.startswith("--"):
                if len(name) > 3 and name.startswith("--") and option.startswith(name):
                    return True
            elif word.startswith(option) and not word.startswith("--") and len(option) == 2:
                return True
    return False
