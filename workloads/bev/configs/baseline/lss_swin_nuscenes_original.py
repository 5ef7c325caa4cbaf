"""The guide's «original»: as found, with the eight workers of its table; the project's own file has two."""

_base_ = "lss_swin_nuscenes.py"
data = dict(workers_per_gpu=8)
