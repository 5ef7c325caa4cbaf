from torch.utils.data import DataLoader

loader = DataLoader(data, num_workers=0, multiprocessing_context=None, timeout=0)
