"""``defer-item``: what is put off adds up as Python does, and a script prints and trains what it did before.

On the CPU, whose float64 is that of CUDA: both add and multiply as IEEE 754 says. Not yet run on a GPU.
"""

from __future__ import annotations

import json
import struct
from pathlib import Path
from textwrap import dedent

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import running
from tests.fix.golden import patch_of, scene_of

from hotloop.findings import Finding
from hotloop.fix.patch import from_findings

NUMBERS = st.floats(width=32, allow_nan=True, allow_infinity=True)
DTYPES = st.sampled_from([torch.float16, torch.bfloat16, torch.float32, torch.float64])
STEPS = st.tuples(st.floats(), st.integers(0, 1 << 20), DTYPES)


def bits(number: float) -> bytes:
    return struct.pack("<d", number) if number == number else b"nan"


@settings(max_examples=200, deadline=None)
@given(st.lists(STEPS, max_size=30), st.sampled_from([0, 0.0]))
def test_a_sum_on_the_device_is_the_sum_of_what_was_read_bit_for_bit(
    steps: list[tuple[float, int, torch.dtype]], start: float
) -> None:
    total = plain = less = scaled = start
    deferred_total = deferred_plain = deferred_less = deferred_scaled = start
    for value, count, dtype in steps:
        loss = torch.tensor(value, dtype=torch.float64).to(dtype)
        total += loss.item() * count
        plain = plain + loss.item()
        less -= 2 * loss.item() + count - loss.item()
        scaled = 0.9 * scaled + 0.1 * -loss.item()
        deferred_total += loss.detach().double() * count
        deferred_plain = deferred_plain + loss.detach().double()
        deferred_less -= 2 * loss.detach().double() + count - loss.detach().double()
        deferred_scaled = 0.9 * deferred_scaled + 0.1 * -loss.detach().double()
    for read, deferred in (
        (total, deferred_total), (plain, deferred_plain), (less, deferred_less), (scaled, deferred_scaled)
    ):  # fmt: skip
        assert bits(read) == bits(float(deferred))


@settings(max_examples=100, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 255), st.integers(1, 64)), max_size=30))
def test_whole_numbers_stay_whole(steps: list[tuple[int, int]]) -> None:
    read: int = 0
    deferred: int | torch.Tensor = 0
    for value, count in steps:
        small = torch.tensor(value, dtype=torch.uint8)
        hits = torch.arange(count) < value
        read += small.item() * count + hits.sum().item()
        deferred += small.long() * count + hits.sum()
    assert (read, type(read)) == (int(deferred), type(int(deferred)))


@given(NUMBERS, DTYPES)
def test_what_is_kept_is_read_as_it_was(value: float, dtype: torch.dtype) -> None:
    loss = torch.tensor(value, dtype=torch.float64).to(dtype)
    kept = [loss.detach().clone()]
    read = loss.item()
    loss += 1
    kept[:] = map(float, kept)
    assert [bits(one) for one in kept] == [bits(read)]


TRAINING = """
    import hashlib

    import torch
    from torch import nn

    torch.manual_seed(0)
    device = torch.device("cpu")
    data = torch.utils.data.TensorDataset(torch.randn(50, 6), torch.randint(0, 3, (50,)))
    loader = torch.utils.data.DataLoader(data, batch_size=8, shuffle=True)
    model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)


    def train(epoch, weight: float):
        total, correct, seen = 0.0, 0, 0
        running = 0.0
        every = []
        for step, (x, y) in enumerate(loader):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=epoch == 1):
                logits = model(x.to(device))
                loss = nn.functional.cross_entropy(logits, y.to(device))
                penalty = logits.pow(2).mean()
            optimizer.zero_grad()
            (loss + 0.01 * penalty).backward()
            optimizer.step()
            n = x.size(0)
            total += loss.item() * n
            correct += (logits.argmax(1) == y).sum().item()
            seen += n
            running += float(penalty.detach().cpu())
            every.append(penalty.item())
            if step % 3 == 2:
                print(epoch, step, running / 3, type(running))
                running = 0.0
        scheduler.step(total)
        total /= len(data)
        print(f"{total!r} {correct} {correct / seen} {every} {running}")
        return total, correct, every


    history = []
    for epoch in range(3):
        history.append(train(epoch, 0.5))
    print(history, optimizer.param_groups[0]["lr"])
    state = b"".join(value.numpy().tobytes() for value in model.state_dict().values())
    print(hashlib.sha256(state).hexdigest())
"""
READS = {
    "read": [["train.py: loss.item()"], ["train.py: penalty.detach().cpu()"], ["train.py: penalty.item()"]],
    "read_whole": [["train.py: (logits.argmax(1) == y).sum().item()"]],
}
FACTS = {
    "apply": ["defer-item"],
    "where": {"defer-item": "train.py: total += loss.item()"},
    "loop": "train.py: for step, (x, y)",
    "rows": READS,
    "torch": {"cuda": "12.4", "device_count": 1},
}
#: Counts how often a number is read, by the line it is read in.
COUNTING = """
    import atexit, sys, torch
    from collections import Counter
    counts = Counter()
    for name in ("item", "__float__", "__int__", "__bool__", "tolist"):
        def counted(self, *, original=getattr(torch.Tensor, name)):
            frame = sys._getframe(1)
            if frame.f_code.co_filename == "train.py":
                counts[frame.f_lineno] += 1
            return original(self)
        setattr(torch.Tensor, name, counted)
    exec(compile(open("train.py").read(), "train.py", "exec"))
    print(max(counts.values()), file=sys.stderr)
"""


@pytest.fixture
def trained(tmp_path: Path) -> Path:
    (tmp_path / "train.py").write_text(dedent(TRAINING).lstrip())
    return tmp_path


def ran(folder: Path) -> tuple[str, int]:
    """What the script printed, and how often the line that reads most numbers did."""
    (folder / "count.py").write_text(dedent(COUNTING))
    done = running.succeeded(running.python("count.py", folder=folder, timeout=120))
    return done.stdout, int(done.stderr.split()[-1])


def test_a_training_prints_and_ends_with_the_same_bits(trained: Path) -> None:
    patch = patch_of(trained, json.loads(json.dumps(FACTS)))
    assert not patch.left and len(patch.files) == 1
    before, asked = ran(trained)
    for path, (_, new) in patch.files.items():
        path.write_bytes(new)
    after, still = ran(trained)
    assert after == before
    steps = 3 * 7
    assert asked >= steps, "in every step"
    text = (trained / "train.py").read_text()
    assert "item()" not in text and "cpu()" not in text
    in_loop = text[text.index("for step,") : text.index("if step % 3")]
    assert "float(" not in in_loop and "int(" not in in_loop
    assert still <= steps, "no more than the numbers that lists end up with"


def test_the_finding_is_answered_by_a_patch(trained: Path) -> None:
    finding = Finding(
        id="host/sync-in-step", message="", advice="", evidence=(), severity="medium",
        remedies=("defer-item",),
    )  # fmt: skip
    taken, waiting = from_findings([finding], "exact", scene_of(trained, FACTS))
    assert [str(one) for one in taken] == ["defer-item"] and not waiting
