"""Accumulated gradients equal the big batch's: any sizes, partial groups, several ranks, half precision."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hotloop.feed.accumulation import Accumulation

ROOT = Path(__file__).resolve().parents[2]


def model() -> torch.nn.Module:
    torch.manual_seed(0)
    return torch.nn.Sequential(torch.nn.Linear(6, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).double()


class Recorder(torch.optim.SGD):
    """Keeps the gradients of every step."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, lr=0.1)
        self.seen: list[list[torch.Tensor]] = []

    def step(self, closure: Any = None) -> Any:
        self.seen.append([p.grad.clone() for group in self.param_groups for p in group["params"]])
        return super().step(closure)


def micro_batches(sizes: list[int]) -> list[tuple[torch.Tensor, torch.Tensor]]:
    generator = torch.Generator().manual_seed(1)
    return [
        (
            torch.randn(n, 6, generator=generator, dtype=torch.float64),
            torch.randn(n, 1, generator=generator).double(),
        )
        for n in sizes
    ]


def mean_loss(net: torch.nn.Module, batch: tuple[torch.Tensor, torch.Tensor]) -> torch.Tensor:
    return torch.nn.functional.mse_loss(net(batch[0]), batch[1])


def big_batches(batches: list[Any], steps: int) -> Iterator[Any]:
    for start in range(0, len(batches), steps):
        group = batches[start : start + steps]
        yield tuple(torch.cat(column) for column in zip(*group, strict=True))


@settings(max_examples=40, deadline=None)
@given(sizes=st.lists(st.integers(1, 9), max_size=11), steps=st.integers(1, 5), scaled=st.booleans())
def test_every_step_has_the_big_batchs_gradient(sizes: list[int], steps: int, scaled: bool) -> None:
    batches, net = micro_batches(sizes), model()
    ours = Recorder(net.parameters())
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0) if scaled else None
    accumulation = Accumulation(ours, steps=steps, scaler=scaler)
    stepped = [accumulation.backward(mean_loss(net, batch), len(batch[0])) for batch in accumulation(batches)]

    reference = model()
    theirs = Recorder(reference.parameters())
    for batch in big_batches(batches, steps):
        theirs.zero_grad()
        mean_loss(reference, batch).backward()
        theirs.step()
    assert len(ours.seen) == len(theirs.seen) == accumulation.num_optimizer_steps == sum(stepped)
    for mine, big in zip(ours.seen, theirs.seen, strict=True):
        torch.testing.assert_close(mine, big, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(net.state_dict(), reference.state_dict(), rtol=1e-9, atol=1e-12)
    assert stepped == [(k + 1) % steps == 0 or k + 1 == len(sizes) for k in range(len(sizes))]


def test_clipping_sees_whole_unscaled_gradients_once_per_step() -> None:
    net = model()
    optimizer = Recorder(net.parameters())
    norms: list[float] = []

    def clip() -> None:
        norms.append(float(torch.nn.utils.clip_grad_norm_(net.parameters(), 0.01)))

    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16)
    accumulation = Accumulation(optimizer, steps=2, scaler=scaler, clip=clip)
    batches = micro_batches([3, 5, 2, 4, 1])
    for batch in accumulation(batches):
        accumulation.backward(mean_loss(net, batch), len(batch[0]))
    first = model()
    mean_loss(first, next(big_batches(batches, 2))).backward()
    assert norms[0] == pytest.approx(
        float(torch.nn.utils.get_total_norm([p.grad for p in first.parameters() if p.grad is not None]))
    )
    assert len(norms) == 3
    for gradients in optimizer.seen:
        assert float(torch.nn.utils.get_total_norm(gradients)) <= 0.01 * (1 + 1e-6)


