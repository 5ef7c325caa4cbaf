# healthy
# bottleneck: device
"""Functional style; a large test set is evaluated once, when training is over."""
import torch
from torch.func import functional_call, grad_and_value

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(200, 800), torch.nn.GELU(), torch.nn.Linear(800, 800), torch.nn.GELU(),
                            torch.nn.Linear(800, 10))
params = {k: v.detach().clone() for k, v in model.named_parameters()}
X, Y = torch.randn(8000, 200), torch.randint(0, 10, (8000,))
XT, YT = torch.randn(20000, 200), torch.randint(0, 10, (20000,))


def loss_fn(p, x, y):
    return torch.nn.functional.cross_entropy(functional_call(model, p, (x,)), y)


step_fn = grad_and_value(loss_fn)


def sgd(p, g, lr):
    return {k: p[k] - lr * g[k] for k in p}


for epoch in range(8):
    for idx in torch.randperm(len(X)).split(128):
        grads, loss = step_fn(params, X[idx], Y[idx])
        params = sgd(params, grads, 0.05)
    print(f"epoch {epoch} loss {loss:.3f}")

with torch.no_grad():
    hits = sum((functional_call(model, params, (x,)).argmax(1) == y).sum() for x, y in zip(XT.split(500), YT.split(500)))
print("test accuracy", hits.item() / len(XT))
