"""mlflow: autologging, and three metrics of every step to its database."""

import mlflow
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


def main():
    mlflow.set_tracking_uri("sqlite:///out-mlflow.db")
    mlflow.set_experiment("signals")
    mlflow.pytorch.autolog(log_every_n_step=1)
    data = TensorDataset(torch.randn(6400, 128), torch.randint(0, 10, (6400,)))
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model = nn.Sequential(nn.Linear(128, 256), nn.ReLU(), nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with mlflow.start_run():
        mlflow.log_params({"lr": 0.1, "batch_size": 32})
        for step, (inputs, targets) in enumerate(loader):
            output = model(inputs)
            loss = nn.functional.cross_entropy(output, targets)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            mlflow.log_metric("train_loss", loss.item(), step=step)
            mlflow.log_metric("train_accuracy", (output.argmax(1) == targets).float().mean().item(), step=step)
            mlflow.log_metric("lr", optimizer.param_groups[0]["lr"], step=step)


if __name__ == "__main__":
    main()
