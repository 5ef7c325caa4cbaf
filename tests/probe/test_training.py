"""One ordinary training script with everything in it: what is seen of it, and that it computes the same."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.running import Observed, run_observed, succeeded

SCRIPT = """
    import hashlib, io, logging, select, socket, sys
    import torch
    from torch.utils.data import DataLoader, Dataset
    from torch.utils.data import TensorDataset

    class Noisy(Dataset):
        def __init__(self):
            self.table = torch.arange(70 * 8, dtype=torch.float32).reshape(70, 8)
        def __len__(self):
            return 70
        def __getitem__(self, i):
            return {"x": self.table[i] / 560 + torch.randn(8) * 0.1, "y": i % 2}

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.body = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(0.1))
            self.head = torch.nn.Linear(16, 2)
        def forward(self, x):
            return self.head(self.body(x))

    torch.manual_seed(1); torch.multiprocessing.set_start_method("fork")
    model = Net()
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("cpu", enabled=True)
    train = DataLoader(Noisy(), batch_size=16, shuffle=True, num_workers=2)  # line 30
    test = DataLoader(TensorDataset(torch.zeros(6, 8)), 4)
    listener = socket.socket(); listener.bind(("127.0.0.1", 0)); listener.listen()
    logging.basicConfig(stream=io.StringIO(), level="INFO"); log = logging.getLogger("train")
    for epoch in range(2):
        model.train()
        for batch in train:  # line 36
            with torch.autocast("cpu", torch.bfloat16):
                out = model(batch["x"])  # line 38
            loss = criterion(out.float(), batch["y"])
            optimizer.zero_grad()
            scaler.scale(loss).backward()  # line 41
            scaler.unscale_(optimizer)
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            select.select([listener], [], [], 0)  # line 46
        model.eval()
        with torch.no_grad():
            for (x,) in test:
                model(x)  # line 50
        log.info("epoch %d", epoch)  # line 51
        torch.save({"model": model.state_dict()}, io.BytesIO())  # line 52
    x = torch.ones(8, requires_grad=True)
    torch.autograd.grad((x * x).sum(), x)
    state = b"".join(p.detach().numpy().tobytes() for p in model.parameters())
    for data in (state, torch.get_rng_state().numpy().tobytes()):
        print(hashlib.sha256(data).hexdigest())
"""

LINES = {
    "loader": 30, "fetch": 36, "forward": 38, "backward": 41, "socket": 46, "test": 50, "log": 51,
    "save": 52,
}  # fmt: skip


@pytest.fixture(scope="module")
def observed(tmp_path_factory: pytest.TempPathFactory) -> Observed:
    return run_observed(SCRIPT, folder=tmp_path_factory.mktemp("on"))


def test_weights_and_random_state_are_the_same_bits(observed: Observed, tmp_path: Path) -> None:
    plain = run_observed(SCRIPT, folder=tmp_path, observed=False)
    assert plain.returncode == observed.returncode == 0
    assert observed.stdout == plain.stdout
    assert observed.stderr == plain.stderr
    assert "disabled" not in observed.notes


def test_every_operation_has_its_row_and_line(observed: Observed) -> None:
    offset = SCRIPT[: SCRIPT.index("train = DataLoader")].count("\n") + 1 - LINES["loader"]
    lines = {name: line + offset for name, line in LINES.items()}

    def count(kind: str, line: str) -> int:
        return sum(observed.line(row) == lines[line] for row in observed.of(kind))

    assert count("fetch", "fetch") == 12  # 5 batches and the end, twice
    assert count("forward", "forward") == 10
    assert count("backward", "backward") == 10
    assert count("socket", "socket") == 10
    assert count("forward", "test") == 4
    assert count("log", "log") == 2
    assert count("save", "save") == 4  # torch.save, and the state_dict before it
    counts = {"optimizer": 10, "zero_grad": 10, "clip": 10, "scaler": 30, "iter": 4, "shutdown": 2}
    assert {kind: len(observed.of(kind)) for kind in counts} == counts
    assert len(observed.of("backward")) == 11  # autograd.grad is one
    assert observed.notes["exit"][0]["steps"] == 10


def test_rows_say_what_the_operation_was(observed: Observed) -> None:
    fetches = [row for row in observed.of("fetch") if row.flags & 0x02]
    assert [row.value for row in fetches] == [16, 16, 16, 16, 6, 0] * 2
    assert [bool(row.flags & 0x01) for row in fetches] == [False] * 5 + [True] + [False] * 5 + [True]
    assert all(row.extra <= 4 for row in fetches)  # at most prefetch_factor times workers lie ready
    single = [row for row in observed.of("fetch") if not row.flags & 0x02]
    assert {row.extra for row in single} == {0xFFFF}
    assert [row.value for row in single] == [4, 2, 0] * 2
    flags = {row.flags for row in observed.of("forward") if row.flags & 0x08 and row.flags & 0x01}
    assert flags == {0x01 | 0x02 | 0x04 | 0x08}
    evaluation = {row.flags for row in observed.of("forward") if not row.flags & 0x01}
    assert evaluation == {0x08}
    assert observed.of("loss") == [] or all(row.value for row in observed.of("loss"))


def test_intervals_are_properly_nested(observed: Observed) -> None:
    rows = [row for row in observed.rows if row.kind not in ("sample", "gc", "module", "slowest", "collate")]
    stack: list[int] = []
    for row in sorted(rows, key=lambda row: (row.start, -row.dur)):
        while stack and stack[-1] <= row.start:
            stack.pop()
        assert not stack or row.start + row.dur <= stack[-1]
        stack.append(row.start + row.dur)


def test_notes_describe_the_objects(observed: Observed) -> None:
    first, second = observed.notes["loader"]
    assert first["given"] == ["dataset", "batch_size", "shuffle", "num_workers"]
    assert (first["num_workers"], first["prefetch_factor"], first["shuffle"]) == (2, 2, True)
    assert (first["dataset"]["class"], first["dataset"]["len"], first["dataset"]["bytes"]) == (
        "Noisy",
        70,
        2240,
    )
    assert first["dataset"]["file"].endswith("train.py")
    assert second["given"] == ["dataset", "batch_size"]
    workers = [set(note["workers"]) for note in observed.notes["iterator"] if note["loader"] == first["id"]]
    assert [len(pids) for pids in workers] == [2, 2]
    assert not workers[0] & workers[1]
    module = next(note for note in observed.notes["module"] if note["class"] == "Net")
    assert module["num_params"] == 178
    assert observed.notes["optimizer"][0]["class"] == "AdamW"
    batch = next(note for note in observed.notes["batch"] if note["loader"] == first["id"])
    assert [(field["path"], field["shape"]) for field in batch["fields"]] == [("x", [16, 8]), ("y", [16])]
    assert "Noisy" in observed.notes["source"][0]["text"]
    assert len(observed.with_role("worker")) == 4


MASKED = """
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.data import DataLoader

