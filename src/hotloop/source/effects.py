"""The one table of methods and functions by effect. What no table has may do anything.

A method is known by its name alone, so each set says of what it speaks: ``add`` changes a set and no tensor.
"""

from __future__ import annotations

from typing import Final

#: Methods that change the list, dict, set, deque or array they are called on. A tensor's end in ``_``: see
#: ``in_place``.
CHANGES: Final = frozenset([
    "append", "appendleft", "extend", "extendleft", "insert", "add", "update", "setdefault", "put",
    "put_nowait", "__setitem__", "pop", "popleft", "popitem", "remove", "discard", "clear", "__delitem__",
    "difference_update", "intersection_update", "symmetric_difference_update", "sort", "reverse", "rotate",
    "move_to_end", "fill", "resize", "setfield", "itemset", "byteswap",
])  # fmt: skip
#: Methods that have an effect of some kind: what calls one may not be left out, moved or run again. Beside
#: the above those that move on a queue, file or generator, and those of modules and optimizers.
ACTS: Final = CHANGES | {
    "get_nowait", "recv", "send", "read", "readline", "readlines", "readinto", "write", "writelines",
    "seek", "flush", "close", "truncate", "__next__", "next", "step", "backward", "zero_grad", "train",
    "eval", "load_state_dict", "add_param_group", "register_buffer", "register_parameter",
    "register_module", "add_module", "requires_grad_", "reset", "apply",
}  # fmt: skip

#: Functions that change the first of what they are given, by their last name.
FIRST: Final = frozenset([
    "at", "copyto", "put", "place", "putmask", "shuffle", "fill_diagonal", "put_along_axis", "heappush",
    "heappop", "heapify", "heapreplace", "heappushpop", "insort", "insort_left", "insort_right", "setitem",
    "delitem", "iadd", "isub", "imul", "iconcat", "next", "islice", "setattr", "delattr",
])  # fmt: skip
#: What sets names or attributes under a name that is not written.
BY_NAME: Final = frozenset(["exec", "eval", "setattr", "delattr", "__setattr__", "__delattr__"])

#: Built-ins that change nothing and depend on nothing but what they are given.
PURE_BUILTINS: Final = frozenset([
    "abs", "all", "any", "bin", "bool", "bytes", "callable", "chr", "complex", "dict", "divmod",
    "enumerate", "filter", "float", "format", "frozenset", "getattr", "hasattr", "hash", "hex", "id", "int",
    "isinstance", "issubclass", "len", "list", "map", "max", "min", "oct", "ord", "pow", "range", "repr",
    "reversed", "round", "set", "slice", "sorted", "str", "sum", "super", "tuple", "type", "zip",
])  # fmt: skip
#: Methods of text, numbers, containers, arrays and tensors that only read.
PURE_METHODS: Final = frozenset([
    # text and paths
    "capitalize", "casefold", "center", "count", "decode", "encode", "endswith", "expanduser", "find",
    "format", "index", "isdigit", "join", "joinpath", "ljust", "lower", "lstrip", "removeprefix",
    "removesuffix", "replace", "resolve", "rfind", "rjust", "rpartition", "rsplit", "rstrip", "split",
    "splitlines", "startswith", "strip", "title", "upper", "with_name", "with_suffix", "zfill", "partition",
    # containers
    "copy", "get", "items", "keys", "values", "union", "intersection", "difference", "issubset",
    "issuperset",
    # arrays and tensors
    "abs", "all", "any", "argmax", "argmin", "argsort", "astype", "bfloat16", "bool", "bmm", "byte", "ceil",
    "chunk", "clamp", "clone", "contiguous", "cos", "cpu", "cuda", "cumsum", "detach", "device", "dim",
    "double", "eq", "exp", "expand", "expand_as", "flatten", "float", "floor", "gather", "half", "int",
    "isfinite", "isinf", "isnan", "item", "log", "long", "masked_fill", "matmul", "max", "mean", "min",
    "mm", "mul", "nelement", "new_full", "new_ones", "new_tensor", "new_zeros", "norm", "numel", "numpy",
    "permute", "pin_memory", "pow", "prod", "ravel", "relu", "repeat", "repeat_interleave", "reshape",
    "round", "select", "shape", "short", "sigmoid", "sign", "sin", "size", "softmax", "sqrt", "square",
    "squeeze", "std", "stride", "sub", "sum", "swapaxes", "t", "tanh", "to", "tobytes", "tolist", "topk",
    "transpose", "tril", "triu", "type", "type_as", "unbind", "unflatten", "unfold", "unique", "unsqueeze",
    "var", "view", "view_as",
    # modules, asked
    "parameters", "named_parameters", "modules", "named_modules", "children", "named_children", "buffers",
    "state_dict", "get_last_lr",
])  # fmt: skip
#: Modules whose functions only read what they are given, but for those in ``FIRST``, and keep nothing.
PURE_MODULES: Final = (
    "numpy.", "torch.", "math.", "operator.", "functools.", "itertools.", "einops.", "copy.", "sklearn.",
    "os.path.",
)  # fmt: skip
#: Of these modules what does act, as qualified names begin.
ACTING: Final = (
    "torch.save", "torch.load", "torch.manual_seed", "torch.set_", "torch.cuda.set_",
    "torch.cuda.empty_cache", "torch.cuda.synchronize", "torch.distributed.", "torch.autograd.backward",
    "torch.nn.utils.clip_grad", "torch.nn.init.", "torch.backends.", "torch.use_deterministic",
    "numpy.save", "numpy.load", "numpy.seterr", "numpy.fromfile", "torch.utils.tensorboard.",
)  # fmt: skip

