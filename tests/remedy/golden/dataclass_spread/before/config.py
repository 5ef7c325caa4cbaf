from dataclasses import dataclass, field


@dataclass
class Loading:
    batch_size: int = 8
    num_workers: int = 0  # per rank


@dataclass
class Config:
    lr: float = 1e-3
    loading: Loading = field(default_factory=Loading)
