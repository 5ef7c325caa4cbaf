"""argparse options of a file: their attribute, default and place."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from hotloop.audit.module import UNKNOWN, Module, argument


@dataclass(frozen=True, kw_only=True)
class Option:
    """One ``add_argument``: ``name`` is the attribute it becomes, ``flag`` as typed."""

    module: Module
    call: ast.Call
    name: str
    flag: str
    default: Any


def options_of(module: Module) -> Iterator[Option]:
    """The options that a file declares with literal names."""
    for call in module.calls.get("add_argument", ()):
        flags = [a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)]
        if not flags or len(flags) != len(call.args):
            continue
        destination = module.constant(argument(call, "dest"))
        long = next((flag for flag in flags if flag.startswith("--")), flags[0])
        name = destination if isinstance(destination, str) else long.lstrip("-").replace("-", "_")
        default = argument(call, "default")
        value = module.constant(default) if default is not None else _implied(module, call)
        yield Option(module=module, call=call, name=name, flag=long, default=value)


def _implied(module: Module, call: ast.Call) -> Any:
    action = module.constant(argument(call, "action"))
    if action == "store_true":
        return False
    return True if action == "store_false" else (None if action is UNKNOWN else UNKNOWN)
