"""What a function's code shows of what it reads: whether its arguments decide what it gives.

It is shown where every name it loads is a plain value of its own module, a function of ``math``, torch or
numpy that is known here, or another function of which the same holds, and every attribute is one that
tensors, arrays, lists and the like have. Whatever else it names, it is not shown.
"""

from __future__ import annotations

import builtins
import dis
import math
import sys
from collections.abc import Iterable, Iterator
from types import BuiltinFunctionType, CodeType, FunctionType, ModuleType
from typing import Any, Final

#: Values whose ``repr`` says all of them.
PLAIN: Final = (bool, int, float, str, bytes, type(None))

_BUILTINS: Final = frozenset([
    "abs", "all", "any", "bool", "dict", "divmod", "enumerate", "filter", "float", "int", "len", "list",
    "map", "max", "min", "pow", "range", "reversed", "round", "slice", "sorted", "str", "sum", "tuple",
    "zip",
])  # fmt: skip
#: Of torch, its ``nn.functional`` and numpy: by name, none of them draws, writes elsewhere or reads a state.
_FUNCTIONS: Final = frozenset([
    "abs", "absolute", "add", "all", "amax", "amin", "any", "arange", "argmax", "argmin", "argsort",
    "argwhere", "array", "as_tensor", "asarray", "atan", "atan2", "arctan2", "bincount", "bitwise_and",
    "bitwise_not", "bitwise_or", "broadcast_to", "bucketize", "cat", "ceil", "chunk", "clamp", "clip",
    "column_stack", "concat", "concatenate", "copysign", "cos", "cosh", "cross", "cummax", "cumprod",
    "cumsum", "cdist", "deg2rad", "diag", "diff", "div", "dot", "einsum", "equal", "exp", "exp2",
    "expand_dims", "expm1", "eye", "fill_diagonal", "flatten", "flip", "floor", "floor_divide", "fmod",
    "from_numpy", "full", "full_like", "gather", "ge", "greater", "gt", "histc", "hypot", "index_select",
    "interpolate", "isclose", "isfinite", "isin", "isinf", "isnan", "le", "less", "linspace", "log",
    "log10", "log1p", "log2", "logaddexp", "logical_and", "logical_not", "logical_or", "logical_xor",
    "logspace", "lt", "masked_select", "matmul", "max", "maximum", "mean", "median", "meshgrid", "min",
    "minimum", "moveaxis", "mul", "nan_to_num", "ne", "neg", "no_grad", "nonzero", "norm", "normalize",
    "one_hot", "ones", "ones_like", "outer", "pad", "permute", "pow", "prod", "rad2deg", "ravel",
    "reciprocal", "remainder", "repeat", "repeat_interleave", "reshape", "roll", "rot90", "round",
    "rsqrt", "scatter", "scatter_add", "searchsorted", "sigmoid", "sign", "sin", "sinh", "softmax",
    "sort", "split", "sqrt", "square", "squeeze", "stack", "std", "sub", "sum", "swapaxes", "take",
    "take_along_dim", "tan", "tanh", "tensor", "tile", "topk", "transpose", "tril", "tril_indices",
    "triu", "triu_indices", "trunc", "unbind", "unique", "unravel_index", "unsqueeze", "var", "vstack",
    "hstack", "where", "zeros", "zeros_like",
])  # fmt: skip
#: Of tensors, arrays, lists, dictionaries and text, besides those functions.
_ATTRIBUTES: Final = frozenset([
    "T", "add_", "append", "astype", "bool", "byte", "clamp_", "clamp_max", "clamp_min", "clone",
    "contiguous", "copy", "copy_", "cpu", "data", "detach", "device", "dim", "div_", "double", "dtype",
    "eq", "exp_", "expand", "expand_as", "extend", "fill", "fill_", "float", "get", "half", "index",
    "index_add", "index_add_", "index_copy_", "index_fill_", "index_put", "index_put_", "insert", "int",
    "item", "items", "itemsize", "keys", "long", "mT", "masked_fill", "masked_fill_", "masked_scatter_",
    "maximum_", "mul_", "narrow", "ndim", "neg_", "new_full", "new_ones", "new_tensor", "new_zeros",
    "numel", "numpy", "pop", "pow_", "scatter_", "scatter_add_", "scatter_reduce", "scatter_reduce_",
    "select", "setdefault", "shape", "short", "size", "sqrt_", "square_", "sub_", "swapdims", "t", "to",
    "tolist", "type_as", "unfold", "update", "values", "view", "view_as", "zero_",
])  # fmt: skip
_MATH: Final = frozenset(value for value in vars(math).values() if isinstance(value, BuiltinFunctionType))
#: What code does besides loading names, and that reaches beyond it.
_BEYOND: Final = frozenset([
    "STORE_GLOBAL", "DELETE_GLOBAL", "IMPORT_NAME", "IMPORT_FROM", "STORE_ATTR", "DELETE_ATTR",
    "LOAD_NAME", "STORE_NAME", "LOAD_BUILD_CLASS", "LOAD_SUPER_ATTR", "LOAD_FROM_DICT_OR_GLOBALS",
    "GET_AWAITABLE",
])  # fmt: skip
_LOADS: Final = ("LOAD_ATTR", "LOAD_METHOD")
_MOST_FUNCTIONS: Final = 16


