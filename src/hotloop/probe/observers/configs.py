"""What was configured: argparse, YAML, JSON, TOML, Hydra, constants of modules."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any, Final

from hotloop.hooks.wrapping import RAISED
from hotloop.probe.probe import Probe
from hotloop.torch_facts import known_values, meaning_of, normal, value_for

#: Larger files are data.
MAX_FILE_BYTES: Final = 256_000
#: A process says no more than this many values.
MAX_NOTES: Final = 400
#: At most this many of the user's files are named.
MAX_FILES: Final = 2000

#: Modules through which the script's own code reads configuration; what other libraries read is theirs. A
#: wrapper of ours has no name.
_THROUGH: Final = frozenset(
    ["", "yaml", "json", "tomllib", "omegaconf", "hydra", "yacs", "fvcore", "jsonargparse"]
)
#: Modules of libraries whose functions are methods of what trains.
_TRAINERS: Final = frozenset(
    ["transformers.trainer", "lightning.pytorch.trainer.trainer", "pytorch_lightning.trainer.trainer"]
)
#: Names of files that a run writes about itself.
_RECORDS: Final = ("state", "history", "results", "metrics", "summary", "package", "index")

#: Modules and classes that hold configuration have one of these words in their name.
_CONFIGURES: Final = frozenset([
    "config", "configs", "configuration", "cfg", "conf", "settings", "options", "opt", "opts", "args",
    "hparams", "hyperparams", "hyperparameters", "params", "constants", "const", "defaults",
])  # fmt: skip


class Configured:
    """Notes configured values of one process."""

    def __init__(self, probe: Probe) -> None:
        self._probe = probe
        self._seen: set[tuple[Any, ...]] = set()
        self._places: dict[int, tuple[Any, str | None, int | None]] = {}  # id(action) -> action, file, line
        self.parsing = False
        self._named: set[str] = set()

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
        more |= {"file": file, "line": line, "given": given}
        self._probe.note("config", source=source, key=key, meaning=meaning, value=plain, **more)

    def read(self, source: str, stream: Any, result: Any, frame: FrameType | None) -> None:
        """A reader of configuration returned; ``frame`` called it."""
        if not isinstance(result, Mapping):
            return
        while frame is not None and str(frame.f_globals.get("__name__", "")).partition(".")[0] in _THROUGH:
            frame = frame.f_back
        if frame is None or not self._probe.is_user(frame.f_code):
            return
        reader = f"{os.path.abspath(frame.f_code.co_filename)}:{frame.f_lineno}"
        name = getattr(stream, "name", stream)
        if hasattr(stream, "read") or isinstance(stream, os.PathLike):
            if isinstance(name, (str, os.PathLike)):
                self.tree(source, os.fspath(name), result, reader)
        elif isinstance(stream, str) and source == "yaml":  # text of an unknown file
            for key, _, value in known_values(result):
                self.say(source, None, None, key, value, given=True, reader=reader)

    def composed(self, result: Any) -> None:
        """Hydra put a configuration together: its values count, not those of the single files."""
        tree = sys.modules["omegaconf"].OmegaConf.to_container(result, resolve=False)
        if isinstance(tree, dict):
            tree.pop("hydra", None)
            for key, _, value in known_values(tree):
                self.say("hydra", None, None, key, value, given=True)

    def files(self) -> None:
        """Name the user's files that are loaded by now."""
        loaded = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
        is_user = self._probe.is_user.file
        # torch.classes and its like call themselves "_classes.py"
        files = {f for f in loaded if isinstance(f, str) and f.endswith(".py") and os.path.isabs(f)}
        new = sorted(file for file in files - self._named if is_user(file))[:MAX_FILES]
        if new and len(self._named) < MAX_FILES:
            self._named.update(new)
            self._probe.note("files", files=new)

    def tree(self, source: str, file: str | None, result: Any, reader: str | None = None) -> None:
        """A configuration file was read into nested mappings."""
        if not isinstance(result, Mapping) or not file or not _is_own(file):
            return
        path = os.path.abspath(file)
        if not os.path.isfile(path) or os.path.getsize(path) > MAX_FILE_BYTES:
            return
        text: str | None = None
        for key, _, value in known_values(result):
            if text is None:
                with open(path, encoding="utf-8", errors="replace") as stream:
                    text = stream.read()
            more = {"reader": reader} if reader else {}
            self.say(source, path, line_of(text, key), key, value, given=True, **more)

    def declared(self, action: Any, frame: FrameType | None) -> None:
        """``add_argument`` was called: keep where, for the arguments hotloop knows."""
        if meaning_of(getattr(action, "dest", "")) is None or len(self._places) > MAX_NOTES:
            return
        user = self._probe.user_frame(frame)
        if user is not None:
            self._places[id(action)] = (action, os.path.abspath(user.f_code.co_filename), user.f_lineno)

    def arguments(self, parser: Any, args: Any, namespace: Any) -> None:
        """``parse_known_args`` returned."""
        words = {str(word).partition("=")[0] for word in (sys.argv[1:] if args is None else args)}
        for action in _actions(parser):
            if meaning_of(action.dest) is None or not hasattr(namespace, action.dest):
                continue
            options = list(action.option_strings)
            value = getattr(namespace, action.dest)
            given = value != action.default or not words.isdisjoint(options)
            _, file, line = self._places.get(id(action), (None, None, None))
            option = max(options, key=len, default="")
            self.say("argparse", file, line, action.dest, value, given, option=option)

    def overrides(self) -> None:
        """``key=value`` words of the command line, where a library reads them or a file has that key."""
        reads = any(name in sys.modules for name in ("omegaconf", "hydra", "mmengine"))
        for word in sys.argv[1:]:
            key, equals, value = word.lstrip("+").partition("=")
            if not equals or key.startswith("-") or meaning_of(key) is None:
                continue
            if reads or any(file and name == key for _, file, name, *_ in self._seen):
                self.say("argparse", None, None, key, value, given=True, option=key)

    def trainer(self, frame: FrameType | None) -> None:
        """How long a library's trainer that is running goes on: as it was told, or has worked out."""
        while frame is not None and frame.f_globals.get("__name__") not in _TRAINERS:
            frame = frame.f_back
        told = frame.f_locals.get("self") if frame is not None else None
        for key in ("max_epochs", "max_steps"):
            self.say("trainer", None, None, key, getattr(getattr(told, "state", None), key, None), given=True)
            self.say("trainer", None, None, key, getattr(told, key, None), given=True)

    def constants(self) -> None:
        """Constants of the user's configuration modules, and of configuration classes in any of them."""
        is_user = self._probe.is_user.file
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None)
            if not isinstance(file, str) or not file.endswith(".py") or not is_user(file):
                continue
            configures = configures_by_name(name)
            found: dict[str, Any] = {}
            for key, value in list(vars(module).items()):
                if _plain_class(value, name) and (configures or configures_by_name(key)):
                    found[key] = {k: v for k, v in vars(value).items() if not k.startswith("_")}
                elif configures and key[:1] != "_" and isinstance(value, (bool, int, float, str, dict)):
                    found[key] = value
            if found:
                self.tree("python", file, found)


