"""What was configured: argparse, YAML, JSON, TOML, Hydra, yacs, mmengine, mmcv, constants of modules.

A script that parses its arguments before it imports torch is caught up with from the globals of ``__main__``.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from hotloop.probe.configured import Configured

if TYPE_CHECKING:
    from hotloop.probe.probe import Probe


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

    def on_hydra(module: Any) -> None:
        owner = module.ConfigLoaderImpl
        hooks.patch(owner, "load_configuration", lambda original: _composer(configured, original))

    def on_yacs(module: Any) -> None:
        hooks.patch(module.CfgNode, "load_cfg", lambda original: _reader(configured, "yaml", original, 1))

    def on_ruamel(module: Any) -> None:
        hooks.patch(module.YAML, "load", lambda original: _reader(configured, "yaml", original, 1))

    def on_runpy(module: Any) -> None:
        hooks.patch(module, "run_path", lambda original: _runner(configured, original))

    hooks.on_import("argparse", on_argparse, "configs")
    hooks.on_import("yaml", on_yaml, "configs")
    hooks.on_import("json", on_json, "configs")
    for name in ("tomllib", "tomli", "toml"):
        hooks.on_import(name, on_toml, "configs")
    hooks.on_import("runpy", on_runpy, "configs")
    hooks.on_import("hydra._internal.config_loader_impl", on_hydra, "configs")
    hooks.on_import("yacs.config", on_yacs, "configs")
    hooks.on_import("ruamel.yaml.main", on_ruamel, "configs")
    for name in ("mmengine.config.config", "mmcv.utils.config"):
        hooks.on_import(name, on_config_class, "configs")

    def once() -> None:
        probe.off_update(once)
        configured.earlier()
        configured.constants()
        configured.overrides()
        configured.named()
        configured.files()

    def last() -> None:
        # Not in a worker: looking at every module copies pages that it shares with its parent, and an epoch's
        # end waits for its exit. What observing adds to a worker started anew is about 4 ms of CPU in all
        # (benchmarks/in_process.py --loops workers).
        if probe.role != "worker":
            configured.files()

    probe.on_update("configs", once)
    probe.on_exit("configs", last)


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


def _reader(
    configured: Configured, source: str, original: Callable[..., Any], at: int = 0
) -> Callable[..., Any]:
    """``at``: which argument is the stream (1: the first one is the object or class)."""

    def load(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        stream = args[at] if len(args) > at else kwargs.get("stream")
        configured.read(source, stream, result, sys._getframe(1))
        return result

    return _dressed(load, original)


def _composer(configured: Configured, original: Callable[..., Any]) -> Callable[..., Any]:
    def load_configuration(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        configured.composed(result)
        return result

    return _dressed(load_configuration, original)


def _runner(configured: Configured, original: Callable[..., Any]) -> Callable[..., Any]:
    def run_path(path_name: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(path_name, *args, **kwargs)
        if not str(kwargs.get("run_name") or (args[1] if len(args) > 1 else "")).startswith("__m"):
            configured.tree("python", str(path_name), result)  # values, not the main script
        return result

    return _dressed(run_path, original)


def _from_file(configured: Configured, original: Callable[..., Any]) -> Callable[..., Any]:
    def fromfile(filename: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(filename, *args, **kwargs)
        configured.tree("python", str(filename), getattr(result, "_cfg_dict", None))
        return result

    return _dressed(fromfile, original)


def _dressed(wrapper: Callable[..., Any], original: Callable[..., Any]) -> Callable[..., Any]:
    return functools.update_wrapper(wrapper, original)
