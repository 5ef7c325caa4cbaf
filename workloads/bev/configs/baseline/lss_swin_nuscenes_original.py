"""The guide's «original»: as found, with the eight workers of its table; the project's own file has two."""

model = dict(
    embed_dim=96,
    depths=(2, 2, 6, 2),
    num_heads=(3, 6, 12, 24),
    lift_channels=64,
    topdown_width=128,
    topdown_layers=(4, 4),
)
loss = dict(
    # share of the visible cells that each class covers
    priors=(0.35, 0.03, 0.1, 0.04, 0.02, 0.007, 0.004, 0.003, 0.002, 4e-4, 8e-4, 3e-4, 1e-4, 5e-4),
    uncertainty_weight=0.001,
)
data = dict(
    samples_per_gpu=4,
    workers_per_gpu=8,
    pin_memory=True,  # dead
    persistent_workers=True,  # dead
    img_scale=(800, 600),
    mean=(123.675, 116.28, 103.53),
    std=(58.395, 57.12, 57.375),
    brightness_delta=32.0,
    contrast=0.3,
)
optimizer = dict(type="AdamW", lr=2e-4, weight_decay=0.01)
optimizer_config = dict(grad_clip=dict(max_norm=35.0))
lr_config = dict(
    policy="poly", power=0.9, min_lr=1e-6, warmup="linear", warmup_iters=1500, warmup_ratio=1e-6
)  # dead
runner = dict(type="IterBasedRunner", max_iters=200000)
checkpoint_config = dict(interval=20000)
evaluation = dict(interval=20000, metric="mIoU", efficient_test=True, pre_eval=True)  # the last two: dead
log_config = dict(interval=50)
