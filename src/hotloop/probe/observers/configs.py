"""What was configured: argparse, YAML, JSON, TOML, Hydra, constants of modules."""

from __future__ import annotations

from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from hotloop.hooks.wrapping import RAISED
from hotloop.probe.configured import Configured

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe


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
    after(
        "argparse",
        "_ActionsContainer",
        "add_argument",
        lambda a, k, action, f: configured.declared(action, f),
    )
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
        configured.files()

    def last() -> None:
        # Not in a worker: looking at every module copies pages that it shares with its parent, and an epoch's
        # end waits for its exit. What observing adds to a worker started anew is about 4 ms of CPU in all
        # (benchmarks/in_process.py --loops workers).
        if probe.role != "worker":
            configured.files()

    probe.on_update("configs", once)
    probe.on_exit("configs", last)
