"""hotloop keeps the training loop hot: see ``hotloop --help`` and ARCHITECTURE.md.

``load("hotloop-runs/...")`` gives a finished run to a notebook or a program: verdict, findings, steps.
"""

import sys

__version__ = "0.1.0"
__all__ = ["__version__", "load"]


def load(run):  # type: ignore[no-untyped-def] # typed where it lives; nothing is imported in a user's process
    """A finished run, measured and diagnosed: :class:`hotloop.flow.load.Run`."""
    __import__("hotloop.flow.load")
    return sys.modules["hotloop.flow.load"].load(run)
