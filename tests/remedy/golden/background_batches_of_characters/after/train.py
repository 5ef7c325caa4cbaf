import torch
import torch.nn as nn
from torch.nn import functional as F
from hotloop.feed import Background

# hyperparameters
batch_size = 16
block_size = 32
max_iters = 50
eval_interval = 10
device = 'cuda' if torch.cuda.is_available() else 'cpu'
eval_iters = 2
dropout = 0.0

torch.manual_seed(1337)

with open(torch.__file__, 'r', encoding='utf-8') as f:
    text = f.read(20_000)

chars = sorted(list(set(text)))
vocab_size = len(chars)
stoi = { ch:i for i,ch in enumerate(chars) }
itos = { i:ch for i,ch in enumerate(chars) }
encode = lambda s: [stoi[c] for c in s]
decode = lambda l: ''.join([itos[i] for i in l])

data = torch.tensor(encode(text), dtype=torch.long)
n = int(0.9*len(data))
train_data = data[:n]
val_data = data[n:]

# data loading
def get_batch(split):
    # generate a small batch of data of inputs x and targets y
    data = train_data if split == 'train' else val_data
    ix = torch.randint(len(data) - block_size, (batch_size,))
    x = torch.stack([data[i:i+block_size] for i in ix])
    y = torch.stack([data[i+1:i+block_size+1] for i in ix])
    x, y = x.to(device), y.to(device)
    return x, y

@torch.no_grad()
def estimate_loss():
    out = {}
    model.eval()
    for split in ['train', 'val']:
        losses = torch.zeros(eval_iters)
        for k in range(eval_iters):
            X, Y = get_batch(split)
            logits, loss = model(X, Y)
            losses[k] = loss.item()
        out[split] = losses.mean()
    model.train()
    return out

class LM(nn.Module):
    def __init__(self):
        super().__init__()
        self.emb = nn.Embedding(vocab_size, vocab_size)
    def forward(self, idx, targets=None):
        logits = self.emb(idx)
        return logits, F.cross_entropy(logits.view(-1, vocab_size), targets.view(-1))

model = LM()
m = model.to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-1)

next_batch = Background(lambda: get_batch('train'))
for iter in range(max_iters):
    if iter % eval_interval == 0 or iter == max_iters - 1:
        losses = estimate_loss()
        pass
    xb, yb = next_batch()
    logits, loss = model(xb, yb)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    optimizer.step()
decode([1, 2])
