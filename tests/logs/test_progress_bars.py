"""Bars that tqdm itself wrote, and those of frameworks built on it."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from tests.logs.written import analyzed
from tqdm import tqdm


def bar(count: int, total: int, elapsed: float, desc: str = "", postfix: str = "") -> str:
    """An update as tqdm formats it, at a time of our choosing."""
    prefix = f"{desc}: " if desc else ""
    return "\r" + tqdm.format_meter(count, total, elapsed, prefix=prefix, postfix=postfix, ncols=100)


def test_a_bar_that_really_ran(tmp_path: Path) -> None:
    out = io.StringIO()
    for _ in tqdm(range(60), file=out, mininterval=0, miniters=1, desc="Epoch 0"):
        pass
    (part,) = analyzed(tmp_path, out.getvalue()).parts
    assert part.source.kind == "tqdm log"
    assert part.throughput[-1].unit == "steps/s"
    assert part.throughput[-1].step == 60


def test_the_rate_comes_from_counts_and_clock_over_epochs(tmp_path: Path) -> None:
    text = ""
    for epoch in range(3):
        speed = 10.0 if epoch < 2 else 4.0
        text += "".join(bar(n, 1000, n / speed, f"Epoch {epoch}") for n in range(0, 1001, 5)) + "\n"
    (part,) = analyzed(tmp_path, text).parts
    (change,) = part.changes
    assert (change.before, change.after) == (pytest.approx(10, rel=0.02), pytest.approx(4, rel=0.02))
    assert change.step == pytest.approx(2000, abs=60)


def test_seconds_per_step_are_a_rate_too(tmp_path: Path) -> None:
    (part,) = analyzed(tmp_path, "".join(bar(n, 8, n * 0.5) for n in range(1, 9))).parts
    assert part.throughput[-1].rate == pytest.approx(2.0, rel=0.02)
    (slow,) = analyzed(tmp_path, "".join(bar(n, 8, n * 1.4) for n in range(1, 6))).parts
    assert slow.throughput[-1].rate == pytest.approx(1 / 1.4, rel=0.02)


def test_validation_bars_are_evaluation(tmp_path: Path) -> None:
    text = ""
    for epoch in range(2):
        text += "".join(bar(n, 100, n / 2, f"Epoch {epoch}") for n in range(0, 101, 2)) + "\n"
        text += "".join(bar(n, 20, n * 1.0, "Validation") for n in range(21)) + "\n"
    (part,) = analyzed(tmp_path, text).parts
    assert [finding.id for finding in part.findings] == ["cadence/evaluation"]
    assert part.findings[0].data == {"count": 2, "seconds": 40.0}
    assert part.throughput[-1].rate == pytest.approx(2.0, rel=0.05)


def test_lightning_and_its_loss(tmp_path: Path) -> None:
    text = "".join(
        bar(n, 500, n / 5, "Epoch 3", f"v_num=0, train_loss={'nan' if n > 400 else 0.5}")
        for n in range(0, 501, 5)
    )
    (part,) = analyzed(tmp_path, text).parts
    assert part.source.kind == "Lightning log"
    assert part.findings[0].id == "numerics/non-finite-loss"
    assert part.findings[0].data["first_step"] == 405


def test_ultralytics_epochs_and_validation(tmp_path: Path) -> None:
    text = "      Epoch    GPU_mem   box_loss   cls_loss   dfl_loss  Instances       Size\n"
    for epoch in range(1, 4):
        for n in range(0, 51, 5):
            text += f"\r      {epoch}/100      2.51G      1.234      2.345      1.456         12        640: "
            text += bar(n, 50, n / 5)[1:]
        text += "\n                 Class     Images  Instances      Box(P          R      mAP50  mAP50-95): "
        text += bar(10, 10, 8.0)[1:] + "\n"
    (part,) = analyzed(tmp_path, text).parts
    assert part.source.kind == "Ultralytics log"
    assert part.throughput[-1].rate == pytest.approx(5.0, rel=0.05)
    assert part.findings[0].data == {"count": 3, "seconds": 24.0}


def test_hugging_face_prints_between_its_bars(tmp_path: Path) -> None:
    text = ""
    for n in range(1, 1001):
        text += bar(n, 1000, n / 2)
        if n % 100 == 0:
            row = {"loss": round(3 / n, 4), "grad_norm": 1.2, "learning_rate": 5e-05, "epoch": n / 500}
            text += f"\n{row}\n"
    (part,) = analyzed(tmp_path, text).parts
    assert part.source.kind == "Hugging Face Trainer log"
    assert part.throughput[-1].rate == pytest.approx(2.0, rel=0.05)
    assert part.findings == ()


def test_lines_that_name_an_evaluation_tell_its_steps_and_the_bar_its_time(tmp_path: Path) -> None:
    text, seconds = "", 0
    for n in range(0, 6100, 100):
        text += bar(n, 6000, seconds, "Training progress")
        seconds += 5
        if n and n % 1000 == 0:
            seconds += 40
            text += f"\n[ITER {n}] Evaluating val: L1 0.0709 PSNR 18.03\n"
            text += f"[ITER {n}] Evaluating test: L1 0.0668 PSNR 18.48\n"
    (part,) = analyzed(tmp_path, text).parts
    assert "6 evaluations, every 1,000 steps" in part.source.recognized[0]
    (finding,) = (one for one in part.findings if one.id == "cadence/evaluation")
    assert finding.data == {"count": 5, "seconds": 200.0}  # nothing follows the last


def test_bars_in_a_bar_make_no_pauses(tmp_path: Path) -> None:
    text = ""
    for epoch in range(5):
        text += bar(epoch, 5, epoch * 100, "Epochs") + "\n"
        text += "".join(bar(n, 100, n, "train") for n in range(0, 101, 5)) + "\n"
    (part,) = analyzed(tmp_path, text).parts
    assert part.sections == ()
    assert part.findings == ()
