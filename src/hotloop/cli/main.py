"""Parse the command line, run one verb, turn errors into words and exit codes."""

from __future__ import annotations

import argparse
import codecs
import difflib
import importlib
import io
import os
import shlex
import shutil
import sys
from collections.abc import Sequence
from itertools import pairwise
from typing import TextIO

from hotloop import __version__, language
from hotloop.cli.output import say, shown, silence
from hotloop.errors import HotloopError

#: Verb -> one line of help. The verb's module (``hotloop.cli.<verb>``) is imported only when it is used.
VERBS = {
    "run": "run a training command, account for every second, name what holds it back",
    "watch": "follow a run while it goes on: terminal, or a page in the browser",
    "report": "render a finished run again: terminal, HTML, JSON, Perfetto",
    "merge": "the runs of a job's nodes, one a launcher, as one run with one report",
    "export": "a run's steps and metrics as Parquet, JSON lines, TensorBoard, Prometheus, OpenTelemetry ...",
    "brief": "what a person or a coding agent needs to write a change, and to prove it",
    "fix": "the change a run asks for, as a patch of your source and configuration",
    "verify": "whether a faster run computes the same, how much faster it is, and a checklist",
    "compare": "runs side by side: speed with interval, what moved, what differs; a gate for CI",
    "history": "the runs of a folder over time: speed, what held each back, where it changed",
    "what-if": "what would each change give, measured on the running command in interleaved blocks",
    "tune": "try what the diagnosis asks for, keep what is faster by more than the noise",
    "plan": "conservative, balanced, aggressive, low-memory: predicted from a run, here or elsewhere",
    "remedies": "every change hotloop knows, what it may alter, and which findings ask for it",
    "memory": "where host and device memory goes, what fits, why it ran out",
    "audit": "read source, configuration and machine for what slows training; runs nothing",
    "doctor": "this machine: what it has, what is off, what to do",
    "analyze": "other people's records: text logs, TensorBoard events, histories, profiler traces",
    "bake": "run a dataset's deterministic preprocessing once, into memory-mapped files",
    "docs": "the guides, the pages of findings and the reference, in the terminal",
    "completion": "the script that makes bash, zsh or fish complete verbs, flags and values",
    "mcp": "serve run, report, brief, what-if, verify, compare and audit to coding agents (MCP, stdio)",
    "demo": "the whole chain on a bundled training system",
}

_ABOUT = "Runs an unmodified PyTorch training command and says where every second of it goes."
_EPILOG = "Guides and pages of findings: hotloop docs. Start with: hotloop run -- python train.py"
_LANGUAGE = "language of what is printed, en or zh (default: that of LANG)"