def reached(function: FunctionType) -> tuple[FunctionType, ...]:
    """The function and those that it calls, where its arguments alone decide what it gives; else nothing.

    Plain values of modules, which their code names, count as arguments (``named``).
    """
    found: list[FunctionType] = []
    todo = [function]
    while todo:
        one = todo.pop()
        if one in found:
            continue
        calls = _calls(one)
        if calls is None or len(found) == _MOST_FUNCTIONS:
            return ()
        found.append(one)
        todo += calls
    return tuple(found)


def named(functions: Iterable[FunctionType]) -> list[Any]:
    """What their modules hold under the names that their code has."""
    return [
        function.__globals__[name]
        for function in functions
        for code in codes(function.__code__)
        for name in code.co_names
        if name in function.__globals__
    ]


def _calls(function: FunctionType) -> list[FunctionType] | None:
    """The functions of the user's that it names; None where it is not shown what it reads."""
    given = [*(function.__defaults__ or ()), *(function.__kwdefaults__ or {}).values()]
    if function.__closure__ or not all(isinstance(value, PLAIN) for value in given):
        return None
    calls = []
    for code in codes(function.__code__):
        for value in _loaded(code, function.__globals__):
            if type(value) is FunctionType and not _is_known(value):
                calls.append(value)
            elif not isinstance(value, PLAIN) and not _is_known(value):
                return None
    return calls


def attribute(value: Any, name: str, default: Any = None) -> Any:
    """An attribute, whatever error the user's ``__getattr__`` raises where there is none."""
    try:
        return getattr(value, name, default)
    except Exception:
        return default


def codes(code: CodeType) -> Iterator[CodeType]:
    """A function's code and that of what is written within it."""
    yield code
    for one in code.co_consts:
        if isinstance(one, CodeType):
            yield from codes(one)


def _loaded(code: CodeType, values: dict[str, Any]) -> Iterator[Any]:
    """What the code loads by name, of modules what it takes out of them; Ellipsis where it cannot be told."""
    module: ModuleType | None = None  # loaded by the instruction before
    for instruction in dis.get_instructions(code):
        kind, name = instruction.opname, instruction.argval
        within, module = module, None
        if kind == "LOAD_GLOBAL":
            value = values.get(name, getattr(builtins, name, ...))
        elif within is not None:  # what other modules of the user's hold may be exchanged unseen
            value = getattr(within, name, ...) if kind in _LOADS and _is_library(within) else ...
        elif kind in _BEYOND or (kind in _LOADS and name not in _ATTRIBUTES | _FUNCTIONS):
            value = ...
        else:
            continue
        if isinstance(value, ModuleType):
            module = value
        else:
            yield value


def _is_library(module: ModuleType) -> bool:
    return module.__name__.partition(".")[0] in ("math", "torch", "numpy")


def _is_known(value: Any) -> bool:
    name = attribute(value, "__name__", "")
    if type(name) is not str:
        return False
    if getattr(builtins, name, None) is value:
        return name in _BUILTINS
    if isinstance(value, BuiltinFunctionType) and value in _MATH:
        return True
    torch, numpy = sys.modules["torch"], sys.modules.get("numpy")
    if isinstance(value, (torch.dtype, torch.device, torch.Size)):
        return True
    if numpy is not None and isinstance(value, type) and issubclass(value, numpy.generic):
        return True
    homes = [torch, torch.nn.functional, *([] if numpy is None else [numpy])]
    return name in _FUNCTIONS and any(getattr(home, name, None) is value for home in homes)
