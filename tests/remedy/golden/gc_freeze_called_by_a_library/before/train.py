import optuna
import torch


def objective(trial):
    model = Net()
    optimizer = torch.optim.AdamW(model.parameters())
    for batch in loader:
        loss = model(batch)
        loss.backward()
        optimizer.step()


study = optuna.create_study()
study.optimize(objective, n_trials=20)
