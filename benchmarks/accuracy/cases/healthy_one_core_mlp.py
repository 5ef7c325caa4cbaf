# healthy
# bottleneck: device
# cores: 1
"""Bare tensors and autograd, no Module, one core."""
import torch

torch.manual_seed(0)
w1 = torch.randn(300, 900).mul_(0.05).requires_grad_()
w2 = torch.randn(900, 900).mul_(0.03).requires_grad_()
w3 = torch.randn(900, 1).mul_(0.03).requires_grad_()
data = torch.randn(5000, 300)
target = data[:, :10].sum(1, keepdim=True)
optimizer = torch.optim.SGD([w1, w2, w3], lr=1e-2)
for step in range(350):
    rows = torch.randint(0, 5000, (128,))
    hidden = torch.relu(torch.relu(data[rows] @ w1) @ w2)
    loss = (hidden @ w3 - target[rows]).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    if step % 100 == 0:
        print(step, loss.item())
