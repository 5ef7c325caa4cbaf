from mylib import DataLoader as Base


def DataLoader(x):
    return Base(x, num_workers=4)


loader = DataLoader(data)
