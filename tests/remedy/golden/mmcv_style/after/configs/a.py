# model
lr = 0.1
data = dict(
    samples_per_gpu=2,
    workers_per_gpu=4,  # each
    train=dict(type='A'))
