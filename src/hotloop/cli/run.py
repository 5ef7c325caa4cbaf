"""``hotloop run -- COMMAND``: observe, diagnose, report."""

from __future__ import annotations

import argparse
import sys
from typing import TextIO

from hotloop.cli import arguments
from hotloop.cli.output import say, silence, takes_color, terminal_width
from hotloop.errors import UsageError, told
from hotloop.language import marked, said

_USAGE = """hotloop run [--out DIR] [--steps N | --until-sure] [--apply REMEDY]...
                   [--patch FILE] [--evidence] [--perturb] [--throw-away]
                   [--profile] [--memory-every N] [--evaluation FUNCTION]...
                   [--export SPEC]... [--quiet] [--json] -- COMMAND..."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The arguments of ``hotloop run``."""
    arguments.add_out(parser)
    arguments.add_steps(parser)
    words = "end the run cleanly once its verdict no longer changes (one rank)"
    arguments.add_switch(parser, "--until-sure", words)
    arguments.add_change(parser)
    words = (
        "record what is computed, for hotloop verify to compare; "
        "a script that sets no seed gets HOTLOOP_SEED (default 0)"
    )
    arguments.add_switch(parser, "--evidence", words)
    words = (
        "with evidence, and the last bit of all weights moved before the first update: a --baseline for "
        "hotloop verify that shows what training makes of rounding"
    )
    arguments.add_switch(parser, "--perturb", words)
    arguments.add_throw_away(parser)
    arguments.add_switch(parser, "--profile", "add a short torch.profiler window for kernel truth")
    arguments.add_number(parser, "--memory-every", "print a memory line every N steps")
    words = "count the model's calls in FUNCTION or FILE.py:FUNCTION as evaluation; may be repeated"
    arguments.add_many(parser, "--evaluation", "FUNCTION", words)
    words = "metrics while it runs, such as prometheus=:9400 or jsonl=FILE; see hotloop export"
    arguments.add_many(parser, "--export", "SPEC", words)
    arguments.add_switch(parser, "--quiet", "no warnings while the command runs")
    arguments.add_json(parser, "the command's own output on standard error, report.json")
    arguments.add_command(parser, _USAGE)


def main(options: argparse.Namespace) -> int:
    """Returns the command's own exit code."""
    command = arguments.command_of(options.command, _USAGE)
    from hotloop.fix import in_force
    from hotloop.flow.export import Live, export
    from hotloop.flow.observe import new_run_folder, observe, say_why_ended  # --help and --version stay fast
    from hotloop.flow.sure import Sure
    from hotloop.remedy import catalogue

    patch = in_force.read(options.patch, command) if options.patch else None
    env = catalogue.environment(map(catalogue.parse, options.apply))
    if options.evaluation:
        env["HOTLOOP_EVALUATION"] = ",".join(options.evaluation)
    if options.evidence or options.perturb:
        env["HOTLOOP_EVIDENCE"] = "1"
    if options.perturb:
        env["HOTLOOP_PERTURB"] = "1"
    if options.json and "jsonl=-" in options.export:
        raise UsageError(
            "--json and --export jsonl=- both write to standard output", hint="--export jsonl=FILE"
        )
    exports = Live(options.export, say)
    folder = new_run_folder(options.out, command)
    sure = Sure(folder, say) if options.until_sure else None
    outcome = observe(
        command,
        folder,
        steps=options.steps,
        watch_tick=sure.tick if sure is not None else None,
        told=sure.told if sure is not None else (),
        profile=options.profile,
        memory_every=options.memory_every,
        quiet=options.quiet,
        patience=1.0,
        exports=exports,
        env=env | sure.env if sure is not None else env,
        patch=patch,
        stdout=sys.stderr if options.json else None,
        throw_away=options.throw_away,
    )
    say_why_ended(outcome)
    if sure is not None:
        sure.close()
    from hotloop.flow.examine import examine, publish, read  # takes a while: not before the command

    try:
        examination = examine(read(folder))
        report = publish(examination, folder)
    except Exception as error:
        # The command ran and its exit code is what the caller waits for: say what failed and keep both.
        say(f"the command ended, but its report could not be made: {told(error)}")
        if folder.exists():  # the script may have removed it
            words = f"the recording is kept in {folder}; 'hotloop report {folder}' tries again"
            print(marked("hint", words), file=sys.stderr)
        exports.close()
        return outcome.exit_code
    from hotloop.report import json, terminal

    if options.json:
        _put(sys.stdout, json.render(report))
    _put(sys.stderr, "\n" + terminal.render(report, width=terminal_width(), color=takes_color(sys.stderr)))
    for one in report["applied"]:
        print(said(f"applied {one['id']}: {one['status']}"), file=sys.stderr)
    for words in outcome.warnings:
        if words not in examination.recording.warnings:  # the folder could not take it up
            say(words)
    for spec in exports.later:
        try:
            export(examination, spec)
        except Exception as error:  # the report is told, and the exit code is the command's
            say(f"export {spec} failed: {told(error).removeprefix(spec + ': ')}")
            print(marked("hint", f"hotloop export {folder} --to {spec}"), file=sys.stderr)
    exports.close()
    return outcome.exit_code


def _put(stream: TextIO, text: str) -> None:
    """Never raises where nobody can read it: the exit code is the command's."""
    try:
        stream.write(text)
        stream.flush()
    except OSError as error:
        silence(stream)
        say(f"the report could not be printed: {error.strerror}")
