"""Functions that read, or give, more than their arguments say, as somebody may write them.

Of each: the function that is to be kept, its module, what is done before an epoch, and with each number.
"""

from __future__ import annotations

from typing import Final

HEAD: Final = """
import dataclasses, functools, os, pathlib, random, tempfile, types
import numpy as np
import torch
SELDOM = random.Random(0)
"""
LOOP: Final = """
def run(begins):
    out = []
    for epoch in range(8):
        {epoch}
        begins()
        for i in range(24):
            {body}
    return out
"""

SCRIPTS: Final = {
    "attribute function swap": (
        "DS.load",
        """
def weak(x): return x
def strong(x): return x * 2
class DS:
    def __init__(self): self.t = weak
    def load(self, i): return [self.t(i) + k for k in range(3)]
d = DS()
""",
        "if epoch == 5: d.t = strong",
        """out.append(d.load(i))""",
    ),
    "attribute lambda swap": (
        "DS.load",
        """
class DS:
    def __init__(self): self.t = lambda x: x
    def load(self, i): return [self.t(i) + k for k in range(3)]
d = DS()
""",
        "if epoch == 5: d.t = lambda x: x + 100",
        """out.append(d.load(i))""",
    ),
    "global function rebound": (
        "load",
        """
def weak(x): return x
def strong(x): return x * 2
AUG = weak
def load(i): return [AUG(i)]
""",
        "if epoch == 5: globals().__setitem__('AUG', strong)",
        """out.append(load(i))""",
    ),
    "nested config dict": (
        "load",
        """
CFG = {"aug": {"scale": 1}}
def load(i): return [i * CFG["aug"]["scale"]]
""",
        "if epoch == 5: CFG['aug']['scale'] = 3",
        """out.append(load(i))""",
    ),
    "deep config attributes": (
        "DS.load",
        """
class C: pass
class DS:
    def __init__(self):
        self.cfg = C(); self.cfg.aug = C(); self.cfg.aug.geo = C(); self.cfg.aug.geo.scale = 1
    def load(self, i): return [i * self.cfg.aug.geo.scale]
d = DS()
""",
        "if epoch == 5: d.cfg.aug.geo.scale = 3",
        """out.append(d.load(i))""",
    ),
    "property": (
        "DS.load",
        """
class DS:
    def __init__(self): self._s = 1
    @property
    def scale(self): return self._s
    def load(self, i): return [i * self.scale]
d = DS()
""",
        "if epoch == 5: d._s = 3",
        """out.append(d.load(i))""",
    ),
    "transform object attribute": (
        "DS.load",
        """
class T:
    def __init__(self): self.scale = 1
    def __call__(self, x): return x * self.scale
class DS:
    def __init__(self): self.t = T()
    def load(self, i): return [self.t(i)]
d = DS()
""",
        "if epoch == 5: d.t.scale = 3",
        """out.append(d.load(i))""",
    ),
    "composed transforms": (
        "DS.load",
        """
class T:
    def __init__(self): self.scale = 1
    def __call__(self, x): return x * self.scale
class Compose:
    def __init__(self, ts): self.ts = ts
    def __call__(self, x):
        for t in self.ts: x = t(x)
        return x
class DS:
    def __init__(self): self.t = Compose([T(), Compose([T()])])
    def load(self, i): return [self.t(i)]
d = DS()
""",
        "if epoch == 5: d.t.ts[1].ts[0].scale = 3",
        """out.append(d.load(i))""",
    ),
    "dict subclass config": (
        "load",
        """
class Cfg(dict):
    __getattr__ = dict.__getitem__
    __setattr__ = dict.__setitem__
cfg = Cfg(scale=1)
def load(i): return [i * cfg.scale]
""",
        "if epoch == 5: cfg.scale = 3",
        """out.append(load(i))""",
    ),
    "slots config": (
        "DS.load",
        """
@dataclasses.dataclass(slots=True)
class Cfg:
    scale: int = 1
class DS:
    def __init__(self): self.cfg = Cfg()
    def load(self, i): return [i * self.cfg.scale]
d = DS()
""",
        "if epoch == 5: d.cfg.scale = 3",
        """out.append(d.load(i))""",
    ),
    "closure of helper": (
        "load",
        """
def make():
    s = [1]
    def scale(x): return x * s[0]
    return scale, s
scale, cell = make()
def load(i): return [scale(i)]
""",
        "if epoch == 5: cell[0] = 3",
        """out.append(load(i))""",
    ),
    "default mutated by caller seldom": (
        "load",
        """
def load(i, cache={}):
    if i not in cache: cache[i] = np.full(3, i)
    return cache[i]
""",
        "pass",
        """x = load(i); x += 1 if SELDOM.random() < 0.02 else 0; out.append(x.copy())""",
    ),
    "own cache of an attribute": (
        "DS.load",
        """
class DS:
    def __init__(self): self.rows = [np.full(3, i) for i in range(24)]
    def load(self, i): return self.rows[i]
d = DS()
""",
        "pass",
        """x = d.load(i); x += 1 if SELDOM.random() < 0.02 else 0; out.append(x.copy())""",
    ),
    "row of an array": (
        "load",
        """
D = np.arange(2400).reshape(24, 100)
def load(i): return D[i]
""",
        "pass",
        """x = load(i); x += 1 if SELDOM.random() < 0.02 else 0; out.append(x.copy())""",
    ),
    "from_numpy of a row": (
        "load",
        """
D = np.arange(2400).reshape(24, 100)
def load(i): return torch.from_numpy(D[i])
""",
        "pass",
        """x = load(i); x += 1 if SELDOM.random() < 0.02 else 0; out.append(x.clone())""",
    ),
    "row of a tensor": (
        "load",
        """
D = torch.arange(2400).reshape(24, 100)
def load(i): return D[i]
""",
        "pass",
        """x = load(i); x += 1 if SELDOM.random() < 0.02 else 0; out.append(x.clone())""",
    ),
    "list held elsewhere": (
        "load",
        """
D = [[i, i] for i in range(24)]
def load(i): return D[i]
""",
        "pass",
        """x = load(i); x.append(1) if SELDOM.random() < 0.02 else 0; out.append(list(x))""",
    ),
    "lru_cache behind it": (
        "load",
        """
@functools.lru_cache(None)
def row(i): return [i, i]
def load(i): return {"row": row(i)}
""",
        "pass",
        """x = load(i); x['row'].append(1) if SELDOM.random() < 0.02 else 0; out.append(list(x['row']))""",
    ),
    "crop is a view of what was given": (
        "crop",
        """
def crop(img): return img[2:6]
imgs = [np.arange(i, i + 80.).reshape(8, 10) for i in range(24)]
""",
        "pass",
        """img = imgs[i].copy(); c = crop(img); c *= 2; out.append(img.sum())""",
    ),
    "torch view of what was given": (
        "crop",
        """
def crop(img): return img.view(-1)
imgs = [torch.arange(i, i + 80.).reshape(8, 10) for i in range(24)]
""",
        "pass",
        """img = imgs[i].clone(); c = crop(img); c *= 2; out.append(img.sum())""",
    ),
    "torch generator in a list of a global": (
        "load",
        """
G = {"a": [torch.Generator().manual_seed(0)]}
def load(i): return [i + (1000 if torch.rand((), generator=G["a"][0]) < 0.02 else 0)]
""",
        "pass",
        """out.append(load(i))""",
    ),
    "grad mode": (
        "load",
        """
W = torch.ones(3, requires_grad=True)
def load(i): return W * i
""",
        "pass",
        """
            with torch.set_grad_enabled(epoch > 5):
                out.append(load(i).requires_grad)""",
    ),
    "files in a list": (
        "load",
        """
base = pathlib.Path(tempfile.mkdtemp())
def load(paths): return [pathlib.Path(p).read_text() for p in paths]
for i in range(24): (base / f"{i}.txt").write_text("a")
""",
        "if epoch == 5: [(base / f'{i}.txt').write_text('bb') for i in range(24)]",
        """out.append(load([str(base / f'{i}.txt')]))""",
    ),
    "object array": (
        "load",
        """
A = np.array(["a", "bb", None], dtype=object)
def load(a, i): return [str(a[0]) + str(i)]
""",
        "if epoch == 5: A[0] = 'changed'",
        """out.append(load(A, i))""",
    ),
    "memmap refilled": (
        "load",
        """
A = np.memmap(tempfile.mktemp(), dtype=np.int64, shape=(4,), mode="w+")
def load(a, i): return [int(a[0]) + i]
""",
        "if epoch == 5: A[0] = 100",
        """out.append(load(A, i))""",
    ),
    "object array in list, attribute changed": (
        "load",
        """
class Row:
    def __init__(self, v): self.v = v
rows = [Row(i) for i in range(24)]
def load(rs): return [r.v for r in rs]
""",
        "if epoch == 5: rows[3].v = 1000",
        """out.append(load([rows[i]]))""",
    ),
    "class made inside reads a global": (
        "load",
        """
SCALE = 1
class Tok:
    def __init__(self, i): self.i = i * SCALE
def load(i): return [Tok(i).i]
""",
        "if epoch == 5: globals().__setitem__('SCALE', 3)",
        """out.append(load(i))""",
    ),
    "partial attribute keywords": (
        "DS.load",
        """
def f(x, cfg): return x * cfg["s"]
class DS:
    def __init__(self): self.c = {"s": 1}; self.t = functools.partial(f, cfg=self.c)
    def load(self, i): return [self.t(i)]
d = DS()
""",
        "if epoch == 5: d.c['s'] = 3",
        """out.append(d.load(i))""",
    ),
    "config behind __getattr__": (
        "load",
        """
class Conf:
    def __init__(self, **k): object.__setattr__(self, "_content", k)
    def __getattr__(self, n): return self._content[n]
    def __setattr__(self, n, v): self._content[n] = v
cfg = Conf(scale=1)
def load(i): return [i * cfg.scale]
""",
        "if epoch == 5: cfg.scale = 3",
        """out.append(load(i))""",
    ),
    "parameter given, in place": (
        "load",
        """
W = torch.nn.Parameter(torch.ones(3))
def load(w, i): return (w.detach() * i).clone()
""",
        "if epoch == 5: W.data.mul_(2)",
        """out.append(load(W, i))""",
    ),
    "dynamic attribute": (
        "DS.load",
        """
class DS:
    def __init__(self): self.scale_train = 1
    def load(self, i, mode): return [i * getattr(self, "scale_" + mode)]
d = DS()
""",
        "if epoch == 5: d.scale_train = 3",
        """out.append(d.load(i, 'train'))""",
    ),
    "class attribute of a subclass": (
        "Base.load",
        """
class Base:
    def load(self, i): return [i * self.scale]
class Sub(Base):
    scale = 1
d = Sub()
""",
        "if epoch == 5: Sub.scale = 3",
        """out.append(d.load(i))""",
    ),
    "template method": (
        "Base.load",
        """
class Base:
    def load(self, i): return [self.change(i)]
class Sub(Base):
    def __init__(self): self.strength = 1
    def change(self, i): return i * self.strength
d = Sub()
""",
        "if epoch == 5: d.strength = 3",
        """out.append(d.load(i))""",
    ),
    "environment": (
        "load",
        """
os.environ["SCEN"] = "1"
def load(i): return [i * int(os.environ["SCEN"])]
""",
        "os.environ['SCEN'] = '3' if epoch == 5 else '1'",
        """out.append(load(i))""",
    ),
    "train and eval": (
        "load",
        """
M = torch.nn.BatchNorm1d(2).eval()
def load(i):
    with torch.no_grad(): return M(torch.full((2, 2), float(i)) * torch.tensor([[1.], [2.]]))
""",
        "M.train(epoch == 5)",
        """out.append(load(i))""",
    ),
    "module attribute chain": (
        "load",
        """
settings = types.ModuleType("settings_of_mine"); settings.scale = 1
def load(i): return [i * settings.scale]
""",
        "if epoch == 5: settings.scale = 3",
        """out.append(load(i))""",
    ),
    "json in list attribute of records": (
        "DS.load",
        """
class DS:
    def __init__(self): self.records = [{"id": i, "w": 1.0} for i in range(24)]
    def load(self, i): return [self.records[i]["w"] * i]
d = DS()
""",
        "if epoch == 5: d.records[5]['w'] = 2.0",
        """out.append(d.load(i))""",
    ),
    "weights of many records": (
        "DS.load",
        """
class DS:
    def __init__(self): self.records = [{"id": i, "w": 1.0} for i in range(500)]
    def load(self, i): return [self.records[i]["w"] * i]
d = DS()
""",
        "if epoch == 5: d.records[5]['w'] = 2.0",
        """out.append(d.load(i))""",
    ),
    "shared inside result": (
        "load",
        """
def load(i):
    a = np.arange(6.) + i
    return {"a": a, "b": a[:3]}
""",
        "pass",
        """x = load(i); x['b'] *= 2; out.append(x['a'].sum())""",
    ),
    "torch alias inside result": (
        "load",
        """
def load(i):
    a = torch.arange(6.) + i
    return {"a": a, "b": a.view(2, 3)}
""",
        "pass",
        """x = load(i); x['b'] *= 2; out.append(x['a'].sum())""",
    ),
}
