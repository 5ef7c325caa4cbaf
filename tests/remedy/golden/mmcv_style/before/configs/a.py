# model
lr = 0.1
data = dict(
    samples_per_gpu=2,
    workers_per_gpu=0,  # each
    train=dict(type='A'))
