import torch as T
from torch import stack
import hotloop.feed

text = open("input.txt").read()
stoi = {c: i for i, c in enumerate(sorted(set(text)))}
stacked = True


def encode(s):
    return [stoi[c] for c in s]


def get_batch(n):
    ix = T.randint(len(text) - n - 1, (32,)).tolist()
    # 32 rows
    x = hotloop.feed.stacked(T.tensor, (encode(text[i:i + n]) for i in ix))
    y = T.stack([
        T.tensor((stoi[text[i + n]], i)).unsqueeze(0).to(T.float64)
        for i in ix  # one further
    ])
    z = hotloop.feed.stacked(T.tensor, ([stoi[c] for c in text[i:i + n]] for i in ix), dtype=T.long)
    return x, y, z
