"""``run --apply``: a remedy is in force in an unmodified script, and an exact one changes nothing."""

from __future__ import annotations

import json
import sys
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from tests.remedy.remedy_training import SCRIPT
from tests.running import Observed, hotloop, run_observed, succeeded

from hotloop.remedy import catalogue


@cache
def unmodified(*args: str) -> dict[str, Any]:
    with TemporaryDirectory() as folder:
        return result(run_observed(SCRIPT, *args, folder=Path(folder), observed=False))


def result(done: Observed) -> dict[str, Any]:
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def applied(folder: Path, *remedies: str, args: tuple[str, ...] = ()) -> tuple[dict[str, Any], Observed]:
    env = catalogue.environment(map(catalogue.parse, remedies))
    done = run_observed(SCRIPT, *args, folder=folder, env=env)
    return result(done), done


def statuses(done: Observed) -> dict[str, str]:
    assert not done.notes.get("disabled")
    return {note["id"]: note["status"] for note in done.notes["remedy"]}


def workers_of(done: Observed) -> list[list[int]]:
    """The worker processes of each iteration over the training loader."""
    return [note["workers"] for note in done.notes["iterator"] if note["loader"] == 1]


@pytest.mark.parametrize(
    ("remedies", "args", "num_workers"),
    [
        (("num-workers=2", "prefetch-factor=3"), (), 2),
        (("no-workers",), ("--workers", "2"), 0),
        (("cache-samples",), (), 0),
        (("cache-samples", "num-workers=1"), (), 1),
        (("cache-samples", "ring-loader"), ("--workers", "1"), 1),
        (("ring-loader",), ("--workers", "2"), 2),
    ],
)
def test_exact_remedies_of_the_loader_keep_order_and_losses(
    tmp_path: Path, remedies: tuple[str, ...], args: tuple[str, ...], num_workers: int
) -> None:
    found, done = applied(tmp_path, *remedies, args=args)
    assert set(statuses(done).values()) == {"in effect"}
    assert found == unmodified(*args)
    iterators = [note for note in done.notes["iterator"] if note["workers"]]
    assert {len(note["workers"]) for note in iterators} == ({num_workers} if num_workers else set())
    # The loader that evaluates is left as it is.
    assert len(iterators) == (3 if num_workers else 0)


def test_kept_workers_draw_as_fresh_ones_do(tmp_path: Path) -> None:
    args = ("--workers", "2", "--random")
    found, done = applied(tmp_path, "persistent-workers", args=args)
    assert statuses(done) == {"persistent-workers": "in effect"}
    assert found == unmodified(*args)
    workers = workers_of(done)
    assert len(workers) == 3
    assert workers[0] == workers[1] == workers[2]
    assert len(workers[0]) == 2


def test_workers_are_started_anew_where_the_script_changed_the_dataset(tmp_path: Path) -> None:
    args = ("--workers", "1", "--bump")
    found, done = applied(tmp_path, "persistent-workers", args=args)
    assert found == unmodified(*args)
    assert len({tuple(pids) for pids in workers_of(done)}) == 3


def test_a_cache_refuses_samples_that_are_random(tmp_path: Path) -> None:
    args = ("--workers", "2", "--random")
    found, done = applied(tmp_path, "cache-samples", args=args)
    assert statuses(done)["cache-samples"].startswith("not cached: ")
    assert found["order"] == unmodified(*args)["order"]


@pytest.mark.parametrize("workers", ["0", "1"])
def test_a_rare_random_sample_ends_the_cache_and_not_the_run(tmp_path: Path, workers: str) -> None:
    args = ("--workers", workers, "--rare")
    found, done = applied(tmp_path, "cache-samples", args=args)
    assert found == unmodified(*args)
    assert statuses(done)["cache-samples"].startswith("ended at sample 5, which is random")
    assert done.stderr.count("cache-samples ends: sample 5 must not be cached") == 1


def test_a_cache_stays_where_the_first_sample_makes_what_the_others_need(tmp_path: Path) -> None:
    found, done = applied(tmp_path, "cache-samples", args=("--lazy",))
    assert statuses(done) == {"cache-samples": "in effect"}
    assert found == unmodified("--lazy")


@pytest.mark.parametrize(
    ("workers", "change"), [("0", "--bump"), ("1", "--bump"), ("0", "--late"), ("1", "--late")]
)
def test_a_cache_is_dropped_where_the_script_changes_the_dataset(
    tmp_path: Path, workers: str, change: str
) -> None:
    args = ("--workers", workers, change)
    found, done = applied(tmp_path, "cache-samples", args=args)
    assert found == unmodified(*args)
    assert statuses(done) == {
        "cache-samples": "refused: the dataset, or what it reads, changes between epochs"
    }


def test_remedies_of_the_update_keep_losses_where_every_parameter_gets_a_gradient(tmp_path: Path) -> None:
    found, done = applied(tmp_path, "foreach", "gc-freeze", args=("--zero",))
    assert set(statuses(done).values()) == {"in effect"}
    assert found == unmodified("--zero")