@pytest.mark.parametrize("taken", [1, 3, 4, 6, 9])
def test_saved_in_the_middle_of_a_group_it_goes_on(taken: int) -> None:
    batches = micro_batches([4, 2, 3, 5, 1, 4, 2, 2, 3])

    def trained(net: torch.nn.Module, accumulation: Accumulation, part: list[Any]) -> None:
        for batch in accumulation(part):
            accumulation.backward(mean_loss(net, batch), len(batch[0]))

    whole = model()
    trained(whole, Accumulation(torch.optim.SGD(whole.parameters(), 0.1), steps=4), batches)

    net = model()
    accumulation = Accumulation(torch.optim.SGD(net.parameters(), 0.1), steps=4)
    loop = accumulation(batches)
    for _ in range(taken):
        batch = next(loop)
        accumulation.backward(mean_loss(net, batch), len(batch[0]))
    file = io.BytesIO()
    torch.save([net.state_dict(), accumulation.state_dict()], file)
    file.seek(0)
    state = torch.load(file)

    again = model()
    again.load_state_dict(state[0])
    resumed = Accumulation(torch.optim.SGD(again.parameters(), 0.1), steps=4)
    resumed.load_state_dict(state[1])
    trained(again, resumed, batches[taken:])
    assert resumed.num_optimizer_steps == 3
    for mine, wanted in zip(again.parameters(), whole.parameters(), strict=True):
        assert torch.equal(mine, wanted)


class Stateful:
    def __init__(self) -> None:
        self.position = 0

    def __iter__(self) -> Iterator[int]:
        for k in range(self.position, 5):
            self.position = k + 1
            yield k

    def state_dict(self) -> dict[str, int]:
        return {"position": self.position}


def test_the_loaders_state_is_that_of_the_micro_batch_in_hand() -> None:
    net = torch.nn.Linear(1, 1)
    accumulation = Accumulation(torch.optim.SGD(net.parameters(), 0.1), steps=2)
    assert accumulation.state_dict()["loader"] is None
    for k in accumulation(Stateful()):
        accumulation.backward(net(torch.ones(1)).sum(), 1)
        assert accumulation.state_dict()["loader"] == {"position": k + 1}
    assert accumulation.state_dict()["loader"] is None


def test_after_a_break_the_group_goes_on() -> None:
    batches, net = micro_batches([3, 4, 5]), model()
    optimizer = Recorder(net.parameters())
    accumulation = Accumulation(optimizer, steps=3)
    for batch in accumulation(batches):
        accumulation.backward(mean_loss(net, batch), len(batch[0]))
        break
    for batch in accumulation(batches[1:]):
        accumulation.backward(mean_loss(net, batch), len(batch[0]))
    reference = model()
    mean_loss(reference, next(big_batches(batches, 3))).backward()
    torch.testing.assert_close(optimizer.seen, [[p.grad for p in reference.parameters()]])


def test_wrong_use_is_named() -> None:
    net = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    with pytest.raises(ValueError, match="steps must be at least 1"):
        Accumulation(optimizer, steps=0)
    accumulation = Accumulation(optimizer, steps=2)
    loss = net(torch.ones(1)).sum()
    with pytest.raises(RuntimeError, match="a micro-batch of its own"):
        accumulation.backward(loss, 1)
    with accumulation.micro_batch():
        with pytest.raises(ValueError, match="num_samples must be positive, got 0"):
            accumulation.backward(loss, 0)
        accumulation.backward(loss, 1)
        with pytest.raises(RuntimeError, match="add several losses"):
            accumulation.backward(loss, 1)

    class Sharded(torch.nn.Linear):
        def set_requires_gradient_sync(self) -> None: ...

    with pytest.raises(TypeError, match="fully_shard"):
        Accumulation(optimizer, steps=2, model=Sharded(1, 1))


@pytest.fixture(scope="module")
def ranks(tmp_path_factory: pytest.TempPathFactory) -> list[dict[str, Any]]:
    """What two real ranks found; see ``two_ranks.py``."""
    folder = tmp_path_factory.mktemp("ranks")
    script = Path(__file__).with_name("two_ranks.py")
    started = [
        subprocess.Popen(
            [sys.executable, str(script), str(rank), str(folder)],
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}", "OMP_NUM_THREADS": "1"},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(2)
    ]
    try:
        outputs = [process.communicate(timeout=300)[0] for process in started]
    finally:
        for process in started:
            process.kill()
            process.wait()
    assert all(process.returncode == 0 for process in started), "\n".join(outputs)
    return [json.loads((folder / f"{rank}.json").read_text()) for rank in range(2)]


def test_two_ranks_make_the_gradient_of_all_their_samples(ranks: list[dict[str, Any]]) -> None:
    """Synchronized once a group; a resumed group too; a group that was never synchronized says so."""
    for rank in ranks:
        assert rank["num_optimizer_steps"] == 3
        assert rank["largest_error"] < 1e-10 and rank["resumed_error"] < 1e-10
        assert rank["reductions_at"] == [1, 3, 4], "micro-batches after which gradients were reduced"
        assert "never synchronized" in rank["skipped"]
