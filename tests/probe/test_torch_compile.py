"""torch.compile compiles the same frames into the same graphs, with the same breaks."""

from __future__ import annotations

from pathlib import Path

from tests.running import run_observed

SCRIPT = """
    import torch
    from torch._dynamo.utils import counters

    def say():  # behind a bar torch 2.6 names the frame that a break stood in: a wrapper's here
        breaks = [(why.splitlines()[0].split(" | ")[0], n) for why, n in counters["graph_break"].items()]
        print(counters["stats"]["unique_graphs"], sorted(breaks))

    class Breaks(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU())
        def forward(self, x):
            y = self.inner(x)
            return self.inner(y * y.sum().item())

    x = torch.randn(4, 8)
    for method in (False, True):
        torch._dynamo.reset(); counters.clear()
        model = Breaks()
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        if method:
            model.compile(backend="eager")
            forward = model
        else:
            forward = torch.compile(model, backend="eager")
        for _ in range(3):
            forward(x).sum().backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step(); optimizer.zero_grad()
        model.eval()
        with torch.no_grad():
            forward(x)
        say()
    torch._dynamo.reset(); counters.clear()

    @torch.compile(backend="eager")
    def whole():
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model.inner(x.to(torch.float32)), x).backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)

    for _ in range(2):
        whole(); optimizer.step()
    say()
    torch._dynamo.reset(); counters.clear()

    @torch.compile(backend="eager")
    def by_name(loader):
        for x, in loader:
            torch.autograd.backward(model.inner(x).sum())
        return torch.autograd.grad(model.inner(x).sum(), list(model.inner.parameters()))

    dataset = torch.utils.data.TensorDataset(torch.randn(4, 8))
    by_name(torch.utils.data.DataLoader(dataset, batch_size=2))
    say()
    exported = torch.export.export(model.inner, (x,))
    print(len(list(exported.graph.nodes)), torch.jit.trace(model.inner, x)(x).shape)
    print(torch.fx.symbolic_trace(model.inner).code)
    print(torch.compile(model.inner, backend="eager", fullgraph=True)(x).shape)
    print([(frame.co_name, frame.co_filename) for frame in torch._dynamo.utils.get_compilation_metrics()])
"""


def test_frames_graphs_and_breaks_are_unchanged(tmp_path: Path) -> None:
    observed = run_observed(SCRIPT, folder=tmp_path)
    plain = run_observed(SCRIPT, folder=tmp_path, observed=False)
    assert (observed.returncode, plain.returncode) == (0, 0), observed.stderr[-2000:]
    assert observed.stdout == plain.stdout
    assert "forward" in plain.stdout and "hotloop" not in plain.stdout
    assert len([row for row in observed.of("forward") if row.flags & 0x10]) >= 6
