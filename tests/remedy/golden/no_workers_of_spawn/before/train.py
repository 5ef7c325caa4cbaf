from torch.utils.data import DataLoader

loader = DataLoader(data, num_workers=2, multiprocessing_context="spawn", timeout=60)
