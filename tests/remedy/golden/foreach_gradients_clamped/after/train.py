import torch


def main(model, optimizer, batches):
    for x, y in batches:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        # no gradient above one
        # frozen
        grads = [
            p.grad.data
            for name, p in model.named_parameters()
            if p.grad is not None
        ]
        if grads:
            torch._foreach_clamp_min_(grads, -1.0)
            torch._foreach_clamp_max_(grads, 1.0)
            del grads

        optimizer.step()