def main(argv: Sequence[str] | None = None) -> int:
    """Run one verb; returns its exit code (0 ok, 1 a check said no, 2 usage, 3 hotloop's own failure)."""
    sys.stdout = sys.stdout or _nowhere()  # closed by whoever started us
    sys.stderr = sys.stderr or _nowhere()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="hotloop")  # an encoding that lacks a sign is no failure
    try:
        return _verb(_in_language(list(sys.argv[1:] if argv is None else argv)))
    except HotloopError as error:
        print(language.marked("error", shown(" ".join(error.message.split()))), file=sys.stderr)
        if error.hint:
            print(language.marked("hint", shown(error.hint)), file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        silence(sys.stdout)
        return 0
    except KeyboardInterrupt:
        say("interrupted")
        return 130
    except OSError as error:
        of = f": {error.filename}" if error.filename is not None else ""
        print(language.marked("error", shown(f"{error.strerror or error}{of}")), file=sys.stderr)
        silence(sys.stdout)  # it may be what could not be written
        return 3
    except Exception as error:  # Python's own exit code for these is 1, which means that a check said no
        import traceback

        traceback.print_exception(error)
        words = f"hotloop {__version__} failed, which it should not: see above"
        print(language.marked("error", words), file=sys.stderr)
        return 3


def _in_language(arguments: list[str]) -> list[str]:
    """The arguments without a ``--lang`` before the verb; help is made in the language that is asked for.

    Behind the verb it is left to the verb's parser, which knows where the user's own command begins.
    """
    at = next((at for at, word in enumerate(arguments) if word in VERBS), len(arguments))
    parser = argparse.ArgumentParser(
        prog="hotloop", add_help=False, allow_abbrev=False, usage="hotloop VERB ..."
    )
    parser.add_argument("--lang", default="")
    before, left = parser.parse_known_args(arguments[:at])
    helping = arguments[at : arguments.index("--")] if "--" in arguments else arguments[at:]
    asked = dict(pairwise(helping)).get("--lang", "") if {"-h", "--help"} & {*helping} else ""
    language.choose(asked or before.lang)
    return left + arguments[at:]


def _verb(arguments: Sequence[str]) -> int:
    parser, verb_parser = parser_of(arguments)
    options, unknown = parser.parse_known_args(arguments)
    if unknown:
        near = difflib.get_close_matches(unknown[0], verb_parser._option_string_actions, n=1)
        meant = f"; did you mean {near[0]}?" if near else ""
        verb_parser.error(language.said(f"unrecognized arguments: {' '.join(unknown)}{meant}"))
    if options.verb is None:
        parser.print_help(sys.stderr)
        return 2
    if getattr(options, "lang", None):
        language.choose(options.lang)
    return int(importlib.import_module(f"hotloop.cli.{options.verb.replace('-', '_')}").main(options))


def _escaped(error: UnicodeError) -> tuple[str, int]:
    """What an encoding lacks, as JSON escapes it: JSON stays JSON."""
    import json

    assert isinstance(error, UnicodeEncodeError)
    return json.dumps(error.object[error.start : error.end])[1:-1], error.end


codecs.register_error("hotloop", _escaped)


def _nowhere() -> TextIO:
    return open(os.devnull, "w")  # noqa: PTH123 - for as long as the process lives


def parser_of(arguments: Sequence[str]) -> tuple[argparse.ArgumentParser, argparse.ArgumentParser]:
    """The parser of the command line, and the one of the verb that it names."""
    if language.chosen():
        vars(argparse)["_"] = language.said  # its own words: usage, options, errors
    parser = argparse.ArgumentParser(prog="hotloop", description=_ABOUT, epilog=_EPILOG)
    parser.add_argument("--version", action="version", version=f"hotloop {__version__}")
    parser.add_argument("--lang", metavar="LANGUAGE", help=_LANGUAGE)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB")
    wanted, named = next((word for word in arguments if not word.startswith("-")), None), parser
    for name, words in VERBS.items():
        about = f"{language.said(words)}。" if language.chosen() else f"{words[0].upper()}{words[1:]}."
        verb = verbs.add_parser(name, help=language.said(words), description=about)
        if name == wanted:
            importlib.import_module(f"hotloop.cli.{name.replace('-', '_')}").add_arguments(verb)
            verb.add_argument("--lang", metavar="LANGUAGE", default=argparse.SUPPRESS, help=_LANGUAGE)
            named = verb
            _translate(verb)
    if wanted is not None and named is parser:
        near = difflib.get_close_matches(wanted, VERBS, n=1)
        if wanted.endswith(".py") or (not near and shutil.which(wanted)):
            command = arguments[arguments.index(wanted) :]
            near = [f"hotloop run -- {shlex.join(['python'] * wanted.endswith('.py') + [*command])}"]
        meant = f"; did you mean {near[0]}?" if near else ""
        parser.error(language.said(f"there is no verb {wanted!r}{meant}"))
    _translate(parser)
    return parser, named


def _translate(parser: argparse.ArgumentParser) -> None:
    texts: list[tuple[object, str]] = [(parser, "description"), (parser, "epilog")]
    texts += [(action, "help") for action in parser._actions]
    texts += [(group, name) for group in parser._action_groups for name in ("title", "description")]
    for one, name in texts:
        if text := getattr(one, name):
            setattr(one, name, language.said(text))
