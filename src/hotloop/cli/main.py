"""Parse the command line, run one verb, turn errors into words and exit codes."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from hotloop import __version__
from hotloop.errors import HotloopError

#: Verb -> one line of help. The verb's module (``hotloop.cli.<verb>``) is imported only when it is used.
VERBS = {
    "run": "run a training command, account for every second, name what holds it back",
    "what-if": "what would each change give, measured on the running command in interleaved blocks",
    "plan": "conservative, balanced, aggressive, low-memory: predicted from a run, here or elsewhere",
    "tune": "try what the diagnosis asks for, keep what is faster by more than the noise",
    "report": "render a finished run again: terminal, HTML, JSON, Perfetto",
    "doctor": "this machine: what it has, what is off, what to do",
    "bake": "run a dataset's deterministic preprocessing once, into memory-mapped files",
    "audit": "read source, configuration and machine for what slows training; runs nothing",
    "verify": "whether a faster run computes the same, how much faster it is, and a checklist",
    "compare": "runs side by side: speed with interval, what moved, what differs; a gate for CI",
    "fix": "the change a run asks for, as a patch of your source and configuration",
    "memory": "where host and device memory goes, what fits, why it ran out",
    "analyze": "other people's records: text logs, TensorBoard events, histories, profiler traces",
    "demo": "the whole chain on a bundled training system",
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns its exit code (0 ok, 1 a check said no, 2 usage, 3 hotloop's own failure)."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    parser = _parser(arguments)
    options = parser.parse_args(arguments)
    if options.verb is None:
        parser.print_help(sys.stderr)
        return 2
    verb = importlib.import_module(_module(options.verb))
    try:
        return int(verb.main(options))
    except HotloopError as error:
        print(f"error: {error.message}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        sys.stderr.close()
        return 0
    except KeyboardInterrupt:
        return 130


def _module(verb: str) -> str:
    return f"hotloop.cli.{verb.replace('-', '_')}"


def _parser(arguments: Sequence[str]) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="hotloop",
        description="Runs an unmodified PyTorch training command and says where every second of it goes.",
        epilog="Documentation: docs/ in the source tree. Start with: hotloop run -- python train.py",
    )
    parser.add_argument("--version", action="version", version=f"hotloop {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    wanted = next((word for word in arguments if not word.startswith("-")), None)
    for name, words in VERBS.items():
        verb = verbs.add_parser(name, help=words, description=words[0].upper() + words[1:] + ".")
        if name == wanted:
            importlib.import_module(_module(name)).add_arguments(verb)
    return parser
