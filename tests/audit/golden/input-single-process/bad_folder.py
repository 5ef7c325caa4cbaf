from torch.utils.data import DataLoader
from torchvision import datasets

train_set = datasets.ImageFolder("train")
train_loader = DataLoader(train_set, batch_size=32, shuffle=True)
