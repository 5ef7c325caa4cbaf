"""What a Loader does when something goes wrong: with real processes, killed and starved for real."""

from __future__ import annotations

import gc
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import textwrap
import time
import warnings
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from leftovers import nothing_is_left  # noqa: F401 - a fixture
from loader_datasets import Everything, Large
from tests.running import SRC
from torch.utils.data import Dataset

from hotloop.feed import Loader, WorkerError

pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create:UserWarning")


class Breaks(Dataset[Any]):
    """Does something at sample 9."""

    def __init__(self, act: Callable[[], Any]) -> None:
        self.act = act

    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int) -> Any:
        if index == 9:
            self.act()
        return torch.full((1000,), index)


@pytest.mark.parametrize(
    ("act", "words"),
    [
        (
            partial(signal.raise_signal, signal.SIGKILL),
            "was killed by SIGKILL while reading sample 9 (number 1 of batch 4)",
        ),
        (
            partial(os._exit, 7),
            "exited unexpectedly with code 7 while reading sample 9 (number 1 of batch 4)",
        ),
        (partial(signal.raise_signal, signal.SIGSEGV), "was killed by SIGSEGV while reading sample 9"),
    ],
)
def test_a_worker_that_dies_is_an_error_that_names_sample_and_cause(act: Any, words: str) -> None:
    loader = Loader(Breaks(act), batch_size=2, num_workers=2)
    iterator = iter(loader)
    seen = []
    with pytest.raises(WorkerError) as raised:
        for batch in iterator:
            seen.append(int(batch[0, 0]))
    assert words in str(raised.value)
    assert isinstance(raised.value, RuntimeError)
    assert seen == [0, 2, 4, 6][: len(seen)]
    with pytest.raises(WorkerError):
        next(iterator)


def kill_in_collate(samples: Any) -> Any:
    if any(int(sample[0]) == 9 for sample in samples):
        os.kill(os.getpid(), signal.SIGKILL)
    return torch.stack(samples)


def nothing() -> None:
    pass


def test_a_worker_killed_in_collate() -> None:
    loader = Loader(Breaks(nothing), batch_size=2, num_workers=2, collate_fn=kill_in_collate)
    with pytest.raises(WorkerError, match="SIGKILL while collating batch 4"):
        list(loader)


@pytest.mark.parametrize("persistent", [False, True])
def test_workers_killed_from_outside_at_any_point(persistent: bool) -> None:
    """Waiting, writing or holding a slot: what was handed out stays right, and the next epoch works."""
    for moment in (0, 1, 3, 5):
        loader = Loader(Large(), batch_size=2, num_workers=2, persistent_workers=persistent)
        iterator = iter(loader)
        held = [next(iterator) for _ in range(moment)]
        victim = iterator._workers[moment % 2]
        os.kill(victim.pid, signal.SIGKILL)
        with pytest.raises(WorkerError, match=f"worker {moment % 2} .*SIGKILL"):
            while True:
                held.append(next(iterator))
        for number, (data, _) in enumerate(held):
            assert data[0].eq(2 * number).all()
        assert [index.tolist() for _, index in loader] == [[i, i + 1] for i in range(0, 24, 2)]


class OddError(Exception):
    def __init__(self, one: int, other: int) -> None:
        super().__init__(f"{one} and {other}")


def raise_key() -> None:
    {}["missing"]


def raise_odd() -> None:
    raise OddError(1, 2)


def raise_local() -> None:
    class LocalError(Exception):
        pass

    raise LocalError("of its own")


@pytest.mark.parametrize(
    ("act", "kind", "words"),
    [
        (raise_key, KeyError, "missing"),
        (raise_odd, RuntimeError, "1 and 2"),
        (raise_local, RuntimeError, "own"),
    ],
)
def test_an_exception_keeps_its_type_traceback_and_index(act: Any, kind: Any, words: str) -> None:
    iterator = iter(Loader(Breaks(act), batch_size=2, num_workers=2))
    for _ in range(4):
        next(iterator)
    with pytest.raises(kind) as raised:
        next(iterator)
    text = str(raised.value)
    assert "reading sample 9 (number 1 of batch 4)" in text
    assert act.__name__ in text and words in text and "Original Traceback" in text
    assert [int(batch[0, 0]) for batch in iterator] == [10, 12, 14]  # and goes on, as torch does


def broken_init(worker: int) -> None:
    raise LookupError("no such disk")


def unpicklable(samples: Any) -> Any:
    return lambda: samples


def test_errors_in_init_and_in_what_collate_returns() -> None:
    with pytest.raises(LookupError, match="no such disk"):
        list(Loader(Everything(), num_workers=1, worker_init_fn=broken_init))
    with pytest.raises(Exception, match=r"pickle.*unpicklable|unpicklable.*pickle"):
        list(Loader(Everything(), num_workers=1, collate_fn=unpicklable))


