import torch


def main(model, optimizer, batches):
    for x, y in batches:
        loss = torch.nn.functional.mse_loss(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        # no gradient above one
        for name, p in model.named_parameters():
            if p.grad is None:
                continue  # frozen
            p.grad.data.clamp_(-1.0, 1.0)

        optimizer.step()
