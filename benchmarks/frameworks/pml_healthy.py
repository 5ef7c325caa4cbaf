"""pytorch-metric-learning: triplets mined in each batch, a network that computes; the accuracy after the epoch."""

import torch
from pytorch_metric_learning import distances, losses, miners, reducers, samplers
from pytorch_metric_learning.utils.inference import CustomKNN
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(
            nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 64, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(9216, 64)
        )

    def forward(self, x):
        return self.body(x)


def main():
    labels = torch.arange(2000) % 10
    images = torch.randn(2000, 1, 28, 28) + 0.1 * labels[:, None, None, None]
    train = TensorDataset(images[:1800], labels[:1800])
    test = TensorDataset(images[1800:], labels[1800:])
    sampler = samplers.MPerClassSampler(labels[:1800], m=8, length_before_new_iter=1800)
    loader = DataLoader(train, batch_size=40, sampler=sampler)
    model = Net()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.001)
    distance = distances.CosineSimilarity()
    loss_func = losses.TripletMarginLoss(margin=0.2, distance=distance, reducer=reducers.ThresholdReducer(low=0))
    mining_func = miners.TripletMarginMiner(margin=0.2, distance=distance, type_of_triplets="semihard")
    for epoch in range(2):
        model.train()
        for batch_idx, (data, targets) in enumerate(loader):
            optimizer.zero_grad()
            embeddings = model(data)
            indices_tuple = mining_func(embeddings, targets)
            loss = loss_func(embeddings, targets, indices_tuple)
            loss.backward()
            optimizer.step()
            if batch_idx % 20 == 0:
                print(f"Epoch {epoch} Iteration {batch_idx}: Loss = {loss}, Number of mined triplets = {mining_func.num_triplets}")
    model.eval()
    with torch.no_grad():
        embeddings = torch.cat([model(data) for data, _ in DataLoader(test, batch_size=100)])
    found = CustomKNN(distance)(embeddings, k=2, reference=embeddings)[1][:, 1]
    print("accuracy", (labels[1800:][found] == labels[1800:]).float().mean().item())


if __name__ == "__main__":
    main()
