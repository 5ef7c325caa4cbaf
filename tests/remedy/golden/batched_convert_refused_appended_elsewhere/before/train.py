import torch


def collate(batch):
    boxes = []

    def add(box):
        boxes.append(torch.tensor(box))

    for box in batch:  # each
        add(box)
    return torch.stack(boxes)