seen = []
class Function(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        seen.append(str(func))
        return func(*args, **(kwargs or {}))
class Dispatch(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        seen.append(str(func))
        return func(*args, **(kwargs or {}))

mask = torch.zeros(6, 40, dtype=torch.long)
for row in range(6):
    mask[row, : 3 * row + 2] = 1
masks = {
    "long": mask, "left": mask.flip(1).bool(), "documents": 2 * mask, "signed": -mask, "float": mask.float(),
    "empty": mask[:0], "rows": mask[0], "sparse": mask.to_sparse(), "own": torch.nn.Parameter(mask, False),
    "large": mask.repeat(3000, 1),
}
masks = {name: {"attention_mask": one} for name, one in masks.items()}
with Function(), Dispatch():
    iterator = iter(DataLoader([masks | {"other_mask": mask}], batch_size=None))
    random = torch.get_rng_state()
    next(iterator)
print(random.equal(torch.get_rng_state()), [one for one in seen if "max" in one or "sum" in one])
"""


def test_what_an_attention_mask_leaves_out_is_noted(tmp_path: Path) -> None:
    observed = succeeded(run_observed(MASKED, folder=tmp_path))
    (batch,) = observed.notes["batch"]
    noted = {one["path"].partition(".")[0]: one for one in batch["fields"] if "real" in one}
    ones = {name: (one["longest"], one["real"]) for name, one in noted.items()}
    assert ones == {"long": (17, 57), "left": (17, 57), "large": (17, 57 * 3000)}
    assert observed.stdout == "True []\n" and "disabled" not in observed.notes


FRAMEWORK = """
from torch.utils.data import DataLoader

class TrainingArguments:
    def __init__(self, **given):
        self.given = given

class Trainer:
    def __init__(self, dataset):
        self.dataset = dataset
    def get_train_dataloader(self):
        return self.build()
    def build(self):
        return DataLoader(self.dataset, batch_size=2)
    def train(self):
        return [len(batch) for batch in self.get_train_dataloader()]

def wrapped(init):
    def wrapper(obj, *args, **kwargs):
        init(obj, *args, **kwargs)
    return wrapper
"""


def test_a_loader_that_a_package_builds_says_which_of_its_functions_was_called(tmp_path: Path) -> None:
    package = tmp_path / "site-packages" / "transformers"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "trainer.py").write_text(FRAMEWORK)
    script = f"""
        import sys
        sys.path.append({str(tmp_path / "site-packages")!r})
        from torch.utils.data import DataLoader, random_split
        import transformers.trainer
        from transformers.trainer import Trainer

        class Own(Trainer):
            def get_train_dataloader(self):
                return super().get_train_dataloader()

        Trainer(list(range(4))).train()
        Own(list(range(4))).train()
        DataLoader.__init__ = transformers.trainer.wrapped(DataLoader.__init__)  # as Lightning does
        DataLoader(list(range(4)))
        """
    observed = run_observed(script, folder=tmp_path)
    trainer = "transformers.trainer:Trainer"
    by = [note["by"] for note in observed.notes["loader"]]
    assert by == [f"{trainer}.train", f"{trainer}.get_train_dataloader", ""]


IN_A_FUNCTION = """
import sys, time, torch
from torch import distributed, nn

def main():
    distributed.init_process_group("gloo", init_method=f"file://{sys.argv[1]}", rank=0, world_size=1)
    model = nn.parallel.DistributedDataParallel(nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    until = time.monotonic() + 2.5
    while time.monotonic() < until:
        model(torch.ones(4, 8)).sum().backward()
        optimizer.step()
    distributed.destroy_process_group()

main()
"""


def test_what_ddp_measured_is_known_of_a_model_that_is_gone_at_exit(tmp_path: Path) -> None:
    done = succeeded(run_observed(IN_A_FUNCTION, str(tmp_path / "store"), folder=tmp_path))
    assert done.notes["ddp"][-1]["iterations"] > 0
    assert done.notes["ddp"][-1]["avg_backward_comm_s"] > 0
