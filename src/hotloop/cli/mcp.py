"""``hotloop mcp``: a server of the Model Context Protocol on standard input and output, for coding agents."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from pathlib import Path

from hotloop.cli import arguments
from hotloop.cli.output import say
from hotloop.errors import UsageError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop mcp``."""
    words = "folder of the trainings; runs are written to hotloop-runs in it (default: .)"
    arguments.add_path(parser, "--root", words, "DIR", Path())
    arguments.add_time(parser, "--timeout", 3600.0, "what a tool may take at most (default: 60m)")


def main(options: argparse.Namespace) -> int:
    """Returns 0 when the client has gone."""
    if importlib.util.find_spec("mcp") is None:
        raise UsageError("hotloop mcp needs the SDK of the protocol", hint="pip install 'hotloop[mcp]'")
    root = options.root.resolve()
    if not root.is_dir():
        raise UsageError(f"there is no folder {options.root}")
    from hotloop.mcp.server import serve

    if sys.stdin.isatty():
        say("an agent's client is to speak on standard input; hotloop docs agents says how to register this")
    serve(root, options.timeout)
    return 0
