"""``hotloop.load(RUN)``: a finished run for a notebook or a program of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from os import PathLike
from pathlib import Path
from typing import Any

import numpy.typing as npt

from hotloop.findings import Finding
from hotloop.flow.examine import Examination, build_report, examine, read
from hotloop.report import html, terminal


@dataclass(frozen=True, kw_only=True)
class Run:
    """A run, measured and diagnosed. A notebook shows its page, ``print`` its report."""

    examination: Examination
    #: The dictionary of ``report.json``.
    report: Mapping[str, Any]

    def __repr__(self) -> str:
        return f"Run({str(self.examination.recording.folder)!r}: {self.verdict})"

    @property
    def verdict(self) -> str:
        """The one sentence on what holds the run back."""
        return self.examination.verdict

    @property
    def bottleneck(self) -> str:
        """The class with the largest cost, as ``bottleneck`` in ``report.json`` has it."""
        return self.examination.bottleneck

    @property
    def findings(self) -> tuple[Finding, ...]:
        """Named causes, the dearest first."""
        return self.examination.findings

    @property
    def steps(self) -> dict[str, npt.NDArray[Any]]:
        """Columns [num_steps] of the rank that the verdict is about: ``start_s``, ``end_s``, ``samples``,
        ``steady``, and the seconds of every phase; empty where nothing trained.
        """
        lead = self.examination.lead
        return dict(lead.columns) if lead else {}

    def frame(self) -> Any:
        """``steps`` as a ``pandas.DataFrame``, a row per step. Raises ImportError without pandas."""
        import pandas  # type: ignore[import-untyped,unused-ignore]

        return pandas.DataFrame(self.steps)

    def __str__(self) -> str:
        return terminal.render(dict(self.report), width=80, color=False)

    def _repr_html_(self) -> str:
        page = escape(html.render(dict(self.report)))
        return f'<iframe srcdoc="{page}" style="width:100%;height:60em;border:0"></iframe>'


def load(run: str | PathLike[str]) -> Run:
    """Read a run's folder, or one ``.sqlite`` file of it. Raises UsageError where it holds no recording."""
    examination = examine(read(Path(run)))
    return Run(examination=examination, report=build_report(examination))
