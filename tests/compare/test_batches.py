"""Batches of two runs: what is missing counts, unless nobody had read it."""

from __future__ import annotations

from dataclasses import replace

from tests.compare.planted_runs import run

from hotloop.compare.computed import content
from hotloop.compare.run import Trace, run_of


def test_a_field_that_nothing_read_may_be_left_out() -> None:
    base = run_of(run("none")).trace
    fields = base.loaders[0].leaves
    assert set(fields) == {"x", "y"}
    less = with_first(base, leaves={"x": fields["x"]})
    assert content(base, less).outcome == "not-measured"
    spared = content(with_first(base, unread=frozenset({"y"})), less)
    assert spared.outcome == "equal"
    assert spared.words.endswith("; without y, which nothing read")


def with_first(trace: Trace, **changes: object) -> Trace:
    first, *rest = trace.loaders
    return replace(trace, loaders=(replace(first, **changes), *rest))  # type: ignore[arg-type]
