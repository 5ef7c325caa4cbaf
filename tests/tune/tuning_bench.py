"""A bench without processes: runs whose speed is known, with noise, behind the same two questions."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hotloop.compare.run import Trace
from hotloop.diagnose.evidence import Evidence, evidence_of
from hotloop.diagnose.limits import Limits
from hotloop.findings import Finding
from hotloop.measure.steps import LoaderUse, Steps
from hotloop.phases import PHASES
from hotloop.record.recording import ROW_DTYPE, Process, Recording
from hotloop.remedy.remedy import Effect
from hotloop.tune.candidate import Limits as Allowed
from hotloop.tune.journal import Journal
from hotloop.tune.launching import Launcher, Say
from hotloop.tune.search import Search, Tuned
from hotloop.tune.trial import Bench, Examined, Ran, Request, spell

STEPS = 100


@dataclass
class Scenario:
    """``step_s`` gives the seconds of a step under an arm's spelling; ``fails`` says how one does not run."""

    step_s: Callable[[frozenset[str]], float]
    findings: tuple[Finding, ...] = ()
    noise: float = 0.01
    seed: int = 0
    fails: Mapping[str, Ran] = field(default_factory=dict)
    applied: Mapping[str, str] = field(default_factory=dict)
    draws: tuple[str, ...] = ()
    crowded: bool = False
    files: tuple[Path, ...] = ()
    batch_size: Callable[[frozenset[str]], int] = lambda arm: 8
    host_bytes: Callable[[frozenset[str]], float] = lambda arm: 1e9
    wall_s: float = 0.001
    num_samples: int = 100_000
    num_iterators: int = 1
    iterable: bool = False
    traces: Mapping[str, Trace] = field(default_factory=dict)  # what an arm computes, by its spelling
    launched: list[str] = field(default_factory=list)  # but for proofs
    steps: dict[str, int | None] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._seen: dict[Path, tuple[frozenset[str], float]] = {}

    def bench(self) -> Bench:
        return Bench(run=self.run, examine=self.examine)

    def run(self, request: Request) -> Ran:
        name = spell(request.arm)
        if not request.evidence:
            self.launched.append(name)
            self.steps[name] = request.steps
        if name in self.fails:
            return self.fails[name]
        arm = frozenset(map(str, request.arm))
        self._seen[Path(*request.folder.parts[-2:])] = (
            arm,
            self.step_s(arm) * self._random.lognormvariate(0, self.noise),
        )
        return Ran(exit_code=0, wall_s=self.wall_s, peak_bytes=self.host_bytes(arm))

    def examine(self, folder: Path) -> Examined:
        where = Path(*folder.parts[-2:])
        if where not in self._seen:
            return Examined(evidence=None, findings=(), applied={})
        arm, step_s = self._seen[where]
        ids = {word.partition("=")[0] for word in arm}
        applied = {one: self.applied.get(one, "in effect") for one in ids}
        open_ = tuple(one for one in self.findings if not ids & set(one.remedies))
        return Examined(
            evidence=self._evidence(arm, step_s), findings=open_, applied=applied,
            draws=self.draws, crowded=self.crowded,
            files=self.files,
            trace=self.traces.get(" + ".join(sorted(arm)) or "unmodified"),
        )  # fmt: skip

    def _evidence(self, arm: frozenset[str], step_s: float) -> Evidence:
        start = np.arange(STEPS) * step_s + 1.0
        size = self.batch_size(arm)
        loader = LoaderUse(
            id=1, role="train", where=None,
            settings={"batch_size": size, "num_workers": 0, "iterable": self.iterable},
            dataset={"len": self.num_samples}, num_iterators=self.num_iterators,
            batches_per_epoch=self.num_samples / size,
        )  # fmt: skip
        steps = Steps(
            rank=0, pid=1, start_s=start, end_s=start + step_s, phases=np.zeros((STEPS, len(PHASES))),
            samples=np.full(STEPS, float(size)), steady=np.ones(STEPS, np.bool_), totals={}, span_totals={},
            wall_s=STEPS * step_s + 1.0, span=(1.0, 1.0 + STEPS * step_s),
            loaders=(loader,),
        )  # fmt: skip
        rows = np.zeros(0, ROW_DTYPE)
        process = Process(pid=1, ppid=0, role="main", rank=0, start_ns=0, end_ns=1, rows=rows, notes={})
        recording = Recording(
            folder=None, command=("train",), exit_code=0, wall_s=1.0, start_ns=0, start_unix_s=0.0,
            ranks=(process,), machine={"cores": 2}, system={},
        )  # fmt: skip
        return evidence_of(recording, steps, (steps,), Limits())


def finding(name: str, *remedies: str, cost_s: float = 0.02, **data: Any) -> Finding:
    return Finding(
        id=name, message=name, advice="", evidence=(), cost_s_per_step=cost_s, severity="high",
        remedies=remedies, data=data,
    )  # fmt: skip


def launcher(scenario: Scenario, folder: Path, *, budget_s: float = 600.0, **limits: Any) -> Launcher:
    folder.mkdir(exist_ok=True)
    allow: Effect = limits.pop("allow", "exact")
    return Launcher(
        bench=scenario.bench(),
        journal=Journal(folder, {"command": ["train"]}),
        folder=folder,
        budget_s=budget_s,
        limits=Allowed(allow=allow, **limits),
        say=Say(trying=lambda *_: None, done=lambda _: None),
    )


def search(here: Launcher) -> Tuned:
    with closing(here.journal):
        return Search(launcher=here).run()


def tune(scenario: Scenario, folder: Path, **options: Any) -> Tuned:
    return search(launcher(scenario, folder, **options))
