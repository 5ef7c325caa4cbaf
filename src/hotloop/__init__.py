"""hotloop keeps the training loop hot: see ``hotloop --help`` and ARCHITECTURE.md.

``load("hotloop-runs/...")`` gives a finished run to a notebook or a program: verdict, findings, steps.
``with observe() as seen: ...`` observes what this process trains; so does ``%%hotloop`` in a notebook.
``with step(): ...`` marks a step where a loop hides it.
"""

import sys

__version__ = "0.1.0"
__all__ = ["__version__", "load", "observe", "step"]


def load(run):  # type: ignore[no-untyped-def] # typed where it lives; nothing is imported in a user's process
    """A finished run, measured and diagnosed: :class:`hotloop.flow.load.Run`."""
    __import__("hotloop.flow.load")
    return sys.modules["hotloop.flow.load"].load(run)


def observe(out=None):  # type: ignore[no-untyped-def]
    """Observe what runs inside of a ``with``: :func:`hotloop.flow.notebook.observe`."""
    __import__("hotloop.flow.notebook")
    return sys.modules["hotloop.flow.notebook"].observe(out)


def step(samples=0, update=False):  # type: ignore[no-untyped-def]
    """``with hotloop.step():`` around one training step: :class:`hotloop.probe.marking.Step`."""
    __import__("hotloop.probe.marking")
    return sys.modules["hotloop.probe.marking"].Step(samples, update)


def load_ipython_extension(shell):  # type: ignore[no-untyped-def]
    """``%load_ext hotloop``: :func:`hotloop.flow.notebook.load_ipython_extension`."""
    __import__("hotloop.flow.notebook")
    sys.modules["hotloop.flow.notebook"].load_ipython_extension(shell)
