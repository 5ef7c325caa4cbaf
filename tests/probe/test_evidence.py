"""``--evidence``: what is recorded, that it changes nothing, and that nothing is recorded unasked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from tests.running import Observed, run_observed, succeeded

from hotloop.probe.evidence import fingerprint
from hotloop.probe.evidence.losses import OnDevice, bits_of

EVIDENCE = {"HOTLOOP_EVIDENCE": "1"}

LOADER = """
    import random, sys
    import torch
    from torch import nn
    from torch.utils.data import DataLoader, Dataset

    class Data(Dataset):
        def __len__(self):
            return 40
        def __getitem__(self, i):
            return torch.full((4,), float(i)) + torch.rand(4) * 0.1, i % 2

    def main(workers, persistent):
        torch.manual_seed(1)
        random.seed(1)
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        loader = DataLoader(Data(), 4, shuffle=True, num_workers=workers, persistent_workers=persistent)
        for epoch in range(2):
            for number, (x, y) in enumerate(loader):
                if epoch == 0 and number == 6:
                    break  # what workers have made beyond is dropped
                loss = nn.functional.cross_entropy(net(x), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
        print(sum(p.double().sum().item() for p in net.parameters()), torch.rand(1).item(), random.random())

    if __name__ == "__main__":
        main(int(sys.argv[1]), sys.argv[2] == "persistent")
"""


def crcs(done: Observed, kind: str) -> list[int]:
    return [row.value for row in done.of(kind)]


def test_every_batch_handed_out_has_its_order_and_content_once(tmp_path: Path) -> None:
    for name, args in (("single", ("0", "")), ("persistent", ("2", "persistent"))):
        done = succeeded(run_observed(LOADER, *args, folder=tmp_path / name, env=EVIDENCE))
        assert not done.notes.get("disabled")
        # 7 batches were handed out before the break, 10 after it.
        assert len(done.of("order")) == 17
        assert len({row.start for row in done.of("content") if row.extra == 0}) == 17
        assert len(done.of("loss")) == 16


def test_nothing_changes_and_nothing_is_recorded_unasked(tmp_path: Path) -> None:
    plain = run_observed(LOADER, "0", "", folder=tmp_path / "plain", observed=False)
    seen = run_observed(LOADER, "0", "", folder=tmp_path / "seen")
    evidence = run_observed(LOADER, "0", "", folder=tmp_path / "evidence", env=EVIDENCE)
    assert plain.stdout == seen.stdout == evidence.stdout
    assert not seen.of("order") and not seen.of("content") and "evidence" not in seen.notes
    assert evidence.of("order") and "evidence" in evidence.notes


def test_the_state_of_a_model_that_ends_with_its_function_is_kept(tmp_path: Path) -> None:
    done = run_observed(LOADER, "0", "", folder=tmp_path, env=EVIDENCE)
    (trained,) = done.notes["trained"]
    assert (trained["of"], trained["updates"]) == ("Sequential", 16)
    names = [item[0] for item in trained["items"]]
    assert "0.weight" in names and "1.running_mean" in names
    (generators,) = done.notes["generators"]
    assert {"torch", "python", "torch_first"} <= set(generators)


def test_a_perturbed_run_differs_by_the_last_bit_of_its_weights_and_draws_nothing(tmp_path: Path) -> None:
    asked = {"": {}, "1": {"HOTLOOP_PERTURB": "1"}}
    plain, moved = (
        run_observed(LOADER, "0", "", folder=tmp_path / f"it{name}", env={**EVIDENCE, **env})
        for name, env in asked.items()
    )
    assert [done.notes["evidence"][0]["perturbed"] for done in (plain, moved)] == [False, True]
    losses = crcs(plain, "loss"), crcs(moved, "loss")
    assert losses[0][0] == losses[1][0] and losses[0] != losses[1]  # from the first update on
    assert crcs(plain, "content") == crcs(moved, "content")
    assert plain.notes["generators"][0]["torch"] == moved.notes["generators"][0]["torch"]
    assert plain.notes["trained"][0]["items"] != moved.notes["trained"][0]["items"]


def test_scaled_accumulated_and_logged_values(tmp_path: Path) -> None:
    script = """
        import torch
        from torch import nn
        from torch.utils.tensorboard import SummaryWriter
        from hotloop.feed import async_save
        torch.manual_seed(0)
        net = nn.Linear(3, 1)
        other = nn.Linear(3, 3)  # could be trained, and no optimizer has it
        optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
        writer = SummaryWriter("tb")
        for step in range(3):
            for _ in range(2):
                loss = net(other(torch.ones(2, 3))).square().mean() / 2
                print(loss.item())
                scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            optimizer.zero_grad()
            writer.add_scalar("val/psnr", 20.0 + step, step)
        torch.save({"model": net.state_dict(), "step": step}, "last.pt")
        async_save({"model": net.state_dict(), "step": step}, "behind.pt")
    """
    done = succeeded(run_observed(script, folder=tmp_path, env=EVIDENCE))
    seen = [torch.tensor(value, dtype=torch.int64).to(torch.int32).view(torch.float32).item()
            for value in crcs(done, "loss")]  # fmt: skip
    assert seen == [float(line) for line in done.stdout.split()]
    assert len(done.of("content")) == 12  # no loader: what both modules were called with
    assert [note["items"][0][3] for note in done.notes["trained"]] == [[1, 3]]
    metric = done.notes["metric"][-1]
    assert (metric["name"], metric["last"], metric["count"]) == ("val/psnr", 22.0, 3)
    checkpoint, behind = done.notes["checkpoint"]
    assert [one["path"] for one in (checkpoint, behind)] == [
        str(tmp_path / f"{n}.pt") for n in ("last", "behind")
    ]
    assert behind["layout"] == checkpoint["layout"]
    assert ["model.weight", "float32", [1, 3]] in checkpoint["entries"]
    assert ["step", "int", None] in checkpoint["entries"]


def test_a_checksum_sees_samples_that_changed_places() -> None:
    batch = torch.arange(64 * 3 * 50 * 50, dtype=torch.float32).reshape(64, 3, 50, 50)
    swapped = batch.clone()
    swapped[[3, 17]] = batch[[17, 3]]
    one = batch.clone()
    one[5, 1, 7, 7] += 1
    before = fingerprint.of_batch({"x": batch})
    assert before != fingerprint.of_batch({"x": swapped})
    full = fingerprint.of_batch({"x": batch}, full=True)
    assert full != fingerprint.of_batch({"x": one}, full=True)
    assert before == fingerprint.of_batch({"x": batch.clone(memory_format=torch.channels_last)})
    assert fingerprint.of_index([3, 1]) != fingerprint.of_index([1, 3])
    assert fingerprint.of_index([torch.tensor(3), 1]) == fingerprint.of_index([3, 1])


def test_losses_of_every_dtype_are_read_exactly() -> None:
    for dtype in (torch.float32, torch.float64, torch.float16, torch.bfloat16):
        bits = bits_of(torch.tensor(1.5, dtype=dtype))
        assert bits is not None and bits[0] == 0x3FC00000
    near = [bits_of(torch.tensor(value, dtype=torch.float64)) for value in (0.1, 0.1 + 1e-16)]
    assert near[0] != near[1]


class Event:
    """Arrives when it is told to."""

    arrived = False

    def record(self) -> None:
        pass

    def query(self) -> bool:
        return Event.arrived

    def synchronize(self) -> None:
        Event.arrived = True


def test_losses_on_a_device_are_read_when_they_have_arrived_and_never_waited_for() -> None:
    Event.arrived = False
    rows: list[tuple[Any, ...]] = []
    losses = OnDevice(
        torch, lambda *row: rows.append(row), new_event=Event, capturing=lambda: False, pinned=False
    )
    for number in range(1000):
        losses.take(torch.tensor(float(number)), number, 0)
    assert not rows  # the device is behind: what does not fit goes unread, and nobody waits
    Event.arrived = True
    for number in range(1000, 1100):
        losses.take(torch.tensor(float(number)), number, 0)
    losses.finish()
    values = [
        torch.tensor(row[3], dtype=torch.int64).to(torch.int32).view(torch.float32).item() for row in rows
    ]
    assert values == [float(row[1]) for row in rows]
    assert values == [float(n) for n in (*range(512), *range(1000, 1100))]


REPLACED = """
    import gc, weakref
    import torch
    from torch import nn

    def train(tamper):
        torch.manual_seed(0)
        net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        def step():
            optimizer.zero_grad()
            net(torch.ones(2, 4)).sum().backward()
            optimizer.step()
        step()
        before = weakref.ref(net[0].weight)
        optimizer.param_groups.clear()
        optimizer.state.clear()
        net[0] = nn.Linear(4, 8)
        print(before() is None)
        for one in (net[0], net[2]):
            optimizer.add_param_group({"params": list(one.parameters())})
        step()
        if tamper:
            with torch.no_grad():
                net[0].weight.add_(1.0)
        return net

    train(False)  # the model goes with its function
    train(True)
    for tamper in (False, True):  # in a cycle
        net = train(tamper)
        net.itself = [net]
        del net
        gc.collect()
    kept = train(False), train(True)  # at exit
"""


def test_a_replaced_layer_is_let_go_and_its_successor_is_read(tmp_path: Path) -> None:
    done = run_observed(REPLACED, folder=tmp_path, env=EVIDENCE)
    assert done.stdout == "True\n" * 6, done.stderr
    assert not done.notes.get("disabled")
    states = [{name: crc for name, crc, _, _ in note["items"]} for note in done.notes["trained"]]
    assert len(states) == 6
    for plain, tampered in zip(states[::2], states[1::2], strict=True):
        assert plain.keys() == tampered.keys() >= {"0.weight", "0.bias", "2.weight"}
        assert {name for name in plain if plain[name] != tampered[name]} == {"0.weight"}


def test_sums_of_other_samples_differ() -> None:
    def total(*batches: Any) -> int:
        return sum(fingerprint.of_index(batch)[1] for batch in batches) & 0xFFFF  # type: ignore[index]

    half, other = list(range(256)), list(range(256, 512))
    assert total(half, half) != total(half, other) == total(other[::-1], half)
    assert total([0, 3]) != total([1, 2])
