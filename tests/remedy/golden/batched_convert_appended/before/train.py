import torch


def collate(batch, device):
    pictures, labels, boxes = [], [], []
    for picture, label, box in batch:  # each
        pictures.append(torch.tensor(picture, dtype=torch.float32, device=device))
        labels.append(torch.LongTensor([label]))
        boxes.append(
            torch.tensor(box)
        )
    pictures = torch.stack(pictures, dim=0)
    return pictures / 255, torch.cat(labels), torch.stack(boxes)