#: What draws from Python's or numpy's generators, as qualified names begin.
HOST_DRAWS: Final = ("random.", "numpy.random.")
#: What draws from torch's generators, as qualified names.
TORCH_DRAWS: Final = frozenset(f"torch.{name}" for name in [
    "rand", "randn", "randint", "randperm", "rand_like", "randn_like", "randint_like", "normal", "bernoulli",
    "multinomial", "poisson", "nn.functional.dropout", "nn.functional.dropout1d", "nn.functional.dropout2d",
    "nn.functional.dropout3d", "nn.functional.alpha_dropout", "nn.functional.feature_alpha_dropout",
    "nn.functional.gumbel_softmax", "nn.functional.rrelu",
])  # fmt: skip
#: Methods that draw: of a generator, and of a tensor in place.
DRAWING_METHODS: Final = frozenset([
    "random", "integers", "normal", "uniform", "choice", "choices", "shuffle", "permutation", "permuted",
    "randint", "randrange", "standard_normal", "gauss", "sample", "rsample", "binomial", "poisson",
    "exponential", "beta", "gamma", "rand", "randn", "random_sample", "multinomial", "laplace", "lognormal",
    "geometric", "dirichlet", "getrandbits", "randbytes", "random_", "normal_", "uniform_", "bernoulli",
    "bernoulli_", "exponential_", "log_normal_", "geometric_", "cauchy_",
])  # fmt: skip


def in_place(name: str) -> bool:
    """Whether a method changes the container, array or tensor it is called on, by its name."""
    return name in CHANGES or (name.endswith("_") and not name.startswith("_") and name != "requires_grad_")


def draws(qualified: str) -> bool:
    """Whether a function, by its full name, draws random numbers."""
    return qualified.startswith(HOST_DRAWS) or qualified in TORCH_DRAWS


def pure_function(qualified: str) -> bool:
    """Whether a function, by its full name, changes nothing, keeps nothing and draws nothing."""
    name = qualified.rpartition(".")[2]
    if draws(qualified) or qualified.startswith(ACTING) or name in FIRST or in_place(name):
        return False
    return qualified.startswith(PURE_MODULES)