def test_a_worker_that_hangs_is_named_in_time() -> None:
    loader = Loader(Breaks(partial(time.sleep, 1000)), batch_size=2, num_workers=2, timeout=0.5)
    with pytest.raises(WorkerError, match=r"timed out after 0.5 seconds: worker 0 .*reading sample 9"):
        list(loader)


def test_too_few_descriptors_say_so() -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    used = {int(one.name) for one in Path("/proc/self/fd").iterdir()}
    limit = [number for number in range(max(used) + 14) if number not in used][12]
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    try:
        with pytest.raises(WorkerError, match=r"(?s)Too many open files.*ulimit -n"):
            list(Loader(Large(), num_workers=12))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


MOUNTS = ["unshare", "-rm", "sh", "-c", "mount -t tmpfs -o size=1m none /dev/shm"]
CAN_MOUNT = subprocess.run(MOUNTS, capture_output=True, check=False)


@pytest.mark.skipif(
    bool(subprocess.run(MOUNTS, capture_output=True).returncode), reason="no mount namespaces here"
)
def test_batches_that_do_not_fit_dev_shm() -> None:
    body = """
        import os
        from hotloop.feed import Loader
        from loader_datasets import Large
        assert os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_bsize == 64 << 20
        loader = Loader(Large(240), batch_size=80, num_workers=1)
        print([int(index.sum()) for _, index in loader], os.listdir("/dev/shm"))
    """
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SRC), str(Path(__file__).parent)])}
    mount = 'mount -t tmpfs -o size=64m none /dev/shm && exec "$@"'
    command = ["unshare", "-rm", "sh", "-c", mount, "sh", sys.executable, "-c", textwrap.dedent(body)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout == "[3160, 9560, 15960] []\n", done.stderr


class Busy(Everything):
    def __getitem__(self, index: int) -> Any:
        if index == 9:
            time.sleep(1000)
        return super().__getitem__(index)


def feed_until_killed(sender: Any, method: str, num_workers: int) -> None:
    warnings.simplefilter("ignore")
    options: dict[str, Any] = {"num_workers": num_workers, "multiprocessing_context": method}
    iterator = iter(Loader(Busy(), batch_size=2, **options))
    for _ in range(4):
        next(iterator)
    sender.send([worker.pid for worker in iterator._workers])
    next(iterator)  # never comes


@pytest.mark.parametrize(("method", "num_workers"), [("fork", 2), ("spawn", 1)])
def test_a_killed_parent_leaves_no_process_and_nothing_in_dev_shm(method: str, num_workers: int) -> None:
    """One worker is busy in the dataset, the other waits."""
    context = multiprocessing.get_context("fork")
    receiver, sender = context.Pipe(duplex=False)
    parent = context.Process(target=feed_until_killed, args=(sender, method, num_workers))
    parent.start()
    sender.close()
    pids = receiver.recv()
    assert parent.pid is not None
    os.kill(parent.pid, signal.SIGKILL)
    parent.join()
    alive = psutil.wait_procs([psutil.Process(pid) for pid in pids if psutil.pid_exists(pid)], timeout=60)[1]
    for process in alive:
        process.kill()
    assert not [one for one in alive if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]
    names = [f"torch_{pid}_" for pid in (parent.pid, *pids)]
    assert not [one for one in Path("/dev/shm").iterdir() if one.name.startswith(tuple(names))]


def measures() -> tuple[int, int, int]:
    process = psutil.Process()
    return process.num_fds(), process.num_threads(), process.memory_info().rss


@pytest.mark.parametrize("persistent", [False, True])
def test_many_short_epochs_do_not_grow(persistent: bool) -> None:
    """benchmarks/feed/endurance.py runs 10,000."""
    loader = Loader(Everything(8), batch_size=4, num_workers=1, persistent_workers=persistent)
    for _ in range(10):
        assert len(list(loader)) == 2
    gc.collect()
    before = measures()
    for _ in range(300 if persistent else 40):
        for batch in loader:
            del batch
    gc.collect()
    after = measures()
    assert after[:2] == before[:2]
    assert after[2] - before[2] < 8 << 20


def test_an_iterator_dropped_in_the_middle_leaves_no_worker() -> None:
    iterator = iter(Loader(Everything(), batch_size=2, num_workers=2, persistent_workers=True))
    pids = [worker.pid for worker in iterator._workers]
    next(iterator)
    del iterator
    gc.collect()
    assert not [pid for pid in pids if psutil.pid_exists(pid)]
