"""The device clock's connection to torch.cuda, as far as a machine without a GPU can show it.

The script lends torch.cuda an event that passes at once, so the connection runs; what a device really does is
tests/probe/test_deviceclock.py, and a GPU.
"""

from __future__ import annotations

from pathlib import Path

from tests.running import run_observed, succeeded

from hotloop.record.rows import BACKWARD, DEVICE_END, FETCH, FORWARD, OPTIMIZER, SAVE

TRAINING = """
import io, time
import torch
from torch.utils.data import DataLoader

class Event:
    def __init__(self, enable_timing): self.at = None
    def record(self): self.at = time.perf_counter_ns()
    def query(self): return True
    def elapsed_time(self, other): return (other.at - self.at) / 1e6

def lend():
    torch.cuda.Event = Event
    torch.cuda.is_current_stream_capturing = lambda: False
    torch.cuda.get_device_name = lambda: "lent"
    torch.cuda.get_device_capability = lambda: (9, 0)
    torch.cuda.device_count = lambda: 1
    torch.cuda.is_initialized = lambda: True

lend()
torch.manual_seed(0)
net = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
for epoch in range(3):
    for x in DataLoader(torch.ones(64, 8), batch_size=4):
        time.sleep(0.002)
        net(x.to(torch.float32)).mean().backward()
        optimizer.step()
        if epoch == 2:
            torch.save(net.state_dict(), io.BytesIO())
    time.sleep(0.5)
print(net.weight.sum().item())
"""


def test_boundaries_of_outermost_phases_are_marked(tmp_path: Path) -> None:
    observed = succeeded(run_observed(TRAINING, folder=tmp_path))
    assert observed.notes.get("disabled", []) == []
    rows = observed.of("device")
    assert {row.obj for row in rows} == {FETCH, FORWARD, BACKWARD, OPTIMIZER, SAVE}
    starts = [row.start for row in rows]
    assert starts == sorted(starts)
    fetches = [row for row in rows if row.obj == FETCH]
    assert {row.flags for row in fetches} == {0, DEVICE_END}