def line_of(text: str, key: str) -> int | None:
    """The line (from 1) where a dotted key stands, in YAML, JSON, TOML or Python: of the first name the least
    indented, then the first of each name after the one before it. None where one is not found.
    """
    text = re.sub(r"#.*", lambda comment: " " * len(comment[0]), text)
    at = 0
    for number, part in enumerate(key.split(".")):
        named = re.compile(rf"""(?m)^([ \t]*)(?:.*?(?<!\w))??["']?({re.escape(part)})["']?\s*[:=(\].]""")
        inside = re.compile(rf"""()(?<!\w)({re.escape(part)})["']?\s*[:=(\].]""")
        found = [*(inside if number else named).finditer(text, at)]
        if not found:
            return None
        best = found[0] if number else min(found, key=lambda one: len(one[1]))
        at = best.end(2)
    return text.count("\n", 0, at) + 1


def _is_own(file: str) -> bool:
    """Whether a file may configure this run: no package's own, nothing that a run writes about itself."""
    path = os.path.abspath(file)
    if "/site-packages/" in path or "/dist-packages/" in path or "/.cache/" in path:
        return False
    return not any(word in os.path.basename(path).lower() for word in _RECORDS)


def configures_by_name(name: str) -> bool:
    """Whether a module or class is named as one that holds configuration: ``train_config``, ``CFG``."""
    return any(not _CONFIGURES.isdisjoint(normal(part).split("_")) for part in name.split("."))


