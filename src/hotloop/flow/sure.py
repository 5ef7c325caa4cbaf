"""``run --until-sure``: end the command once its verdict no longer changes.

A look examines what is recorded so far, in a process of its own and at the lowest priority. The command ends
when as many looks as ``LOOKS`` in a row name the same bottleneck and the same first finding, none in doubt,
and the bottleneck stays the same where blocks of steps are drawn again (moving by chance alone it would
change less often than the look's part of ``ERROR``, which all looks share: Bonferroni with weights
6 / (pi^2 k^2)).
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from math import inf, pi
from pathlib import Path
from time import monotonic
from typing import Any, Final

import numpy as np

from hotloop.diagnose.bottleneck import as_counted, class_costs
from hotloop.diagnose.diagnose import doubt
from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.rollouts import acts
from hotloop.phases import CLASSES, COLUMN
from hotloop.record.publish import write_text_atomic

#: How often at most, over all looks, chance alone makes the bottleneck another one than the longer run's.
ERROR: Final = 0.05
#: Looks in a row that agree.
LOOKS: Final = 3
#: From one look to the next the run grows by this, so that they see other steps.
_GROWTH: Final = 1.3
#: The cost of the first finding is known to this part of it.
_PRECISE: Final = 0.25
_DRAWS: Final = 4000
_BLOCKS: Final = 20


def look(folder: Path) -> dict[str, Any] | None:
    """What a recording says so far; only how many ``ranks`` where there are several, which have to end at the
    same step; None where it is too short.
    """
    from hotloop.flow.examine import examine, read

    found = examine(read(folder))
    evidence = found.evidence
    if len(found.ranks) > 1:
        return {"ranks": len(found.ranks)}
    if evidence is None:
        return None
    steps, limits = evidence.steps, evidence.limits
    if int(steps.steady.sum()) < limits.few_steps or steps.span_s < limits.trend_span_s:
        return None
    first = next((one for one in found.findings if one.severity != "info"), None)
    edges, loader = first.cost_ci95 if first is not None else None, steps.train_loader()
    return {
        "steps": steps.num_steps,
        "passes": loader.num_iterators if loader is not None else None,
        "bottleneck": found.bottleneck,
        "first": first.id if first is not None else "",
        "doubt": doubt(evidence),
        "changes": changes(evidence, found.bottleneck),
        "precise": not edges or not first or edges[1] - edges[0] <= 2 * _PRECISE * first.cost_s_per_step,
    }


def changes(evidence: Evidence, bottleneck: str) -> float:
    """How often another class than ``bottleneck`` is the largest where blocks of the steady steps are drawn
    again; 1 where it is none of a step's.
    """
    names, seconds = _by_block(evidence)
    if bottleneck not in names:
        return 1.0
    drawn = np.random.default_rng(0).integers(len(seconds), size=(_DRAWS, len(seconds)))
    largest = seconds[drawn].sum(axis=1).argmax(axis=1)
    return float((largest != names.index(bottleneck)).mean())


def _by_block(evidence: Evidence) -> tuple[list[str], np.ndarray[Any, Any]]:
    """[blocks, classes] seconds that each class costs, as ``class_costs`` weighs them over the whole."""
    steps = as_counted(evidence)
    whole = class_costs(steps, evidence.first_pass, acts(evidence))
    names = list(whole)
    each = np.stack(
        [steps.phases[:, [COLUMN[p] for p in CLASSES[name]]].sum(axis=1) for name in names], axis=1
    )
    weights = [
        whole[name] / total if total > 0 else 0.0 for name, total in zip(names, each.sum(axis=0), strict=True)
    ]
    blocks = np.array_split(each[steps.steady], min(_BLOCKS, max(1, int(steps.steady.sum()))))
    return names, np.array([block.sum(axis=0) * weights for block in blocks])


class Sure:
    """``tick`` is called once or twice a second while a command runs that was given ``env``.

    It is not sure before so many ``passes`` over the training data have begun: what comes once an epoch shows
    late.
    """

    def __init__(self, folder: Path, say: Callable[[str], None], passes: int = 0) -> None:
        self._folder, self._say, self._said, self._passes = folder, say, False, passes
        self._file = folder / "until-sure"
        self._looks: list[dict[str, Any]] = []
        self._child: subprocess.Popen[str] | None = None
        self._begun_s = self._next_s = monotonic()
        self._number = 0
        self.why = ""
        self.told: list[str] = []  # why the run goes on

    @property
    def env(self) -> dict[str, str]:
        """Tells the command where it is said that it may end."""
        return {"HOTLOOP_UNTIL": str(self._file)}

    def tick(self) -> None:
        """Take the answer of a look, or begin one."""
        if self.why:
            return
        if self._child is not None:
            if self._child.poll() is not None:
                self._answered(*self._child.communicate())
        elif monotonic() >= self._next_s:
            # -P: a json.py of the user's in the working folder is not json.
            words = [sys.executable, "-P", "-c", "from hotloop.flow.sure import main; main()"]
            pipe = subprocess.PIPE
            self._child = subprocess.Popen(
                [*words, str(self._folder)], stdin=subprocess.DEVNULL, stdout=pipe, stderr=pipe, text=True
            )

    def close(self) -> None:
        """The command has ended: no look is waited for."""
        if self._child is not None:
            self._child.kill()
            self._child.communicate()
        self._file.unlink(missing_ok=True)

    def _answered(self, text: str, error: str) -> None:
        self._child, spent_s = None, monotonic() - self._begun_s
        self._next_s = self._begun_s + max(spent_s + 1.0, _GROWTH * spent_s)
        try:
            answer = json.loads(text)
        except ValueError:  # the next may not fail
            self._once(f"cannot look: {(error.strip() or 'it was killed').splitlines()[-1]}")
            return
        if answer is not None and "ranks" in answer:
            self._once(f"does not end a run of {answer['ranks']} ranks: they have to end at the same step")
            self._next_s = inf
            return
        self._looks = [*self._looks, answer][-LOOKS:] if answer is not None else []
        self._number += answer is not None
        self.why = agreed(self._looks, self._number, self._passes)
        self.told[:] = [f"--until-sure went on: {one['doubt']}" for one in self._looks[-1:] if one["doubt"]]
        if self.why:
            write_text_atomic(self._file, self.why)

    def _once(self, words: str) -> None:
        if not self._said:
            self._said = True
            self._say(f"--until-sure {words}")


def agreed(looks: list[dict[str, Any]], number: int, passes: int = 0) -> str:
    """Why it is sure after the last of these looks, the ``number``-th of the run; "" while it is not, or has
    not begun so many passes over the data.
    """
    if len(looks) < LOOKS or len({(one["bottleneck"], one["first"]) for one in looks}) > 1:
        return ""
    last = looks[-1]
    if any(one["doubt"] for one in looks):  # the verdict says that it is not sure
        return ""
    if last["passes"] is not None and last["passes"] < passes:
        return ""
    if last["changes"] > ERROR * 6 / (pi * number) ** 2 or not last["precise"]:
        return ""
    first = f"first finding {last['first']}" if last["first"] else "no finding"
    at = ", ".join(f"{one['steps']:,}" for one in looks)
    return (
        f"bottleneck {last['bottleneck']} and {first} were the same at steps {at} (block bootstrap, error "
        f"rate {100 * ERROR:.0f} % over all looks); what comes only later was not seen"
    )


def main() -> None:
    """A look, as JSON on standard output."""
    import os

    os.nice(19)
    print(json.dumps(look(Path(sys.argv[1]))))
