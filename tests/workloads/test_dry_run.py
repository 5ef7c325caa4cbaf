"""``train.py --dry-run`` of every system: the model counted, one update, nothing left behind."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from tests.running import python, succeeded
from tests.workloads.scripts import ROOT

pytest.importorskip("torch")
pytest.importorskip("PIL")
pytest.importorskip("yaml")
pytest.importorskip("h5py")
pytest.importorskip("sklearn")

WORKLOADS = ROOT / "workloads"
#: system -> parameters at full size
FULL = {"tcn_state": 896_030, "landmarks": 3.5e6, "bev": 29.56e6, "spikevid": 8.32e6, "heads": 0.6e6}


def dry_run(system: str, *flags: str | Path) -> dict[str, str]:
    """The summary, row by row."""
    done = succeeded(python(WORKLOADS / system / "train.py", "--dry-run", *flags, folder=WORKLOADS))
    title, *rows = done.stdout[done.stdout.index("dry run: ") :].splitlines()
    assert title.startswith(f"dry run: {system}, ")
    dead = re.findall(r"^dead in \S+ (\S+) ", done.stdout, re.MULTILINE)
    assert set(dead) <= {"TRAIN.AMP_OPT_LEVEL"} or "as_found" in flags  # not what the dry run itself set
    return {row[2:15].strip(): row[16:] for row in rows}


@pytest.mark.parametrize(
    ("system", "variant"),
    [("landmarks", "cured"), pytest.param("spikevid", "guide", marks=pytest.mark.nightly)],
)
def test_a_dry_run_counts_and_makes_one_update(system: str, variant: str, tmp_path: Path) -> None:
    out = tmp_path / "out"
    said = dry_run(system, "--variant", variant, "--scale", "tiny", "--out", out)
    assert list(said) == ["parameters", "optimizer", "one batch", "host", "first update"]
    number, mib = re.fullmatch(r"([\d,]+): (\S+) MiB, gradients as much", said["parameters"]).groups()  # type: ignore[union-attr]
    assert float(mib) == pytest.approx(int(number.replace(",", "")) * 4 / 2**20, abs=0.06)
    assert said["optimizer"].startswith(f"AdamW: {2 * int(number.replace(',', '')) * 4 / 2**20:,.1f} MiB")
    assert said["first update"].endswith(" on cpu")
    assert not out.exists()  # it trains in a folder that is gone


@pytest.mark.nightly
@pytest.mark.parametrize("system", FULL)
@pytest.mark.parametrize("variant", ["as_found", "cured"])
def test_a_dry_run_at_full_size_ends_within_a_minute_or_two(system: str, variant: str) -> None:
    said = dry_run(system, "--variant", variant, "--scale", "full")
    number = int(said["parameters"].partition(":")[0].replace(",", ""))
    assert number == pytest.approx(FULL[system], rel=0.1)
