# truth: cadence/images | cadence/logging
# bottleneck: logging
# line: savefig|subplots|plot|imshow|close|add_figure
# not: host/python-in-step | input/single-process
"""A matplotlib figure of the fit is written in every iteration."""
import os
import tempfile

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch

torch.manual_seed(0)
folder = tempfile.mkdtemp()
t = torch.linspace(-3, 3, 200)[:, None]
target = torch.sin(2 * t) + 0.1 * torch.randn_like(t)
model = torch.nn.Sequential(torch.nn.Linear(1, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
for i in range(70):
    prediction = model(t)
    loss = torch.nn.functional.mse_loss(prediction, target)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    fig, ax = plt.subplots()
    ax.plot(t.numpy(), target.numpy(), ".", label="data")
    ax.plot(t.numpy(), prediction.detach().numpy(), label=f"fit {loss.item():.3f}")
    ax.legend()
    fig.savefig(os.path.join(folder, f"fit_{i % 5}.png"))
    plt.close(fig)
print("final", loss.item())
