"""``num_workers="auto"``: real loaders, whose sizer follows a script where a test needs one."""

from __future__ import annotations

import resource
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from leftovers import nothing_is_left, running, wait_until  # noqa: F401 - a fixture
from loader_datasets import Everything, Stream, assert_same
from torch.utils.data import DataLoader, Dataset, RandomSampler, TensorDataset

from hotloop.feed import Loader
from hotloop.feed.sizing import ONE_WORKER, Fed, Sizer
from hotloop.feed.throughput import INLINE, Setting

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


class Scripted(Sizer):
    """Wants what it is told to, from the batch on that it is told."""

    def __init__(self, *script: tuple[int, Setting], start: Setting = ONE_WORKER) -> None:
        super().__init__(cores=2.0, memory_bytes=1 << 34)
        self.setting = start
        self.script = dict(script)
        self.fed: list[Fed] = []

    def observe(self, fed: Fed) -> Setting:
        self.fed.append(fed)
        self.num_batches += 1
        self.is_settled = self.num_batches > max(self.script, default=0) + 20
        if self.num_batches in self.script:
            self._want(self.script[self.num_batches], "the script says so")
        return self.setting


def scripted(dataset: Any, sizer: Sizer, **arguments: Any) -> Loader:
    loader = Loader(dataset, num_workers="auto", **arguments)
    loader._sizer = sizer
    return loader


class Numbers(Everything):
    """Its own indices."""

    def __getitem__(self, index: int) -> Any:
        return {"int": index, "row": torch.full((300,), index)}


some_settings = st.one_of(
    st.builds(Setting, st.just("process"), st.integers(1, 4), st.integers(1, 3)), st.just(INLINE)
)


@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(
    script=st.lists(st.tuples(st.integers(1, 40), some_settings), max_size=5),
    start=some_settings,
    batch_size=st.integers(1, 5),
    persistent=st.booleans(),
    drop_last=st.booleans(),
)
def test_order_and_content_whatever_is_wanted_and_when(
    script: list[tuple[int, Setting]], start: Setting, batch_size: int, persistent: bool, drop_last: bool
) -> None:
    def arguments() -> dict[str, Any]:
        sampler = RandomSampler(range(23), generator=torch.Generator().manual_seed(3))
        return {"batch_size": batch_size, "drop_last": drop_last, "sampler": sampler}

    reference = DataLoader(Everything(), **arguments())
    sizer = Scripted(*script, start=start)
    loader = scripted(Everything(), sizer, persistent_workers=persistent, **arguments())
    for _ in range(2):
        assert_same(list(loader), list(reference))


def test_workers_are_added_and_ended_while_it_runs() -> None:
    sizer = Scripted((10, Setting("process", 4, 1)), (30, Setting("process", 2, 1)))
    loader = scripted(Numbers(400), sizer, batch_size=4)
    before = len(running())
    seen = []
    for number, _ in enumerate(loader):
        seen.append(len(running()) - before)
        if number == 90:
            wait_until(lambda: len(running()) - before == 2)
    assert seen[0] == 1
    assert max(seen) == 4
    assert {fed.num_workers for fed in sizer.fed} >= {1, 2}


class OpensLate(Dataset[int]):
    """Keeps a file open from its first sample on, as many datasets do."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.file: Any = None

    def __len__(self) -> int:
        return 400

    def __getitem__(self, index: int) -> int:
        if self.file is None:
            self.file = self.path.open("rb")
        self.file.seek(2 * index)
        return int.from_bytes(self.file.read(2), "big")


def test_no_worker_is_forked_with_a_file_that_was_opened_here(tmp_path: Path) -> None:
    path = tmp_path / "numbers"
    path.write_bytes(b"".join(number.to_bytes(2, "big") for number in range(400)))
    dataset = OpensLate(path)
    sizer = Scripted((5, INLINE), (40, Setting("process", 3, 2)), start=INLINE)
    loader = scripted(dataset, sizer, batch_size=4)
    assert torch.cat(list(loader)).tolist() == list(range(400))
    assert sizer.setting.method != "process"
    assert any("open files" in decision.reason for decision in sizer.decisions)
    dataset.file.close()


def test_workers_that_cannot_be_had_are_done_without() -> None:
    sizer = Scripted((5, Setting("process", 30, 2)))
    loader = scripted(Numbers(400), sizer, batch_size=4)
    iterator = iter(loader)
    first = [next(iterator) for _ in range(2)]
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # Twenty-four free descriptors: room for some workers' pipes, not for thirty's.
    used = {int(one.name) for one in Path("/proc/self/fd").iterdir()}
    limit = [number for number in range(max(used) + 25) if number not in used][24]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        rest = list(iterator)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert [int(n) for batch in first + rest for n in batch["int"]] == list(range(400))
    assert 1 <= sizer.most_workers < 30
    assert any("could not be started" in decision.reason for decision in sizer.decisions)


def test_an_epoch_can_be_resumed(tmp_path: Path) -> None:
    script = [(6, Setting("process", 3, 2)), (20, INLINE)]
    loader = scripted(Numbers(120), Scripted(*script), batch_size=4, shuffle=True)
    iterator = iter(loader)
    before = [next(iterator)["int"].tolist() for _ in range(11)]
    torch.save(loader.state_dict(), tmp_path / "state")
    rest = [batch["int"].tolist() for batch in iterator]
    for start in (ONE_WORKER, INLINE):
        again = scripted(Numbers(120), Scripted(*script, start=start), batch_size=4, shuffle=True)
        again.load_state_dict(torch.load(tmp_path / "state"))
        assert [batch["int"].tolist() for batch in again] == rest
    assert sorted(n for batch in before + rest for n in batch) == list(range(120))


def test_an_error_in_a_sample_names_it_and_the_epoch_goes_on() -> None:
    class Breaks(Numbers):
        def __getitem__(self, index: int) -> Any:
            if index == 21:
                raise KeyError("the label of 21")
            return super().__getitem__(index)

    for start in (Setting("process", 2, 2), INLINE):
        iterator = iter(scripted(Breaks(40), Scripted(start=start), batch_size=4))
        found = []
        for _ in range(10):
            try:
                found += next(iterator)["int"].tolist()
            except KeyError as error:
                assert "the label of 21" in str(error)
        assert found == [n for n in range(40) if n // 4 != 5]
        with pytest.raises(StopIteration):
            next(iterator)
        del iterator


def test_leaving_a_loop_early_leaves_nothing_behind() -> None:
    for start in (Setting("process", 2, 2), INLINE):
        loader = scripted(Numbers(100), Scripted(start=start), batch_size=4)
        for _ in loader:
            break
        assert len(list(loader)) == 25


def test_what_it_really_chooses_for_tiny_samples() -> None:
    """The real sizer on a real loader; what it chooses is not asserted, that it chose and reports is."""
    loader = Loader(TensorDataset(torch.arange(3000.0)), batch_size=4, num_workers="auto")
    for _ in range(3):
        assert torch.equal(torch.cat([batch for (batch,) in loader]), torch.arange(3000.0))
    assert loader.sizing is not None
    assert loader.sizing.num_batches > 200  # once it has settled, one of eight is timed
    assert loader.sizing.measured
    assert "feeding with" in str(loader.sizing)


def test_streams_are_refused() -> None:
    with pytest.raises(ValueError, match="IterableDataset"):
        Loader(Stream(), num_workers="auto")
    with pytest.raises(ValueError, match="'many'"):
        Loader(Everything(), num_workers="many")
