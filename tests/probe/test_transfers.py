"""Copies between host and device, and waits. The meta device stands for an accelerator: it copies no data."""

from __future__ import annotations

from pathlib import Path

from tests.running import run_observed, succeeded

from hotloop.record.rows import (
    SYNC_FLOAT,
    SYNC_OPS,
    SYNC_WHOLE,
    TRANSFER_CONVERTS,
    TRANSFER_FLOAT,
    TRANSFER_NON_BLOCKING,
)

SCRIPT = """
    import torch
    x = torch.ones(4, 4)
    x.to("meta")  # line 4
    x.to("meta", torch.float16, True)  # line 5
    torch.ones(3, dtype=torch.int64).to(device="meta", non_blocking=True)  # line 6
    torch.empty(4, 4, device="meta").copy_(x)  # line 7
    x.to(torch.float64); x.to("cpu"); x.cpu(); x.copy_(x * 2); x.sum().item(); bool(x.sum() > 1); x.numpy()
    torch.nn.Linear(2, 2).to("meta")  # line 9
    for ask in ("item", "tolist", "__bool__", "numpy", "__float__"):
        try:
            getattr(torch.empty((), device="meta"), ask)()  # line 12
        except (RuntimeError, NotImplementedError, TypeError, ValueError):
            pass
    print(x.sum().item(), torch.nn.functional.relu(x).tolist()[0][0])
"""


def test_copies_and_waits_are_seen_with_their_kind(tmp_path: Path) -> None:
    done = run_observed(SCRIPT, folder=tmp_path, env={"HOTLOOP_ACCELERATOR": "meta"})
    assert (done.returncode, done.stdout) == (0, "32.0 2.0\n")
    assert "disabled" not in done.notes
    seen = [(done.line(row), row.value, row.obj, row.flags) for row in done.of("transfer")]
    assert seen == [
        (4, 64, 1, TRANSFER_FLOAT),
        (5, 64, 1, TRANSFER_FLOAT | TRANSFER_CONVERTS | TRANSFER_NON_BLOCKING),
        (6, 24, 1, TRANSFER_NON_BLOCKING),
        (7, 64, 1, TRANSFER_FLOAT),
        (9, 16, 1, TRANSFER_FLOAT),
        (9, 8, 1, TRANSFER_FLOAT),
    ]
    waits = [(done.line(row), SYNC_OPS[row.obj], row.flags) for row in done.of("sync")]
    assert waits == [(12, name, SYNC_FLOAT) for name in ("item", "tolist", "__bool__", "numpy", "__float__")]


def test_a_wait_says_which_kind_of_number_it_is_for(tmp_path: Path) -> None:
    script = """
        import torch
        class Own(torch.Tensor):
            pass
        def empty(*shape, dtype=torch.float32):
            return torch.empty(shape, dtype=dtype, device="meta")
        asked = [empty(dtype=torch.bfloat16), empty(dtype=torch.uint8), empty(dtype=torch.bool),
                 empty(dtype=torch.complex64), empty(1), torch.nn.Parameter(empty()),
                 empty().as_subclass(Own)]
        for one in asked:
            try:
                one.item()
            except (RuntimeError, NotImplementedError):
                pass
        names = {"inner": torch.Tensor.item}  # as another observer of ours wraps it
        exec(compile("def item(self):\\n    return inner(self)", torch._tensor.__file__, "exec"), names)
        own = {"inner": names["inner"], "__builtins__": __builtins__}
        torch.Tensor.item = type(names["item"])(names["item"].__code__, own)
        try:
            empty().item()
        except (RuntimeError, NotImplementedError):
            pass
        for show in (str, format):  # torch asks, for the user
            try:
                show(empty())
            except (RuntimeError, NotImplementedError):
                pass
    """
    done = succeeded(run_observed(script, folder=tmp_path, env={"HOTLOOP_ACCELERATOR": "meta"}))
    seen = [row.flags for row in done.of("sync")]
    assert (seen[:6], sum(seen[6:])) == ([SYNC_FLOAT, SYNC_WHOLE, 0, 0, 0, SYNC_FLOAT], SYNC_FLOAT)


def test_nothing_is_patched_without_an_accelerator(tmp_path: Path) -> None:
    script = """
        import torch
        print("item" in vars(torch.Tensor), "to" in vars(torch.Tensor), "copy_" in vars(torch.Tensor))
    """
    done = run_observed(script, folder=tmp_path)
    built = run_observed("import torch; print(bool(torch.version.cuda))", folder=tmp_path, observed=False)
    assert done.stdout == ("True True True\n" if built.stdout == "True\n" else "False False False\n")
