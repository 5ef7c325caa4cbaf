"""Runs every rule over one run's evidence and puts what they found in the order a person should act on it."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence

from hotloop.diagnose.argument_names import in_framework_names
from hotloop.diagnose.discovery import RuleEntry, rules
from hotloop.diagnose.doubt import crowded
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.weighing import weighed
from hotloop.findings import Finding

_log = logging.getLogger("hotloop.diagnose")


def diagnose(
    evidence: Evidence, warn: Callable[[str], None] | None = None, entries: Sequence[RuleEntry] | None = None
) -> tuple[Finding, ...]:
    """Every finding of the run, in the order of ``weighed``.

    A rule that fails is told to ``warn`` in words (default: the log) and does not stop the others.
    ``entries`` are the rules to run, default all.
    """
    found: list[Finding] = []
    for rule in rules() if entries is None else entries:
        found.extend(_run(rule, evidence, warn or _log.warning))
    steps = evidence.steps
    kept = weighed(found, steps.step_s, evidence.limits, sure=not crowded(evidence))
    return tuple(in_framework_names(one, steps) for one in kept)


def _run(rule: RuleEntry, evidence: Evidence, warn: Callable[[str], None]) -> list[Finding]:
    try:
        return [f for f in rule(evidence) if f.cost_s_per_step > 0 or not rule.costed]
    except Exception as error:  # a broken rule must not hide what the others found
        place = _last_line(error)
        warn(f"the rule {rule.id} failed and was left out ({type(error).__name__}: {error}, {place})")
        return []


def _last_line(error: BaseException) -> str:
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{trace.tb_frame.f_code.co_filename}:{trace.tb_lineno}" if trace is not None else "no traceback"
