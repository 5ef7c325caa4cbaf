# truth: cadence/progress-output | cadence/logging
# bottleneck: logging
# line: print|set_postfix|refresh|table|write|summary
"""A progress bar refreshed by force with a long postfix, and a status table printed after each tiny step."""
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from tqdm import tqdm

torch.manual_seed(0)
ds = TensorDataset(torch.randn(16_000, 6), torch.randn(16_000, 1))
model = nn.Linear(6, 1)
opt = torch.optim.SGD(model.parameters(), 0.01)
for epoch in range(6):
    bar = tqdm(DataLoader(ds, batch_size=16), mininterval=0, miniters=1, desc=f"epoch {epoch}")
    for x, y in bar:
        loss = nn.functional.mse_loss(model(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        bar.set_postfix({"loss": loss.item(), **{f"w{i}": v for i, v in enumerate(model.weight[0].tolist())}}, refresh=True)
        tqdm.write(f"loss {loss.item():.6f} bias {model.bias.item():.6f} grad {model.bias.grad.item():.6f}")
        bar.refresh()
