"""Called by ``inject/sitecustomize.py`` once torch has been imported."""

from __future__ import annotations

import importlib
import os
from typing import Any

from hotloop.probe.install import install

#: Environment variables that ask for more than observing, and the module that sees to it.
_MORE = {"HOTLOOP_APPLY": "hotloop.remedy.live.applying", "HOTLOOP_WHAT_IF": "hotloop.whatif.live.session"}


def torch_imported(torch: Any, start_ns: int, import_start_ns: int) -> None:
    """Install the probe into this process; the environment says where it writes, and what else is wanted."""
    probe = install(torch, os.environ["HOTLOOP_RAW"], start_ns=start_ns, import_start_ns=import_start_ns)
    for variable, module in _MORE.items():
        wanted = os.environ.get(variable)
        if wanted and probe.role != "helper":
            import json  # not needed by a run that is only observed

            probe.hooks.guard(module, importlib.import_module(module).install)(probe, json.loads(wanted))
