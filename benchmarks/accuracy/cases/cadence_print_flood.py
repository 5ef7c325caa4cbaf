# truth: cadence/progress-output | cadence/logging
# bottleneck: logging
# line: print|flush|write
"""Debug output that was never taken out: every weight row is printed in every step."""
import sys

import torch

torch.manual_seed(0)
torch.set_printoptions(profile="full", linewidth=4000)
w = torch.nn.Linear(128, 32)
optimizer = torch.optim.SGD(w.parameters(), lr=0.01)
for step in range(120):
    x = torch.randn(64, 128)
    loss = (w(x) - x[:, :32]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    print("step", step, "loss", loss.item())
    for name, p in w.named_parameters():
        print(name, p.data)
    sys.stdout.flush()