def _plain_class(value: Any, module: str) -> bool:
    """Whether this is a class of constants (``class CFG: lr = 0.1``), not of objects that hold others."""
    if type(value) is not type or value.__module__ != module:
        return False
    return not {"__init__", "__new__", "__dataclass_fields__", "__call__"} & vars(value).keys()


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


#: Given the arguments of a call that returned, its result and the frame that called.
_Done = Callable[[tuple[Any, ...], dict[str, Any], Any, FrameType], None]


def install(probe: Probe) -> None:
    """Watch the readers of configuration that are imported, now or later."""
    configured = Configured(probe)
    hooks = probe.hooks

    def after(module: str, owner: str, name: str, done: _Done) -> None:
        def end(token: Any, start: int, stop: int, result: Any) -> None:
            args, kwargs, frame = token
            if result is not RAISED:
                done(args, kwargs, result, frame)

        def patch(loaded: Any) -> None:
            holder = getattr(loaded, owner, None) if owner else loaded
            if holder is not None:
                hooks.around(holder, name, "configs", lambda *called: called, end, any_thread=True)

        hooks.on_import(module, patch, "configs")

    def on_argparse(module: Any) -> None:
        kind = module.ArgumentParser
        hooks.around(kind, "parse_known_args", "configs", parses, parsed, any_thread=True)

    def parses(args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType) -> Any:
        if configured.parsing:  # a sub-parser's own call is part of its parser's
            return None
        configured.parsing = True
        return args[0], args[1] if len(args) > 1 else kwargs.get("args")

    def parsed(token: Any, start: int, stop: int, result: Any) -> None:
        configured.parsing = False
        if result is not RAISED:
            parser, words = token
            configured.arguments(parser, words, result[0] if isinstance(result, tuple) else result)

    def reads(source: str) -> _Done:
        def done(args: tuple[Any, ...], kwargs: dict[str, Any], result: Any, frame: FrameType) -> None:
            configured.read(source, args[0] if args else kwargs.get("stream"), result, frame)

        return done

    hooks.on_import("argparse", on_argparse, "configs")
    after("argparse", "_ActionsContainer", "add_argument", lambda a, k, one, f: configured.declared(one, f))
    for source, module in (("yaml", "yaml"), ("json", "json"), ("toml", "tomllib")):
        after(module, "", "load", reads(source))
    hydra = "hydra._internal.config_loader_impl"
    after(
        hydra, "ConfigLoaderImpl", "load_configuration", lambda a, k, result, f: configured.composed(result)
    )

    def once() -> None:
        probe.off_update(once)
        configured.constants()
        configured.overrides()
        configured.trainer(sys._getframe())
        configured.files()

    def last() -> None:
        # Not in a worker: looking at every module copies pages that it shares with its parent, and an epoch's
        # end waits for its exit. What observing adds to a worker started anew is about 4 ms of CPU in all
        # (benchmarks/in_process.py --loops workers).
        if probe.role != "worker":
            configured.files()

    probe.on_update("configs", once)
    probe.on_exit("configs", last)