@pytest.mark.parametrize(
    ("remedies", "relative", "threads"),
    [(("autocast-bf16",), 5e-2, 1), (("fused-optimizer", "threads=2"), 5e-2, 2)],
)
def test_numeric_remedies_stay_near(
    tmp_path: Path, remedies: tuple[str, ...], relative: float, threads: int
) -> None:
    found, done = applied(tmp_path, *remedies)
    assert set(statuses(done).values()) == {"in effect"}
    before = unmodified()
    assert found["order"] == before["order"]
    assert found["losses"] != before["losses"]
    assert found["losses"] == pytest.approx(before["losses"], rel=relative)
    assert found["threads"] == threads


def test_a_remedy_with_nothing_to_do_or_that_breaks_says_so_and_training_goes_on(tmp_path: Path) -> None:
    entries = [
        ["tf32", None, "hotloop.remedy.live.flags:Tf32"],
        ["pin-memory", None, "hotloop.remedy.live.loader:PinMemory"],
        ["prefetch-factor", "many", "hotloop.remedy.live.loader:PrefetchFactor"],
        ["threads", "many", "hotloop.remedy.live.flags:Threads"],
        ["missing", None, "hotloop.remedy.live.missing:Missing"],
    ]
    args = ("--workers", "1")
    done = run_observed(SCRIPT, *args, folder=tmp_path, env={"HOTLOOP_APPLY": json.dumps(entries)})
    assert result(done) == unmodified(*args)
    found = {note["id"]: note["status"] for note in done.notes["remedy"]}
    if found["tf32"] != "in effect":
        assert "no CUDA device" in found["tf32"]
    assert found["prefetch-factor"].startswith("failed, left as it was: ")
    assert found["threads"] == "switched off after an error of its own"
    assert found["missing"] == "could not be made"


def test_the_report_says_how_it_went(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    words = ["run", "--out", "r", "--apply", "num-workers=1", "--apply", "tf32", "--", sys.executable]
    done = succeeded(hotloop(*words, "train.py", folder=tmp_path))
    assert json.loads(done.stdout) == unmodified()
    assert "applied num-workers: in effect" in done.stderr
    report = json.loads((tmp_path / "r" / "report.json").read_text())
    assert report["applied"][0] == {"id": "num-workers", "value": 1, "status": "in effect", "count": 3}
    (setting,) = [one for one in report["settings"] if one["name"] == "num_workers"]
    assert setting["in_effect"] == 1


def test_a_model_that_cannot_be_compiled_runs_as_the_script_has_it(tmp_path: Path) -> None:
    env = catalogue.environment([catalogue.parse("compile")])
    broken = {"CXX": "/bin/false", "TORCHINDUCTOR_FORCE_DISABLE_CACHES": "1"}
    cache_folder = {"TORCHINDUCTOR_CACHE_DIR": str(tmp_path / "inductor")}
    done = run_observed(SCRIPT, folder=tmp_path, env={**env, **broken, **cache_folder})
    assert result(done) == unmodified()
    assert done.notes["remedy"][-1]["status"] == "nothing could be compiled: it runs as the script has it"


SAVES = """
import os, sys, torch
from tqdm import tqdm
torch.manual_seed(0)
model = torch.nn.Linear(64, 64)
optimizer = torch.optim.Adam(model.parameters())
for step in (bar := tqdm(range(300), mininterval=0, miniters=1)):
    loss = model(torch.randn(8, 64)).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    bar.set_postfix(step=step)
    if step % 10 == 0:
        torch.save({"step": step, "model": model.state_dict()}, "last.pt")
        assert torch.load("last.pt")["step"] == step or sys.exit("an older state was read")
    if step == 299:
        torch.save({"step": step, "model": model.state_dict()}, f"{step}.pt")
        os._exit(0) if sys.argv[1:] == ["exit"] else None
"""


@pytest.mark.parametrize("args", [(), ("exit",)])
def test_checkpoints_in_the_background_and_fewer_pictures_of_a_bar(
    tmp_path: Path, args: tuple[str, ...]
) -> None:
    plain, folder = tmp_path / "plain", tmp_path / "applied"
    plain.mkdir()
    folder.mkdir()
    before = run_observed(SAVES, *args, folder=plain, observed=False)
    names = ("asynchronous-checkpoint", "throttled-progress")
    env = catalogue.environment(map(catalogue.parse, names))
    done = run_observed(SAVES, *args, folder=folder, env=env)
    assert done.returncode == before.returncode == 0, done.stderr
    assert statuses(done) == dict.fromkeys(names, "in effect")
    for name in ("last.pt", "299.pt"):
        assert (folder / name).read_bytes() == (plain / name).read_bytes()
    assert len(done.of("save")) >= 31
    assert before.stderr.count("/300 [") > 300
    assert done.stderr.count("/300 [") < 20
    assert args or "300/300" in done.stderr.splitlines()[-1]


TWO_LOADERS = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset
    torch.multiprocessing.set_start_method("fork")
    data = TensorDataset(torch.ones(8, 2))
    few = DataLoader(data, batch_size=2, shuffle=True)
    many = DataLoader(data, batch_size=4, shuffle=True)
    model = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for (a,), (b,) in zip(few, many):
        (model(a).mean() + model(b).mean()).backward()
        optimizer.step()
"""


def test_a_live_form_says_that_it_changed_the_loaders_of_several_places(tmp_path: Path) -> None:
    env = catalogue.environment([catalogue.parse("num-workers=1")])
    done = succeeded(run_observed(TWO_LOADERS, folder=tmp_path, env=env))
    assert statuses(done) == {"num-workers": "in effect, in the loaders of 2 places"}
