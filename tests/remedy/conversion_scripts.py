"""Functions in which rows are made tensors and put together, as somebody may write them: ``make`` gives them.

``# here`` stands in a line of the function that a finding names.
"""

from __future__ import annotations

from typing import Final

#: What is rewritten.
REWRITTEN: Final = {
    "default type of floats set after the list was begun": """
def make():
    rows = []
    torch.set_default_dtype(torch.float64)
    for i in range(3):
        rows.append(torch.tensor([float(i), 0.1]))
    x = torch.stack(rows) # here
    torch.set_default_dtype(torch.float32)
    return x
""",
    "device of a block within the loop": """
def make():
    rows = []
    for i in range(3):
        with torch.device("meta"):
            rows.append(torch.tensor([float(i), 0.1]))
    return str(torch.stack(rows).device) # here
""",
    "dqn": """
def make():
    batch=[(np.random.rand(4).astype(np.float32), random.randrange(2), 1.0, False) for _ in range(8)]
    s,a,r,d = zip(*batch)
    s = torch.FloatTensor(s) # here
    a = torch.LongTensor(a).unsqueeze(1)
    r = torch.FloatTensor(r)
    d = torch.FloatTensor(d)
    return s,a,r,d
""",
    "generator that refills": """
def obs():
    buf=np.zeros(3)
    for i in range(5):
        buf[:]=i
        yield buf
def make():
    return torch.stack([torch.as_tensor(o) for o in obs()]) # here
""",
    "tensor copies": """
def obs():
    buf=[0.0]*3
    for i in range(5):
        buf[i%3]=i
        yield buf
def make():
    return torch.stack([torch.tensor(o) for o in obs()]) # here
""",
    "side effects & rng": """
def make():
    seen=[]
    def f(i):
        seen.append(i)
        return [random.random() for _ in range(3)]
    x=torch.stack([torch.tensor(f(i)) for i in range(4)]) # here
    return x, seen, random.random()
""",
    "ragged": """
def make():
    rows=[[1,2],[3]]
    return torch.stack([torch.tensor(r) for r in rows]) # here
""",
    "walrus": """
def make():
    x=torch.stack([torch.tensor(y := [i, i+1]) for i in range(4)]) # here
    return x, y
""",
    "nested comps": """
def make():
    grid=[[1,2],[3,4]]
    x=torch.stack([torch.stack([torch.tensor(v) for v in row]) for row in grid]) # here
    return x
""",
    "double for with condition": """
def make():
    g=[[[1.,2.],[3.,4.]],[[5.,6.]]]
    return torch.stack([torch.tensor(p, dtype=torch.double) for row in g for p in row if p[0]!=3]) # here
""",
    "dict values, tuple target": """
def make():
    d={'a':(1,2.0),'b':(3,4.0)}
    x=torch.stack([torch.tensor(v) for k, v in d.items()]) # here
    y=torch.stack([torch.tensor(v) for v in d.values()])
    z=torch.stack([torch.tensor([ord(c) for c in k]) for k in d])
    return x,y,z
""",
    "tuple row": """
def make():
    xs=[1,2,3]
    return torch.stack([torch.tensor((x, x*2, x/3)) for x in xs]) # here
""",
    "named parens": """
def make():
    xs=[[1,2],[3,4]]
    return torch.stack([(torch.tensor((x))) for x in (xs)]) # here
""",
    "lambda": """
def make():
    f=lambda xs: torch.stack([torch.tensor(x) for x in xs]) # here
    return f([[1.0],[2]])
""",
    "class attr shadows": """
class torch2: pass
def make():
    stacked = [1]
    x = torch.stack([torch.tensor([v, stacked[0]]) for v in range(3)]) # here
    return x
""",
    "ternary in row": """
def make():
    xs=[[1],[2],[3]]
    return torch.cat([torch.tensor(x if x[0]>1 else [0.5]) for x in xs]) # here
""",
    "map": """
def make():
    xs = [[1, 2], [3, 4]]
    return (
        torch.stack(list(map(torch.tensor, xs))),
        torch.stack(tuple(map(torch.FloatTensor, xs))),
        torch.cat(list(torch.tensor(x) for x in xs)),
    )  # here
""",
    "multiline with comment": """
def make():
    xs=[[1,2],[3,4]]
    return torch.stack( # here
        [
            torch.tensor(x, dtype=torch.float32)
            for x in xs
        ],
    )
""",
    "multiline black style": """
def make():
    xs=[[1,2],[3,4]]
    y = 3 # here
    a = torch.stack(
        [torch.tensor([v + 1 for v in x], dtype=torch.float32) for x in xs]
    )
    b = torch.cat(
        [
            torch.tensor(
                [v * 2 for v in x],
                dtype=torch.float32,
            )
            for x in xs
        ],
        dim=0,
    )
    return a, b
""",
    "backslash": """
def make():
    xs=[[1,2],[3,4]]
    a = 1 # here
    return torch.stack([torch.tensor(x) \\
        for x in xs])
""",
    "starred": """
def make():
    xs=[[1,2],[3,4]]
    return torch.stack([torch.tensor(x) for x in [*xs, *xs]]) # here
""",
    "iter is generator expression": """
def make():
    xs = [[1, 2], [3, 4]]
    return torch.stack([torch.tensor(x) for x in (y for y in xs)]), torch.stack(
        [torch.tensor(x) for x in (xs if xs else [])]
    )  # here
""",
    "empty": """
def make():
    return torch.stack([torch.tensor(x) for x in []]) # here
""",
    "tensors": """
def make():
    xs=[torch.ones(2), torch.zeros(2)]
    return torch.stack([torch.tensor(x) for x in xs]), torch.stack([torch.as_tensor(x) for x in xs]) # here
""",
    "requires grad of parameters through as_tensor": """
def make():
    w=torch.ones(2, requires_grad=True)
    xs=[w, w*2]
    out=torch.stack([torch.as_tensor(x) for x in xs]) # here
    out.sum().backward()
    return out, w.grad
""",
    "property rows": """
class T:
    def __init__(s,i): s.i=i
    @property
    def state(s):
        s.i+=1
        return np.full(3, s.i, dtype=np.float32)
def make():
    ts=[T(1)]*3
    return torch.stack([torch.tensor(t.state) for t in ts]), torch.tensor([t.state for t in ts]) # here
""",
    "method chain with cast": """
def make():
    xs = [np.arange(3), np.arange(3) * 2]
    return (
        torch.stack([torch.tensor(x).float() for x in xs]),
        torch.stack([torch.as_tensor(x).to(torch.float64) for x in xs]),
        torch.cat([torch.tensor(x).unsqueeze(0).float() for x in xs]),
        torch.cat([torch.tensor(x).float().unsqueeze(0) for x in xs], dim=0),
    )  # here
""",
    "long of floats": """
def make():
    xs=[[1.5, float("nan")],[2.5, 1e30]]
    return torch.stack([torch.tensor(x).long() for x in xs]) # here
""",
    "to with dtype name variable": """
def make():
    xs = [[1.5], [2.5]]
    dt = torch.float64
    return torch.stack([torch.tensor(x, dtype=dt) for x in xs]), torch.stack(
        [torch.tensor(x).to(dt) for x in xs]
    )  # here
""",
    "device str": """
def make():
    xs = [[1.5], [2.5]]
    device = "cpu"
    return torch.stack([torch.tensor(x, device=device) for x in xs]).to(device), torch.stack(
        [torch.tensor(x, device="cpu") for x in xs]
    )  # here
""",
    "enumerate, index": """
def make():
    data=list(range(100))
    ix=torch.randint(90,(4,))
    x=torch.stack([torch.tensor(data[i:i+8]) for i in ix]) # here
    y=torch.stack([torch.tensor(data[i+1:i+9], dtype=torch.long) for i in ix])
    return x,y
""",
    "padded": """
def make():
    seqs=[[1,2,3],[4]]
    m=max(map(len,seqs))
    return torch.stack([torch.tensor(s + [0] * (m - len(s))) for s in seqs]) # here
""",
    "default dtype": """
def make():
    torch.set_default_dtype(torch.float64)
    try: return torch.stack([torch.tensor(s) for s in [[1.0],[2.0]]]) # here
    finally: torch.set_default_dtype(torch.float32)
""",
    "under device context": """
def make():
    with torch.device("cpu"):
        return torch.stack([torch.tensor(s) for s in [[1.0],[2.0]]]) # here
""",
    "exception midway caught": """
def make():
    done=[]
    def f(x):
        done.append(x)
        if x==2: raise KeyError(x)
        return [x]
    try: return torch.stack([torch.tensor(f(x)) for x in range(5)]) # here
    except KeyError: return done
""",
    "error of conversion midway caught: what was evaluated": """
def make():
    done=[]
    def f(x):
        done.append(x)
        return [x] if x<2 else [None]
    try: return torch.stack([torch.tensor(f(x)) for x in range(5)]) # here
    except Exception as e: return done, type(e), str(e)
""",
    "module level class var": """
rows=[[1,2],[3,4]]
X = torch.stack([torch.tensor(r) for r in rows]) # here
class K:
    rows=[[1.,2.]]
    Y = torch.stack([torch.tensor(r) for r in rows])
def make(): return X, K.Y
""",
    "alias": """
from torch import stack as st, tensor as tn, FloatTensor


def make():
    return (
        st([tn(r) for r in [[1, 2], [3, 4]]]),
        st([FloatTensor(r) for r in [[1, 2], [3, 4]]]),
        st([tn(r).float() for r in [[1, 2], [3, 4]]]),
    )  # here
""",
    "large ints mix": """
def make():
    return torch.stack(
        [torch.tensor(r, dtype=torch.float32) for r in [[2**53 + 1, 2**24 + 1], [2**62 + 1, 3.3]]]
    ), torch.stack([torch.tensor(r) for r in [[2**62 + 1], [0.5]]])  # here
""",
    "converted over nested lists, strings, sets": """
def make():
    seqs=[np.arange(3), np.arange(3)]
    more=[np.ones((2,2)), np.ones((2,2))]
    rag=[np.ones(2), np.ones(3)]
    out=[torch.tensor(seqs), torch.as_tensor(more, dtype=torch.float32)] # here
    try: torch.tensor(rag)
    except Exception as e: out.append((type(e), str(e)))
    return out
""",
    "nested function in comprehension conv inside dict": """
def make():
    rows=[{"x":[1,2],"y":3.0},{"x":[4,5],"y":6.0}]
    return {k: torch.stack([torch.tensor(r[k]) for r in rows]) for k in rows[0]} # here
""",
    "lambda default collate zip(*)": """
def make():
    batch=[([1.,2.],0),([3.,4.],1)]
    collate=lambda b: tuple(torch.stack([torch.tensor(v) for v in col]) for col in zip(*b)) # here
    return collate(batch)
""",
    "generator func yields batches": """
def batches():
    rows = [[1.0, 2.0], [3.0, 4.0]]
    for i in range(2):
        yield (
            torch.stack([torch.tensor(r) for r in rows]),
            torch.cat([torch.tensor([i]) for r in rows]),
        )  # here


def make():
    return list(batches())
""",
    "f-string comment hash": """
def make():
    rows={"#a":[1.,2.],"#b":[3.,4.]}
    return torch.stack([torch.tensor(rows["#" + c]) for c in "ab"]) # here
""",
    "result resized/in place": """
def make():
    rows=[np.ones(3,np.float32) for _ in range(2)]
    t=torch.stack([torch.FloatTensor(r) for r in rows]) # here
    t[0]=7; t.add_(1)
    return t, torch.from_numpy(rows[0])
""",
    "np array 2d rows": """
def make():
    a = np.random.rand(6, 4)
    return (
        torch.stack([torch.tensor(r, dtype=torch.float32) for r in a]),
        torch.stack([torch.tensor(a[i]) for i in (3, 1)]),
        torch.stack([torch.tensor(c) for c in a.T]),
    )  # here
""",
    "trailing comma, keyword tensors": """
def make():
    rows = [[1], [2]]
    return (
        torch.stack(tensors=[torch.tensor(r) for r in rows]),
        torch.stack([torch.tensor(data=r) for r in rows]),
        torch.stack(
            [torch.tensor(r) for r in rows],
        ),
        torch.cat(
            [
                torch.tensor(
                    r,
                )
                for r in rows
            ],
            -1,
        ),
    )  # here
""",
    "vmap etc": """
def make():
    def f(x):
        return x * torch.stack([torch.tensor(r) for r in [1.0, 2.0]]) # here
    return torch.vmap(f)(torch.ones(3,2))
""",
    "compile eager backend": """
def make():
    def f(x):
        return x * torch.stack([torch.tensor(r) for r in [1.0, 2.0]]) # here
    return torch.compile(f, backend="eager")(torch.ones(3,2))
""",
    "subclass of ndarray, np.ma, pandas like": """
class A(np.ndarray):
    pass


def make():
    rows = [np.ones(3).view(A), np.zeros(3).view(A)]
    return torch.stack([torch.tensor(r) for r in rows]), torch.stack(
        [torch.tensor(r.tolist()) for r in rows]
    )  # here
""",
    "del / name used after": """
def make():
    rows=[[1.],[2.]]
    s=9
    x=torch.stack([torch.tensor(s) for s in rows]) # here
    return x, s
""",
    "in place list mutated while iterating": """
def make():
    rows=[[1.],[2.]]
    def grow(r):
        if len(rows)<5: rows.append([r[0]+1])
        return r
    return torch.stack([torch.tensor(grow(r)) for r in rows]) # here
""",
    "zip rows of two": """
def make():
    a, b = [1, 2, 3], [4.0, 5.0, 6.0]
    return (
        torch.stack([torch.tensor(p) for p in zip(a, b)]),
        torch.stack([torch.tensor([x, y]) for x, y in zip(a, b)]),
        torch.stack([torch.tensor(x) for (x,) in zip(a)]),
    )  # here
""",
    "crlf-like & semicolons": """
def make(): rows=[[1.],[2.]]; return torch.stack([torch.tensor(s) for s in rows]) # here
""",
    "append": """
def make():
    batch=[([1.,2.],3),([3.,4.],5)]
    xs, ys = [], []
    for s, a in batch:
        xs.append(torch.tensor(s, dtype=torch.float32)) # here
        ys.append(torch.LongTensor([a]))
    xs = torch.stack(xs)
    return xs, torch.cat(ys), xs.mean(dim=0)
""",
    "in loop": """
def make():
    out=[]
    for e in range(3):
        xs=[]
        for s in [[1.],[2.]]:
            s[0]+=e
            xs.append(torch.tensor(s).double()) # here
        xs = torch.stack(xs, dim=0)
        out.append(xs * 2)
    return out
""",
    "buffer refilled": """
def make():
    buf=np.zeros(2); a=[]; b=[]
    for e in range(3):
        buf[0]=e
        a.append(torch.tensor(buf)) # here
        b.append(torch.as_tensor(buf))
    return torch.stack(a), torch.stack(b), torch.cat(a)
""",
    "stacked twice": """
def make():
    a=[]; o=[]
    for e in range(3):
        a.append(torch.tensor([e, e+1])) # here
        o.append(torch.stack(a))
    return o
""",
    "nested parens generator": """
def make():
    xs = [[1], [2]]
    return (
        torch.cat(list((torch.tensor(x + [1])) for x in xs)),
        torch.cat(tuple((torch.tensor(x + [1]) for x in xs))),
        torch.cat([(torch.tensor(x + [1])) for x in xs]),
    )  # here
""",
    "walrus append, tuple": """
def make():
    a=[]
    for i in range(4):
        a.append(torch.tensor((i, i+1))); a.append(torch.tensor(y := [i, 2])) # here
    return torch.stack(a), y
""",
    "exception in loop": """
def make():
    a=[]
    try:
        for i in [[1],[2,3],"x"]:
            a.append(torch.tensor(i)) # here
    except Exception as e:
        err=str(e)
    try: return torch.stack(a)
    except RuntimeError as e: return err, str(e)
""",
    "nested of two kinds": """
def make():
    g=[[1,2],[3,4]]
    return torch.stack([torch.tensor(torch.cat([torch.tensor([v]) for v in r]).tolist()) for r in g]) # here
""",
    "comment refused beside a good one": """
def make():
    g=[[1,2],[3,4]]
    a = torch.cat([
        torch.tensor(r, # why
           dtype=torch.long) for r in g])
    return torch.stack([torch.tensor(r) for r in g]), a # here
""",
    "append with a stack within, comment": """
def make():
    g=[[1,2],[3,4]]
    a=[]
    b=[]
    for r in g:
        a.append(torch.tensor([torch.cat([torch.tensor([v]) for v in r]).sum().item()]))
        b.append(torch.tensor(
            r, # why
            dtype=torch.long)) # here
    return torch.stack(a), torch.stack(b)
""",
}
#: What is left as it is.
LEFT: Final = {
    "conditional rows": """
def make():
    xs=[1,2,3]
    return torch.cat([torch.tensor([x]) if x>1 else torch.tensor([0.5]) for x in xs]) # here
""",
    "super": """
class A:
    def rows(self, i): return [i, i+1]
class B(A):
    def make(self):
        return torch.stack([torch.tensor(super(B, self).rows(i)) for i in range(3)]) # here
def make(): return B().make()
""",
    "unrelated kwargs spread": """
def make(**kw):
    return torch.stack([torch.tensor(i, **kw) for i in range(3)]) # here
""",
    "shadowed name torch inside comprehension": """
def make():
    import types
    fake=types.SimpleNamespace(tensor=lambda x: __import__("torch").tensor(x)*3)
    return __import__("torch").stack([torch.tensor([1]) for torch in [fake, fake]]) # here
""",
    "appended list": """
def make():
    states, acts = [], []
    for i in range(5):
        states.append(np.full(3,i,dtype=np.float64)); acts.append(i)
    states = torch.tensor(states, dtype=torch.float) # here
    return states, torch.LongTensor(acts)
""",
    "StopIteration from callee": """
def make():
    it=iter([[1],[2]])
    def f(): return it.__next__()
    try: return torch.stack([torch.tensor(f()) for _ in range(3)]) # here
    except StopIteration: return "stop"
""",
    "method .to(device) chains": """
def make():
    rows = [[1], [2]]
    device = "cpu"
    return (
        torch.stack([torch.tensor(r).to(device) for r in rows]),
        torch.stack([torch.tensor(r).cuda() if False else torch.tensor(r) for r in rows]),
        torch.stack([torch.tensor(r).view(1) for r in rows]),
    )  # here
""",
    "async comp": """
import asyncio
async def agen():
    for i in range(3): yield [i]
async def run():
    return torch.stack([torch.tensor(r) async for r in agen()]) # here
def make(): return asyncio.run(run())
""",
    "append read besides": """
def make():
    xs=[]
    for s in [[1.],[2.]]:
        xs.append(torch.tensor(s)) # here
        if len(xs) > 5: break
    return torch.stack(xs)
""",
    "mixed appends": """
def make():
    xs=[]
    for s in [[1.],[2.]]:
        xs.append(torch.tensor(s)) # here
    xs.append(torch.zeros(1))
    return torch.stack(xs)
""",
    "conditional rebinding": """
def make(flag=False):
    xs=[]
    for s in [[1.],[2.]]:
        xs.append(torch.tensor(s)) # here
    if flag:
        xs = torch.stack(xs)
    return xs
""",
    "device bound between": """
def make():
    a=[]
    device="cpu"
    for e in range(3):
        a.append(torch.tensor([e, e+1], device=device)) # here
    return torch.stack(a)
""",
    "closure": """
def make():
    a=[]
    def add(x): a.append(torch.tensor(x))
    add([1]); add([2])
    return torch.stack(a) # here
""",
    "append before begin in loop; returned list": """
def make():
    a=[]
    for i in range(4):
        a.append(torch.tensor([i])) # here
        if i % 2:
            b = torch.cat(a)
            a = []
    return b
""",
    "unsqueezed append": """
def make():
    a=[]
    for i in range(4):
        a.append(torch.tensor([i]).unsqueeze(0)) # here
    a = torch.cat(a)
    return a
""",
    "annotated": """
def make():
    a: list[torch.Tensor] = []
    for r in [[1,2],[3,4]]:
        a.append(torch.tensor(r)) # here
    return torch.stack(a)
""",
    "try/finally early return": """
def make():
    a = []
    for r in [[1,2],[3,4]]:
        a.append(torch.tensor(r)) # here
        if not a: return a
    return torch.stack(a)
""",
    "type tests: chained names": """
def make():
    a = b = []
    for r in [[1,2],[3,4]]:
        a.append(torch.tensor(r)) # here
    return torch.stack(a), b
""",
    "del and list handed on": """
def f(x): return len(x)
def make():
    a = []
    for r in [[1,2],[3,4]]:
        a.append(torch.tensor(r)) # here
    n = f(a)
    out = torch.stack(a)
    del a
    return out, n
""",
    "bound by the loop afterwards": """
def make():
    a = []
    for r in [[1,2],[3,4]]:
        a.append(torch.tensor(r)) # here
    out = torch.stack(a)
    for a in range(3): pass
    return out, a
""",
    "append result used": """
def make():
    a = []
    [a.append(torch.tensor(r)) for r in [[1,2],[3,4]]] # here
    return torch.stack(a)
""",
    "rebinding a in same statement, used in a loop before": """
def make():
    a = []
    out = None
    for k in range(2):
        if out is not None: out = out + a.sum()
        else: out = torch.zeros(())
        a = []
        for r in [[1,2],[3,4]]:
            a.append(torch.tensor(r)) # here
        a = torch.stack(a)
    return out
""",
}
