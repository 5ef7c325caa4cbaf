"""The compiled functions of ``_fast.c`` where they were built for this interpreter; None: Python does it.

``HOTLOOP_PURE=1`` leaves them out.
"""

from __future__ import annotations

import os
from typing import Any

Rows: Any = None
Sites: Any = None

if os.environ.get("HOTLOOP_PURE", "") in ("", "0"):
    try:
        from hotloop import _fast
    except ImportError:  # another interpreter than hotloop was installed for, or no compiler then
        pass
    else:
        Rows, Sites = _fast.Rows, _fast.Sites
