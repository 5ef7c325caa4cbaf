"""``verify`` on real runs: what is the same is found the same, what was planted is found."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.compare.planted_runs import ROOT, asked_once, command, hotloop, run  # noqa: F401 - a fixture

from hotloop.compare import expectation, words
from hotloop.compare.checklist import checklist, host_memory_stable
from hotloop.compare.run import Run, measured, run_of
from hotloop.compare.speed import per_s, speed
from hotloop.compare.verdict import Verdict, judge
from hotloop.errors import UsageError
from hotloop.measure.steps import span_s
from hotloop.record.recording import Note


def verify(
    base: Path,
    candidate: Path,
    *,
    expect: dict[str, Any] | None = None,
    baselines: Sequence[Path] = (),
    repeats: Sequence[tuple[Path, Path]] = (),
    **more: Any,
) -> Verdict:
    asked = expectation.parse(expect) if expect is not None else None
    return judge(
        run_of(base),
        run_of(candidate),
        asked=asked,
        baselines=[run_of(path) for path in baselines],
        repeats=[(run_of(a), run_of(b)) for a, b in repeats],
        **more,
    )


def status(verdict: Verdict, name: str) -> str:
    return next(item.status for item in verdict.items if item.name == name)


def failed(verdict: Verdict) -> set[str]:
    return {item.name for item in verdict.items if item.status == "failed"}


def test_a_second_run_is_exact() -> None:
    verdict = verify(run("none"), run("none", number=1), effect="exact")
    assert verdict.parity == "exact"
    assert verdict.passed, verdict
    assert all(
        status(verdict, name) == "passed" for name in ("order", "content", "loss", "parameters", "checkpoint")
    )
    assert verdict.speed.ratio is not None and verdict.speed.ci95 is not None
    assert verdict.speed.ci95[0] < verdict.speed.ratio < verdict.speed.ci95[1]


def test_fewer_checkpoints_are_not_the_same() -> None:
    one = run_of(run("none"))
    (saved,) = one.trace.checkpoints
    more = replace(one, traces=(replace(one.trace, checkpoints=({**saved, "path": "first.pt"}, saved)),))
    assert failed(judge(more, one, effect="numeric")) == {"checkpoint"}
    assert judge(more, one, effect="semantic").passed
    elsewhere = replace(one, traces=(replace(one.trace, checkpoints=()),))  # in a file of another kind
    assert judge(one, elsewhere, effect="numeric").passed
    never = replace(elsewhere, ranks=tuple(replace(rank, checkpoints=()) for rank in one.ranks))
    assert failed(judge(one, never, effect="numeric")) == {"checkpoint"}


def test_a_perturbed_run_of_other_batches_is_named() -> None:
    base, other = run_of(run("none")), run_of(run("shuffle"))
    moved = replace(other, label="moved", traces=(replace(other.trace, perturbed=True),))
    apart = replace(
        base, traces=(replace(base.trace, losses=base.trace.losses + 1, exact=base.trace.exact + 1),)
    )
    assert any("--perturb" in words for words in judge(base, apart).words)
    free = judge(base, apart, effect="semantic")  # nothing holds its losses: they differ, which is no pass
    assert free.passed and status(free, "loss") == "not-measured"
    assert any(
        words.startswith("moved says nothing") for words in judge(base, apart, baselines=[moved]).words
    )


@pytest.mark.nightly
def test_the_last_base_of_several_is_perturbed_where_rounding_is_allowed() -> None:
    words = ("--repeats", "2", "--apply", "fused-optimizer", "--out", "twice", "--", *command("none"))
    done = hotloop("verify", "--effect", "numeric", *words)
    assert done.returncode == 0, done.stdout
    bases = [run_of(ROOT / "twice" / f"base-{number}") for number in (1, 2)]
    assert [base.trace.perturbed for base in bases] == [False, True]
    with pytest.raises(UsageError, match="--perturb"):
        judge(bases[1], bases[0])


def test_lower_precision_is_numeric_and_not_exact() -> None:
    assert verify(run("none"), run("bf16"), effect="numeric").parity == "within-noise"
    verdict = verify(run("none"), run("bf16"), effect="numeric")
    assert verdict.passed
    assert status(verdict, "checkpoint") == "passed"
    assert failed(verify(run("none"), run("bf16"), effect="exact")) == {"loss", "parameters"}


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        ("shuffle", {"order", "content"}),
        pytest.param("duplicates", {"content", "loss"}, marks=pytest.mark.nightly),
        ("labels", {"content", "loss"}),
        pytest.param("ring", {"loss"}, marks=pytest.mark.nightly),
        pytest.param("lr", {"loss"}, marks=pytest.mark.nightly),
        ("lr2", {"loss"}),  # 2 % more learning rate: more than rounding at the same precision
        ("bn", {"loss"}),
    ],
)
def test_planted_differences_are_found(kind: str, wrong: set[str]) -> None:
    verdict = verify(run("none"), run(kind), effect="numeric")
    assert verdict.parity == "differs"
    assert failed(verdict) == wrong
    assert not verdict.passed


def test_only_the_labels_differ_where_only_they_are_wrong() -> None:
    verdict = verify(run("none"), run("labels"), effect="numeric")
    said = next(item.words for item in verdict.items if item.name == "content")
    assert "'y' differs" in said and "'x'" not in said


def with_workers(side: Run, number: int) -> Run:
    ranks = tuple(
        replace(
            steps,
            settings=tuple(
                replace(one, in_effect=number) if one.name == "num_workers" else one for one in steps.settings
            ),
        )
        for steps in side.ranks
    )
    return replace(side, ranks=ranks)


def test_other_values_by_other_workers_are_said_to_be_drawn_perhaps() -> None:
    base, other = run_of(run("none")), run_of(run("labels"))
    assert not any("other workers draw others" in words for words in judge(base, other).words)
    assert any("made by 0 and 2 workers" in words for words in judge(base, with_workers(other, 2)).words)


@pytest.mark.parametrize(("seed", "told"), [(0, False), (7, True)])
def test_other_batches_under_another_seed_are_said_to_come_of_it_perhaps(seed: int, told: bool) -> None:
    base, other = run_of(run("none")), run_of(run("shuffle"))
    traces = (replace(other.trace, seed=seed), *other.traces[1:])
    verdict = judge(base, replace(other, traces=traces))
    assert any("began under other seeds" in words for words in verdict.words) is told
    assert next(item.status for item in verdict.items if item.name == "order") == (
        "not-measured" if told else "failed"
    )
    assert verdict.parity == ("not-measured" if told else "differs")
    assert not any("under other seeds" in one for one in judge(base, other, baselines=[base]).words)
    again = judge(base, other, repeats=[(other, base)])  # a base that sees other batches each time
    assert not failed(again) and "\ncannot tell: parity is not-measured" in words.render(again)


def test_a_loss_that_is_not_finite_fails() -> None:
    verdict = verify(run("none"), run("nan"), effect="numeric")
    assert failed(verdict) == {"loss", "finite_loss"}
    assert "nan at loss 36" in next(item.words for item in verdict.items if item.name == "finite_loss")


def test_a_checkpoint_with_other_names_would_not_load() -> None:
    verdict = verify(run("none"), run("prefix"), effect="exact")
    assert verdict.parity == "exact"
    assert failed(verdict) == {"checkpoint"}
    assert "_orig_mod." in next(item.words for item in verdict.items if item.name == "checkpoint")


def test_an_unfinished_candidate_is_compared_as_far_as_it_came_and_fails() -> None:
    verdict = verify(run("none"), run("crash"), effect="exact")
    assert failed(verdict) == {"completed"}
    said = {item.name: item.words for item in verdict.items}
    assert "ValueError: planted" in said["completed"]
    assert "32 losses bit-equal" in said["loss"]


def test_fewer_steps_fail_unless_they_were_asked_for() -> None:
    verdict = verify(run("none"), run("short"), effect="numeric")
    said = {item.name: item.words for item in verdict.items}
    assert (verdict.parity, failed(verdict)) == ("differs", {"completed", "parameters"})
    assert "64 and 32 steps" in said["completed"]
    assert "64 and 32 updates" in said["parameters"]
    assert any("commands differ" in word for word in verdict.words)
    short = run_of(run("short"))
    asked = noted(short, "exit", {**short.process.last("exit"), "reason": "steps"})
    verdict = judge(run_of(run("none")), asked, effect="numeric")
    assert (verdict.parity, failed(verdict)) == ("within-noise", set())
    assert "the first 32 are compared, --steps ended the candidate" in next(
        item.words for item in verdict.items if item.name == "completed"
    )
    assert judge(run_of(run("none")), asked, effect="exact").parity != "exact"


def noted(one: Run, kind: str, note: Note) -> Run:
    """The run with another last note of a kind."""
    process = replace(one.process, notes={**one.process.notes, kind: [note]})
    return measured(replace(one.recording, ranks=(process,)), one.label)


def traced(one: Run, **changes: object) -> Run:
    """The run with another trace of its only rank."""
    return replace(one, traces=(replace(one.trace, **changes),))  # type: ignore[arg-type]


def test_a_missing_update_is_a_difference_though_all_losses_are_equal() -> None:
    base = run_of(run("none"))
    verdict = judge(base, traced(base, updates=63), effect="numeric")
    assert (verdict.parity, failed(verdict)) == ("differs", {"parameters"})
    scaled = traced(base, updates=63, precision=("autocast float16",))  # a scaler leaves updates out
    assert judge(base, scaled, effect="numeric").parity == "within-noise"


def test_nothing_is_exact_without_the_parameters() -> None:
    base = run_of(run("none"))
    ((name, note),) = base.trace.trained.items()
    unread = {name: {**note, "items": [[one[0], None, *one[2:]] for one in note["items"]]}}
    for trained in ({}, unread, {name: note, "Other": note}):
        one = traced(base, trained=trained)
        verdict = judge(traced(base, trained=unread) if trained is unread else base, one, effect="exact")
        assert (verdict.parity, status(verdict, "parameters")) == ("within-noise", "not-measured")
        assert not verdict.passed


@pytest.mark.parametrize("turned", [False, True])
def test_ranks_of_one_side_only_fail(turned: bool) -> None:
    one = run_of(run("none"))
    second = replace(one.trace, rank=1), replace(one.ranks[0], rank=1)
    two = replace(one, traces=(one.trace, second[0]), ranks=(one.ranks[0], second[1]))
    verdict = judge(*((two, one) if turned else (one, two)), effect="numeric")
    assert (verdict.parity, failed(verdict)) == ("differs", {"ranks"})


def test_other_samples_fail_where_all_baselines_see_the_same() -> None:
    base, again = run_of(run("none")), run_of(run("shuffle"))
    assert "order" not in failed(judge(base, again, baselines=[again], effect="numeric"))
    (loader,) = again.trace.loaders
    other = traced(again, loaders=(replace(loader, sums=loader.sums + np.uint32(1)),))
    verdict = judge(base, other, baselines=[again], effect="numeric")
    assert (verdict.parity, failed(verdict)) == ("differs", {"order"})


def test_a_run_without_evidence_says_how_to_get_it() -> None:
    with pytest.raises(UsageError) as caught:
        verify(run("none"), run("none", evidence=False), effect="exact")
    assert caught.value.hint is not None and "hotloop run --evidence" in caught.value.hint


def test_a_checklist_decides_with_named_limits(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("psnr 20\n")
    asked = {
        "data_wait": "< 1000 s",
        "gpu_utilization": "> 90%",
        "loss_converges": True,
        "metrics": {"psnr": ">= 30"},
    }
    verdict = judge(
        run_of(run("none")), run_of(run("none", number=1)), asked=expectation.parse(asked), log=log
    )
    assert failed(verdict) == {"metrics.psnr"}
    assert status(verdict, "data_wait") == status(verdict, "loss_converges") == "passed"
    assert status(verdict, "gpu_utilization") == "not-measured"


def test_a_speedup_is_not_told_from_others_on_the_machine() -> None:
    quick = replace(speed([run_of(run("none"))], [run_of(run("none", number=1))]), ratio=3.0, ci95=(2.0, 4.0))
    asked = expectation.parse({"speedup": ">= 1.2x"})
    for doubt, told in ((False, "passed"), (True, "not-measured")):
        pace = replace(quick, doubt=doubt)
        (item,) = checklist(asked, run_of(run("none")), pace)
        assert item.status == told


def busy(run: Run, cpu_ratio: float) -> Run:
    """The run on a machine of which this part was busy all the time."""
    count = 200
    at = np.linspace(0.0, run.recording.wall_s, count)
    system = {"t_s": at, "cpu_ratio": np.full(count, cpu_ratio)}
    return replace(run, recording=replace(run.recording, system=system, process_system={}))


def test_the_guides_bands_are_looked_up_in_what_was_sampled() -> None:
    one = run_of(run("none"))
    at = np.linspace(*span_s(one.recording, one.process, one.lead), 50)
    gpu = {
        "util_ratio": 0.9,
        "memory_bytes": 60e9,
        "power_w": 100.0,
        "power_limit_w": 575.0,
        "temperature_c": 64.0,
    }
    system = {"t_s": at, **{f"gpu0_{name}": np.full(50, value) for name, value in gpu.items()}}
    sampled = {one.process.pid: {"t_s": at, "cpu_ratio": np.full(50, 0.6)}}
    machine = {**one.recording.machine, "gpus": [{"index": 0, "memory_bytes": 77e9}]}
    recording = replace(one.recording, system=system, process_system=sampled, machine=machine)
    bands = expectation.read(Path(__file__).resolve().parents[2] / "docs" / "guides" / "verify-bands.toml")
    pace = speed([one], [run_of(run("none", number=1))])
    told = {
        item.name: (item.status, item.words)
        for item in checklist(bands, replace(one, recording=recording), pace)
    }
    assert {name for name, (status, _) in told.items() if status == "not-measured"} == {"cpu", "cpu_worker"}
    assert {name for name, (status, _) in told.items() if status == "failed"} == {"gpu_power"}
    assert "17 % of its limit" in told["gpu_power"][1]  # S2-14: 100 of 575 W


@pytest.mark.parametrize(
    ("rise", "told"), [((1.0, 1.0), "passed"), ((1.0, 2.0), "failed"), ((1.0, 2.0, 2.0, 2.0), "not-measured")]
)
def test_memory_that_comes_to_rest_is_no_leak(rise: tuple[float, ...], told: str) -> None:
    """The last case: a cache that fills in what is mostly the first half of a short run."""
    one = run_of(run("none"))
    at = np.linspace(*span_s(one.recording, one.process, one.lead), 400)
    part = np.linspace(0.0, 1.0, len(at))
    rss = 2**30 * np.interp(part, np.array([0.0, 1.0] if len(rise) == 2 else [0.0, 0.7, 0.8, 1.0]), rise)
    sampled = {one.process.pid: {"t_s": at, "rss_bytes": rss}}
    item = host_memory_stable(replace(one, recording=replace(one.recording, process_system=sampled)))
    assert item.status == told


def test_a_rate_is_not_told_from_others_on_the_machine() -> None:
    one = run_of(run("none"))
    pace = speed([one], [run_of(run("none", number=1))])
    missed = {"samples_per_s": ">= 1e9", "steps_per_s": ">= 1e9", "data_wait": "< 0.001 us"}
    for cpu_ratio, told in ((0.0, "failed"), (1.0, "not-measured")):
        items = checklist(expectation.parse(missed), busy(one, cpu_ratio), pace)
        assert {item.status for item in items} == {told}
    (cpu,) = checklist(expectation.parse({"cpu": "< 85%"}), busy(one, 1.0), pace)
    assert cpu.status == "not-measured" and "what it is alone is not known" in cpu.words
    held = expectation.parse({"samples_per_s": ">= 1e-3", "data_wait": "< 3600 s"})
    items = checklist(held, busy(one, 1.0), pace)
    assert {item.status for item in items} == {"passed"}


def test_a_rate_whose_interval_spans_the_limit_is_not_told() -> None:
    one = busy(run_of(run("none")), 0.0)
    steps, _ = per_s(one)
    pace = speed([one], [one])
    asked = expectation.parse({"steps_per_s": f">= {steps}"})
    (item,) = checklist(asked, one, pace)
    assert item.status == "not-measured"
    assert item.words.endswith("spans the limit: cannot tell")


def test_metrics_are_found_in_a_printed_log(tmp_path: Path) -> None:
    log = tmp_path / "train.log"
    log.write_text("epoch 1 PSNR: 21.0 val_psnr 9 loss nan\nepoch 2 psnr=29.5 dB | SSIM 0.8e0\n")
    asked = expectation.parse(
        {"metrics": {"psnr": ">= 28.5", "ssim": ">= 0.85", "lpips": "< 1", "loss": "< 9"}}
    )
    runs = run_of(run("none")), run_of(run("none", number=1))
    verdict = judge(*runs, asked=asked, log=log)
    assert {name: status(verdict, f"metrics.{name}") for name in asked.metrics} == {
        "psnr": "passed", "ssim": "failed", "lpips": "not-measured", "loss": "failed",
    }  # fmt: skip


def test_the_command_line_proves_a_remedy_in_one_go() -> None:
    done = hotloop("verify", "--json", "--apply", "num-workers=1", "--out", "proof", "--", *command("none"))
    assert done.returncode == 0, done.stderr
    verdict = json.loads(done.stdout)
    assert (verdict["schema"], verdict["parity"], verdict["launches"]) == (1, "exact", 1)
    assert {item["name"]: item["status"] for item in verdict["items"]}["applied"] == "passed"
    assert json.loads((ROOT / "proof" / "candidate" / "verify.json").read_text()) == verdict


def test_a_base_that_fails_is_the_end_of_it() -> None:
    done = hotloop("verify", "--apply", "num-workers=1", "--out", "crashed", "--", *command("crash"))
    assert done.returncode == 2
    assert "the unmodified command ended with exit code 1" in done.stderr
    assert not (ROOT / "crashed" / "candidate").exists()


@pytest.mark.parametrize("width", [40, 80])
def test_no_line_but_a_path_is_longer_than_the_terminal(width: int) -> None:
    base = replace(run_of(run("none")), label="/runs/" + "nightly-" * 12)
    lines = words.render(judge(base, traced(base, updates=63), effect="numeric"), width).splitlines()
    assert lines[0] == f"base       {base.label}", "in one piece, to be copied"
    assert max(len(line) for line in lines if base.label not in line) <= width


def test_the_command_line_answers_with_its_exit_code() -> None:
    fine = hotloop("verify", "--effect", "exact", str(run("none")), str(run("none", number=1)))
    assert fine.returncode == 0
    assert "parity     exact" in fine.stdout
    wrong = hotloop("verify", str(run("none")), str(run("lr")), COLUMNS="50")
    assert wrong.returncode == 1
    assert "FAILED" in wrong.stdout
    assert all(len(line) <= 50 for line in wrong.stdout.splitlines() if "run-" not in line)  # in a pipe too
    missing = hotloop("verify", str(run("none")), "nowhere")
    assert missing.returncode == 2
    assert "Traceback" not in missing.stderr
    alone = hotloop("verify", str(run("none")))
    assert (alone.returncode, "a base and a candidate" in alone.stderr) == (2, True)
