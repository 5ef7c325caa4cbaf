import callbacks
from torch.utils.data import DataLoader


def main(dataset, model, criterion, optimizer):
    callback = callbacks.from_file("good_interval.yaml")
    train_loader = DataLoader(dataset, batch_size=8, shuffle=True)
    for images, labels in train_loader:
        loss = criterion(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        callback.step()
