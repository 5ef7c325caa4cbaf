"""torchvision's reference training on two ranks; the averages of the log are made equal between them in every step."""

import datetime
import os
import time
from collections import defaultdict, deque

import torch
import torch.distributed as dist
import torchvision
from torch import nn
from torchvision.transforms import v2


class SmoothedValue:
    def __init__(self, window_size=20, fmt=None):
        self.deque = deque(maxlen=window_size)
        self.total = 0.0
        self.count = 0
        self.fmt = fmt or "{median:.4f} ({global_avg:.4f})"

    def update(self, value, n=1):
        self.deque.append(value)
        self.count += n
        self.total += value * n

    def synchronize_between_processes(self):
        t = torch.tensor([self.count, self.total], dtype=torch.float64)
        dist.barrier()
        dist.all_reduce(t)
        t = t.tolist()
        self.count = int(t[0]) // dist.get_world_size()
        self.total = t[1] / dist.get_world_size()

    @property
    def median(self):
        return torch.tensor(list(self.deque)).median().item()

    @property
    def global_avg(self):
        return self.total / self.count

    def __str__(self):
        return self.fmt.format(median=self.median, global_avg=self.global_avg)


class MetricLogger:
    def __init__(self, delimiter="\t"):
        self.meters = defaultdict(SmoothedValue)
        self.delimiter = delimiter

    def update(self, **kwargs):
        for k, v in kwargs.items():
            if isinstance(v, torch.Tensor):
                v = v.item()
            self.meters[k].update(v)

    def synchronize_between_processes(self):
        for meter in self.meters.values():
            meter.synchronize_between_processes()

    def log_every(self, iterable, print_freq, header=None):
        i = 0
        start_time = time.time()
        end = time.time()
        iter_time = SmoothedValue(fmt="{global_avg:.4f}")
        data_time = SmoothedValue(fmt="{global_avg:.4f}")
        for obj in iterable:
            data_time.update(time.time() - end)
            yield obj
            iter_time.update(time.time() - end)
            if i % print_freq == 0:
                meters = self.delimiter.join(f"{name}: {meter}" for name, meter in self.meters.items())
                print(f"{header} [{i}/{len(iterable)}] {meters} time: {iter_time} data: {data_time}")
            i += 1
            end = time.time()
        print(f"{header} Total time: {datetime.timedelta(seconds=int(time.time() - start_time))}")


def train_one_epoch(model, criterion, optimizer, data_loader, epoch):
    model.train()
    metric_logger = MetricLogger(delimiter="  ")
    for image, target in metric_logger.log_every(data_loader, 10, f"Epoch: [{epoch}]"):
        output = model(image)
        loss = criterion(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        batch_size = image.shape[0]
        right = output.argmax(1).eq(target).sum()
        top3 = output.topk(3)[1].eq(target[:, None]).any(1).sum()
        metric_logger.update(loss=loss, lr=optimizer.param_groups[0]["lr"])
        metric_logger.meters["acc1"].update((right / batch_size).item(), n=batch_size)
        metric_logger.meters["acc3"].update((top3 / batch_size).item(), n=batch_size)
        metric_logger.synchronize_between_processes()


def evaluate(model, criterion, data_loader):
    model.eval()
    metric_logger = MetricLogger(delimiter="  ")
    with torch.inference_mode():
        for image, target in metric_logger.log_every(data_loader, 100, "Test:"):
            output = model(image)
            metric_logger.update(loss=criterion(output, target), acc1=output.argmax(1).eq(target).float().mean())
    metric_logger.synchronize_between_processes()
    print(f"Test: Acc@1 {metric_logger.meters['acc1'].global_avg:.3f}")


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    augment = v2.Compose([v2.RandomHorizontalFlip(), v2.RandomCrop(32, padding=4), v2.ToDtype(torch.float32, scale=True), v2.Normalize([0.5] * 3, [0.25] * 3)])
    dataset = torchvision.datasets.FakeData(1280, (3, 32, 32), 10, transform=v2.Compose([v2.PILToTensor(), augment]))
    dataset_test = torchvision.datasets.FakeData(128, (3, 32, 32), 10, transform=v2.Compose([v2.ToImage(), v2.ToDtype(torch.float32, scale=True)]))
    sampler = torch.utils.data.distributed.DistributedSampler(dataset)
    loader = torch.utils.data.DataLoader(dataset, batch_size=8, sampler=sampler)
    loader_test = torch.utils.data.DataLoader(dataset_test, batch_size=32)
    model = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.ReLU(), nn.Conv2d(8, 16, 3, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(1024, 10))
    model = nn.parallel.DistributedDataParallel(model)
    criterion = nn.CrossEntropyLoss(label_smoothing=0.1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9, weight_decay=1e-4)
    lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=2, gamma=0.1)
    for epoch in range(4):
        sampler.set_epoch(epoch)
        train_one_epoch(model, criterion, optimizer, loader, epoch)
        lr_scheduler.step()
        evaluate(model, criterion, loader_test)
    if int(os.environ["RANK"]) == 0:
        torch.save({"model": model.module.state_dict(), "epoch": 4}, "tv_sync.pth")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
