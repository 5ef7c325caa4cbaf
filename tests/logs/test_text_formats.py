"""Each framework's lines are read as what they mean: units, counters, data time, where the rate changed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.logs.written import FORMATS, STEPS, a_run, analyzed, key_value

from hotloop.logs.analyze import Analysis, analyze
from hotloop.logs.log import Part


def the_part(analysis: Analysis) -> Part:
    (part,) = analysis.parts
    return part


def ids(analysis: Analysis) -> list[str]:
    return [finding.id for finding in analysis.findings]


@pytest.mark.parametrize("name", FORMATS)
def test_step_and_data_time_are_read_whatever_the_framework(name: str, tmp_path: Path) -> None:
    line, kind = FORMATS[name]
    done = analyzed(tmp_path, (line(o) for o in a_run()))
    part = the_part(done)
    assert part.source.kind == kind
    assert part.source.skipped == 0
    phases = {phase.name: phase for phase in part.phases}
    assert phases["data_wait"].s_per_step == pytest.approx(0.05, rel=0.05)
    assert phases["data_wait"].share == pytest.approx(0.05 / 0.30, rel=0.07)
    assert sum(phase.share for phase in part.phases) == pytest.approx(1.0)
    (finding,) = done.findings
    assert finding.id == "input/data-wait"
    assert finding.where is not None
    assert finding.where.file.endswith("train.log")


@pytest.mark.parametrize("name", FORMATS)
def test_a_change_is_found_at_its_step_with_what_changed_along(name: str, tmp_path: Path) -> None:
    line, _ = FORMATS[name]
    done = analyzed(tmp_path, (line(o) for o in a_run(slow_from=1400)))
    (change,) = the_part(done).changes
    assert change.before / change.after == pytest.approx(4.0, rel=0.05)
    assert 1400 < change.step <= 1480
    assert any("data time goes from" in words for words in change.along)
    assert ("trend/throughput-decay", "high") in [(found.id, found.severity) for found in done.findings]


def test_a_steady_log_has_no_change_and_no_finding(tmp_path: Path) -> None:
    lines = [f"step {i} loss {2 / (i + 1):.4f} time {0.3 + (i * 7 % 13) / 1000:.4f}s\n" for i in range(500)]
    done = analyzed(tmp_path, lines)
    assert the_part(done).changes == ()
    assert done.findings == ()
    assert "Steady at 3.2" in done.verdict


def test_a_few_values_far_apart_are_not_called_steady(tmp_path: Path) -> None:
    rates = (1654, 813, 573, 439)
    lines = [f"Epoch {k + 1}/4 loss 0.3 | Throughput: {rate} samples/s\n" for k, rate in enumerate(rates)]
    assert analyzed(tmp_path, lines).verdict == (
        "439 to 1,654 samples/s in 4 values: too few to tell whether it changes."
    )
    close = (1654, 1700, 1690, 1602)
    lines = [f"Epoch {k + 1}/4 loss 0.3 | Throughput: {rate} samples/s\n" for k, rate in enumerate(close)]
    assert "Steady at" in analyzed(tmp_path, lines).verdict


def test_units_stand_behind_the_number_or_in_the_name(tmp_path: Path) -> None:
    texts = ("dt: 120.5ms", "time_ms=120.5", "step time (ms): 120.5", "iter_time 0.1205 s", "8.2988 it/s")
    for text in texts:
        done = analyzed(tmp_path, [f"step {i} | {text}\n" for i in range(20)])
        assert the_part(done).throughput[0].rate == pytest.approx(1 / 0.1205, rel=1e-3), text


def test_nanogpt_with_a_loss_that_becomes_nan(tmp_path: Path) -> None:
    lines = [
        f"iter {i}: loss {'nan' if i >= 300 else f'{9 / (i + 1):.4f}'}, time 123.45ms, mfu 12.34%\n"
        for i in range(0, 400, 10)
    ]
    done = analyzed(tmp_path, lines)
    assert the_part(done).source.kind == "nanoGPT log"
    finding = done.findings[0]
    assert (finding.id, finding.severity) == ("numerics/non-finite-loss", "high")
    assert finding.data == {"count": 10, "first_step": 300.0, "first_line": 31}
    assert finding.where is not None
    assert finding.where.line == 31


def test_hugging_face_lines_and_their_quoted_numbers(tmp_path: Path) -> None:
    row = {"loss": "0.3456", "grad_norm": "1.2", "learning_rate": "4.9e-05", "epoch": "0.02"}
    done = analyzed(
        tmp_path,
        [f"{row}\n"] * 10
        + ["{'train_runtime': 100.0, 'train_samples_per_second': 12.5, 'train_steps_per_second': 0.77}\n"],
    )
    part = the_part(done)
    assert part.source.kind == "Hugging Face Trainer log"
    assert "loss" in part.source.recognized[0]
    assert "samples/s" in part.source.recognized[0]


def test_evaluation_lines_are_not_training(tmp_path: Path) -> None:
    train = [f"Epoch: [0]  [{i}/100]  eta: 0:01:00  time: 0.3000  data: 0.0010\n" for i in range(100)]
    test = [f"Test:  [{i}/100]  eta: 0:01:00  time: 3.0000  data: 2.9000\n" for i in range(100)]
    done = analyzed(tmp_path, [*train, *test])
    assert done.findings == ()
    assert the_part(done).throughput[0].rate == pytest.approx(1 / 0.3)


def test_thousands_separators(tmp_path: Path) -> None:
    lines = [
        f"[titan] 2024-05-06 12:34:{i:02d},789 - root - INFO - step: {i}  loss: 8.1  tps: 3,212  mfu: 20%\n"
        for i in range(20)
    ]
    done = analyzed(tmp_path, lines)
    assert the_part(done).throughput[0].rate == 3212.0
    assert the_part(done).throughput[0].unit == "tokens/s"


def test_a_printed_configuration_names_the_loader_without_workers(tmp_path: Path) -> None:
    lines = [f"step={i} time=0.5 data_time=0.4\n" for i in range(50)]
    done = analyzed(tmp_path, ["Namespace(batch_size=32, num_workers=0)\n", *lines])
    assert ids(done) == ["input/single-process"]


def test_the_guides_own_lines(tmp_path: Path) -> None:
    lines = ["[After dataset creation] Memory - Process: 12345.6MB (4.8%), System: 48.3/256.0GB (18.9%)\n"]
    for step in range(100, 4000, 100):
        used = 48 + step * 0.05
        lines.append(
            f"[Step {step}] Memory - Process: {12345.6 + step * 10:.1f}MB (6.1%), "
            f"System: {used:.1f}/256.0GB ({used / 2.56:.1f}%)\n"
        )
        lines.append(f"Avg data time: {12 + step % 7 / 10:.1f}ms\n")
    lines += ["  - Size: 374 items\n", "  - Hit Rate: 45.20% (4520 hits / 5480 misses)\n"]
    found = set(ids(analyzed(tmp_path, lines)))
    assert found == {"memory/near-limit", "memory/host-growth", "input/cache-thrash"}


def test_the_guides_eight_stages_with_their_shares(tmp_path: Path) -> None:
    stages = [154.02, 271.33, 150.10, 160.20, 150.30, 170.40, 146.47, 586.90]
    total = sum(stages)
    lines = []
    for _ in range(10):
        lines += [f"  Stage {i + 1}: {ms:.2f}ms ({ms / total:.1%})\n" for i, ms in enumerate(stages)]
    done = analyzed(tmp_path, lines)
    parts = the_part(done).phases
    assert [phase.name for phase in parts][:2] == ["stage 8", "stage 2"]
    assert len(parts) == 8
    assert parts[0].share == pytest.approx(0.328, abs=0.001)
    assert parts[1].share == pytest.approx(0.152, abs=0.001)
    assert ids(done) == ["device/hot-module"]


def test_pauses_are_told_apart_by_the_lines_in_them(tmp_path: Path) -> None:
    now, lines = 0.0, []

    def at(seconds: float) -> str:
        return f"2024-01-01 {int(seconds) // 3600:02d}:{int(seconds) // 60 % 60:02d}:{int(seconds) % 60:02d}"

    for epoch in range(4):
        for step in range(20):
            now += 10
            lines.append(f"{at(now)} epoch {epoch} step {step} loss 0.5\n")
        lines.append(f"{at(now)} Saving checkpoint to out/\n")
        now += 60
        lines.append(f"{at(now)} Running validation\n")
        now += 120
    done = analyzed(tmp_path, lines)
    found = {finding.id: finding for finding in done.findings}
    assert found["cadence/evaluation"].data["count"] == 3
    assert found["cadence/evaluation"].data["seconds"] == pytest.approx(360, rel=0.05)
    assert found["cadence/checkpoint"].data["seconds"] == pytest.approx(180, rel=0.05)


def test_a_long_log_is_thinned_and_says_the_same(tmp_path: Path) -> None:
    every = list(a_run(epochs=2, slow_from=1000))
    lines = [key_value(o) for o in every]
    text = "".join(f"step={i} " + lines[i * len(lines) // 150_000].split(" ", 1)[1] for i in range(150_000))
    part = the_part(analyzed(tmp_path, text))
    (change,) = part.changes
    assert change.before / change.after == pytest.approx(4.0, rel=0.1)
    assert change.step == pytest.approx(75_000, rel=0.02)
    assert part.source.lines == 150_000


def test_one_nan_of_a_long_log_is_found(tmp_path: Path) -> None:
    lines = [f"step={i} loss={'nan' if i == 150_003 else '0.5'} time=0.3\n" for i in range(200_000)]
    assert analyzed(tmp_path, lines).findings[0].data["first_line"] == 150_004


def test_a_slow_rank_among_files(tmp_path: Path) -> None:
    paths = []
    for rank in range(4):
        path = tmp_path / f"train_rank{rank}.log"
        path.write_text("".join(f"step={i} time={0.7 if rank == 2 else 0.5} loss=1\n" for i in range(30)))
        paths.append(path)
    done = analyze(paths)
    assert [(f.id, f.rank) for f in done.findings] == [("distributed/straggler", 2)]


def test_epochs_make_one_axis_of_steps(tmp_path: Path) -> None:
    part = the_part(analyzed(tmp_path, (FORMATS["mmengine"][0](o) for o in a_run(epochs=3))))
    assert part.throughput[-1].step == 3 * STEPS


def test_stages_have_the_shares_that_the_log_states(tmp_path: Path) -> None:
    """spikevid's own form: the three slowest of all stages, in an order that changes."""
    lines = []
    for step in range(0, 200, 20):
        lines.append(f"[Step {step}] Avg data time: 0.0ms\n")
        lines.append(f"[Step {step}] Forward 117.33ms: Flow 19.01ms (16.2%), Stage 1 18.77ms (16.0%), ")
        lines.append("Spike branch 18.19ms (15.5%)\n")
        lines.append(f"[Step {step + 10}] Forward 120.00ms: Stage 1 19.20ms (16.0%), Flow 19.44ms (16.2%), ")
        lines.append("Spike branch 18.60ms (15.5%)\n")
    lines += ["  - Size: 0 items\n", "  - Hit Rate: 0.00% (0 hits / 0 misses)\n"]
    done = analyzed(tmp_path, lines)
    parts = the_part(done).phases
    assert [phase.name for phase in parts] == ["flow", "stage 1", "spike branch"]  # and no «forward 100 %»
    assert [phase.share for phase in parts] == pytest.approx([0.162, 0.160, 0.155])
    assert {phase.of for phase in parts} == {"stated"}
    assert done.findings == ()


