import torch


class Step:
    """One iteration as an object; the loop is elsewhere."""

    def __init__(self, model, device):
        self.model, self.device = model, device
        self.optimizer = torch.optim.AdamW(model.parameters(), fused=device.type == "cuda")

    def __call__(self, batch):
        loss = self.model(batch.to(self.device)).mean()
        value = loss.item()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        return value
