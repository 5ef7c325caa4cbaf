from mylib import DataLoader as Base


def DataLoader(x):
    return Base(x)


loader = DataLoader(data)