def test_a_warning_about_the_machines_memory_is_passed_on(tmp_path: Path) -> None:
    line = "[Step 100] Memory - Process: 15678.9MB (6.1%), System: 125.4/256.0GB (49.0%)\n"
    warning = "⚠️  WARNING: System memory usage is critically high (91.2%)!\n"
    (finding,) = analyzed(tmp_path, [line, warning]).findings
    assert (finding.id, finding.where and finding.where.line) == ("memory/near-limit", 2)
    assert finding.message.startswith("91.2 % of the machine's memory")
    assert ids(analyzed(tmp_path, ["step 1 loss 0.5 GPU memory usage: 97.0%\n"] * 9)) == []


@pytest.mark.parametrize("comma", [False, True])
def test_iostat_tells_how_busy_a_disk_was_since_its_first_report(comma: bool, tmp_path: Path) -> None:
    text = "Linux 5.15.0 (node7) \t03/05/24 \t_x86_64_\t(32 CPU)\n\n"
    for busy in (5, 92, 96):
        text += "avg-cpu:  %user   %nice %system %iowait  %steal   %idle\n"
        text += "          12.20    0.00    3.10   22.01    0.00   62.69\n\n"
        text += "Device            r/s     rkB/s  r_await     w/s  w_await  aqu-sz  %util\n"
        text += "loop0            0.00      0.00     0.00    0.00     0.00    0.00   0.00\n"
        text += f"nvme0n1        812.00  98123.00    14.20   12.00     1.10   11.50  {busy}.00\n\n"
    part = the_part(analyzed(tmp_path, text.replace(".", ",") if comma else text))
    assert part.source.kind == "iostat -x"
    assert part.verdict == "The disk nvme0n1 is busy 94 % of the time."
    assert part.sections[0].lines == (
        "nvme0n1    busy 94 %, reading 14.2 ms a request, writing 1.10 ms a request",
    )


def test_nvidia_smi_dmon_is_a_table_by_gpu(tmp_path: Path) -> None:
    text = "# gpu    pwr  gtemp  mtemp     sm    mem\n# Idx      W      C      C      %      %\n"
    text += "".join(f"    {gpu}    180     61      -     {40 + gpu}     20\n" for gpu in (0, 1) * 5)
    part = the_part(analyzed(tmp_path, text))
    assert part.verdict == "The 2 GPUs compute 40 % to 41 % of the time."
