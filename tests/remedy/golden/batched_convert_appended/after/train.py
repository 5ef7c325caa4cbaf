import torch
from hotloop.feed import Rows


def collate(batch, device):
    pictures, labels, boxes = Rows(torch.tensor, dtype=torch.float32, device=device), Rows(torch.LongTensor), Rows(torch.tensor)
    for picture, label, box in batch:  # each
        pictures.append(picture)
        labels.append([label])
        boxes.append(
            box
        )
    pictures = pictures.stacked()
    return pictures / 255, labels.concatenated(), boxes.stacked()
