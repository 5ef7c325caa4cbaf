"""Called by ``inject/sitecustomize.py`` once torch has been imported."""

from __future__ import annotations

import os
from typing import Any

from hotloop.probe.install import install


def torch_imported(torch: Any, start_ns: int, import_start_ns: int) -> None:
    """Install the probe into this process; the environment says where it writes."""
    install(torch, os.environ["HOTLOOP_RAW"], start_ns=start_ns, import_start_ns=import_start_ns)
