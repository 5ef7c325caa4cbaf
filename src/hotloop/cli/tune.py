"""``hotloop tune -- COMMAND``: try what the diagnosis asks for, keep what is faster, prove by how much."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from typing import TYPE_CHECKING

from hotloop import language
from hotloop.cli import arguments
from hotloop.cli.output import Bar, folded, say
from hotloop.errors import UsageError
from hotloop.units import duration, rate

if TYPE_CHECKING:
    from hotloop.tune.trial import Trial

_USAGE = """hotloop tune [--budget 10m] [--allow exact|numeric|semantic]
                    [--memory SIZE] [--sweep batch-size] [--out DIR]
                    [--in-place] [--ray] [--json] -- COMMAND..."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop tune``."""
    words = "folder of the trials; one that was ended there goes on"
    arguments.add_path(parser, "--out", words, "DIR")
    arguments.add_time(parser, "--budget", 600.0, "for all (default: 10m)")
    arguments.add_allow(parser, "what a remedy may alter")
    parser.add_argument(
        "--sweep", choices=("batch-size",), help="throughput and memory against batch size, instead"
    )
    parser.add_argument("--memory", metavar="SIZE", help="host memory a trial may use: 24GiB")
    arguments.add_switch(parser, "--in-place", "let trials write where the command writes")
    arguments.add_switch(parser, "--ray", "launch on the nodes of a Ray cluster (hotloop[ray])")
    arguments.add_json(parser, "tune.json")
    arguments.add_command(parser, _USAGE)


def main(options: argparse.Namespace) -> int:
    """Returns 0: that nothing is faster is an answer."""
    command = arguments.command_of(options.command, _USAGE)
    from hotloop.flow.tune import Tuning, drop_if_empty, tune, tuning_folder
    from hotloop.tune.candidate import Limits
    from hotloop.tune.launching import Say, first_s

    if options.ray and options.sweep:
        raise UsageError("--sweep compares launches of one machine", hint="leave --ray out")
    most_bytes = arguments.size(options.memory)
    folder, made = tuning_folder(options.out, command)
    first, whole = duration(first_s(options.budget)), duration(options.budget)
    words = (
        f"hotloop: tuning for up to {whole}: the unmodified run for {first}, or until its verdict stands, "
        "then launches in turns, a line for each"
    )
    print(folded(words), file=sys.stderr, flush=True)
    progress = _Progress(options.budget)
    asked = Tuning(
        command=command,
        limits=Limits(allow=options.allow, most_bytes=most_bytes),
        budget_s=options.budget,
        sweep=options.sweep,
        in_place=options.in_place,
        say=Say(trying=progress.trying, done=progress.done),
        ray=options.ray,
    )
    if options.in_place:
        say("--in-place: every trial writes where the command writes")
    try:
        answer = tune(asked, folder)
    except BaseException as error:
        if made:
            drop_if_empty(folder)
        if isinstance(error, KeyboardInterrupt) and folder.exists():
            again = ["hotloop", "tune", "--out", str(folder), *sys.argv[2:]]
            say(f"this goes on where it was:\n    {shlex.join(again)}")
        raise
    finally:
        progress.close()
    told = json.dumps(answer.document, indent=2) + "\n" if options.json else language.plain(answer.words)
    sys.stdout.write(told)
    print(f"tune: {folder / 'tune.json'}", file=sys.stderr)
    return 0


class _Progress(Bar):
    """A bar on a terminal; elsewhere a line for each trial."""

    def __init__(self, budget_s: float) -> None:
        super().__init__("")
        self._budget_s = budget_s

    def trying(self, what: str, share: float) -> None:
        """Before a launch: what is tried, and the share of the budget that is spent."""
        spent = f"{duration(share * self._budget_s)} of {duration(self._budget_s)}"
        self.show(share, f"{spent}, trying {what}"[:44])

    def done(self, trial: Trial) -> None:
        """After a launch."""
        self.line(folded(f"hotloop: {_words_of(trial)}"))


def _words_of(trial: Trial) -> str:
    """A trial in words."""
    what = " + ".join(trial.remedies) or language.said("unmodified")
    if not trial.timed and not trial.why:
        return f"{what}: run for its results, whose recording takes time of its own"
    told = trial.why or f"{duration(trial.s_per_step or 0.0)} per step"
    if trial.samples_per_s:
        told += f", {rate(trial.samples_per_s)} samples/s"
    return f"{what}: {language.said(told)}"
