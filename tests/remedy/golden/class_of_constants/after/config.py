class CFG:
    lr: float = 0.1
    num_workers: int = 4
