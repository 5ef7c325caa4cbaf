def norm(model):
    total = 0.0
    for p in model.parameters():
        total += p.grad.data.norm(2).item() ** 2
    return total ** 0.5
