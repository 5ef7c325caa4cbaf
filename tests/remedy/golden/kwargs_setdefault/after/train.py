import functools

from torch.utils.data import DataLoader

Batches = functools.partial(DataLoader, drop_last=True)


def build(cfg, **kwargs):
    kwargs.setdefault("num_workers", cfg.get("num_workers", 4))
    return Batches(data, collate_fn=collate, **kwargs)


loader = build({"batch_size": 8}, shuffle=True)
