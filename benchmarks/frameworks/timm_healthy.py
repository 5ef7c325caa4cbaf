"""timm: its prefetching loader with a worker, a network that computes."""

import time
from contextlib import suppress

import torch
from timm.data import create_dataset, create_loader, resolve_data_config
from timm.loss import LabelSmoothingCrossEntropy
from timm.models import create_model
from timm.optim import create_optimizer_v2
from timm.scheduler import create_scheduler_v2
from timm.utils import AverageMeter, ModelEmaV3, accuracy


def train_one_epoch(epoch, model, loader, optimizer, loss_fn, device, scheduler, model_ema, autocast):
    losses = AverageMeter()
    batch_time = AverageMeter()
    data_time = AverageMeter()
    model.train()
    updates = epoch * len(loader)
    end = time.time()
    for batch_idx, (input, target) in enumerate(loader):
        data_time.update(time.time() - end)
        with autocast():
            output = model(input)
            loss = loss_fn(output, target)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        updates += 1
        model_ema.update(model, step=updates)
        losses.update(loss.item(), input.size(0))
        batch_time.update(time.time() - end)
        if batch_idx % 10 == 0:
            print(
                f"Train: {epoch} [{batch_idx:>4d}/{len(loader)}]  Loss: {losses.val:#.3g} ({losses.avg:#.3g})  "
                f"Time: {batch_time.val:.3f}s ({batch_time.avg:.3f}s)  Data: {data_time.val:.3f} ({data_time.avg:.3f})"
            )
        scheduler.step_update(num_updates=updates, metric=losses.avg)
        end = time.time()
    return losses.avg


def validate(model, loader, device):
    top1 = AverageMeter()
    model.eval()
    with torch.inference_mode():
        for input, target in loader:
            output = model(input)
            top1.update(accuracy(output, target, topk=(1,))[0].item(), input.size(0))
    return top1.avg


def main():
    device = torch.device("cpu")
    model = create_model("resnet18", pretrained=False, num_classes=4).to(device)
    optimizer = create_optimizer_v2(model, opt="adamw", lr=1e-3, weight_decay=0.05)
    model_ema = ModelEmaV3(model, decay=0.999)
    config = resolve_data_config({"input_size": (3, 128, 128)}, model=model)
    train = create_dataset("", root="data/pictures", split="train", is_training=True, batch_size=32)
    validation = create_dataset("", root="data/pictures", split="validation", batch_size=32)
    loader = create_loader(
        train,
        input_size=config["input_size"],
        batch_size=32,
        is_training=True,
        use_prefetcher=True,
        mean=config["mean"],
        std=config["std"],
        num_workers=1,
        persistent_workers=True,
        device=device,
    )
    loader_eval = create_loader(
        validation,
        input_size=config["input_size"],
        batch_size=50,
        use_prefetcher=True,
        num_workers=1,
        persistent_workers=True,
        device=device,
    )
    scheduler, epochs = create_scheduler_v2(optimizer, sched="cosine", num_epochs=2, warmup_epochs=1, cooldown_epochs=0, updates_per_epoch=len(loader), step_on_epochs=False)
    for epoch in range(2):
        train_one_epoch(epoch, model, loader, optimizer, LabelSmoothingCrossEntropy(0.1), device, scheduler, model_ema, suppress)
        print("top1", validate(model, loader_eval, device), "ema", validate(model_ema.module, loader_eval, device))


if __name__ == "__main__":
    main()
