"""Objects that expressions name, by path: ``a`` or ``a.b``, also of ``a.b[i]``, and what was made of what."""

from __future__ import annotations

import ast
import functools
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping

from hotloop.measure.statements import FunctionNode, own_nodes

#: What is called so reads the samples that it is given.
_OF_SAMPLES = re.compile(r"(Dataset|Loader|Subset|Sampler|Pipe|Concat\w*)$")
#: These give what they were given.
_PASS_ON = frozenset(["iter", "enumerate", "tqdm", "cycle", "prepare", "prepare_data_loader", "zip", "chain"])
#: What loaders are given beside samples.
_SETTINGS = frozenset(
    [
        "batch_size",
        "shuffle",
        "num_workers",
        "pin_memory",
        "drop_last",
        "timeout",
        "prefetch_factor",
        "persistent_workers",
        "num_samples",
        "replacement",
        "generator",
        "seed",
    ]
)


def texts(node: ast.AST) -> Iterator[str]:
    """The strings of an expression or a function."""
    for part in ast.walk(node):
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            yield part.value


def handed(call: ast.Call, callee: ast.FunctionDef | ast.AsyncFunctionDef) -> dict[str, ast.expr]:
    """Parameter -> argument, as far as the call shows."""
    given = callee.args
    parameters = [one.arg for one in (*given.posonlyargs, *given.args)]
    result: dict[str, ast.expr] = {}
    if parameters[:1] in (["self"], ["cls"]):
        if isinstance(call.func, ast.Attribute) and callee.name != "__init__":
            result[parameters[0]] = call.func.value
        elif callee.name == "__call__":
            result[parameters[0]] = call.func
        parameters = parameters[1:]
    for name, value in zip(parameters, call.args, strict=False):
        if isinstance(value, ast.Starred):
            break
        result[name] = value
    known = {one.arg for one in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
    result.update({one.arg: one.value for one in call.keywords if one.arg in known and one.arg is not None})
    return result


@functools.cache
def bound_names(node: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
    """Names that are a function's own: its parameters and what it assigns."""
    own, outer = set(), set()
    for child in own_nodes(node):
        if isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            own.add(child.id)
        elif isinstance(child, ast.arg):
            own.add(child.arg)
        elif isinstance(child, ast.Global):
            outer.update(child.names)
    return frozenset(own - outer)


@functools.cache
def made_of(node: FunctionNode, readers: frozenset[str] = frozenset()) -> Mapping[str, frozenset[str]]:
    """Names that what reads samples was bound to -> what it was given: a loader is made of a dataset. Two
    names of one object are made of each other. ``readers``: classes of the file that give samples.
    """
    found: dict[str, set[str]] = defaultdict(set)
    for child in own_nodes(node):
        if isinstance(child, ast.Assign):
            for target in child.targets:
                for one, value in _pairs(target, child.value):
                    found[path_of(one)] |= set(read_samples(value, readers)) - {path_of(one)}
                    if is_plain(value):
                        found[path_of(value)].add(path_of(one))
        elif isinstance(child, ast.withitem) and isinstance(child.optional_vars, ast.Name):
            context = child.context_expr
            if isinstance(context, ast.Call) and last_name(context.func) == "open":
                found[child.optional_vars.id] |= set(objects(context))
    return {name: frozenset(used) for name, used in found.items()}


@functools.cache
def held_by_class(owner: ast.ClassDef, readers: frozenset[str] = frozenset()) -> Mapping[str, frozenset[str]]:
    """What the methods of a class keep in its object -> what else the object keeps each was made of."""
    found: dict[str, frozenset[str]] = {}
    for method in owner.body:
        if isinstance(method, ast.FunctionDef | ast.AsyncFunctionDef):
            for name, used in held_by_self(method, readers).items():
                if used:
                    found[name] = found.get(name, frozenset()) | used
    return found


def held_by_self(node: FunctionNode, readers: frozenset[str] = frozenset()) -> Mapping[str, frozenset[str]]:
    """The same for what a method keeps in its object: of what else the object keeps each was made."""
    relation = made_of(node, readers)
    kept = [name for name in relation if name.startswith("self.")]
    found: dict[str, set[str]] = {name: set() for name in kept}
    if any(relation[name] for name in kept):
        uses = users(relation)
        for other in kept:
            for name in made_from(uses, other) & found.keys() - {other}:
                found[name].add(other)
    return {name: frozenset(used) for name, used in found.items()}


def read_samples(node: ast.AST, readers: frozenset[str]) -> Iterator[str]:
    """The objects whose samples a value reads: an object itself, or what a dataset or a loader is given."""
    if not isinstance(node, ast.Call):
        yield from objects(node)
        return
    name = last_name(node.func)
    names = {name, last_name(node.func.value)} if isinstance(node.func, ast.Attribute) else {name}
    if name in _PASS_ON:
        given: list[ast.expr] = node.args if name in ("zip", "chain") else node.args[:1]
    elif names & readers or any(map(_OF_SAMPLES.search, names)):
        of_loader = name == "DataLoader"
        given = [*node.args[:1], *node.args[3:5]] if of_loader else list(node.args)
        given += [one.value for one in node.keywords if one.arg not in _SETTINGS]
    else:
        return
    for one in given:
        for part in one.elts if isinstance(one, ast.Tuple | ast.List) else [one]:
            yield from read_samples(part, readers)


@functools.cache
def sample_classes(tree: ast.Module) -> frozenset[str]:
    """Classes of a file that give samples, or the order of samples."""
    return frozenset(
        node.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        and (
            any(_OF_SAMPLES.search(last_name(base)) for base in node.bases)
            or any(getattr(child, "name", "") in ("__getitem__", "__iter__") for child in node.body)
        )
    )


def _pairs(target: ast.expr, value: ast.expr) -> Iterator[tuple[ast.expr, ast.expr]]:
    """The plain targets of an assignment, each with the call or the name that it is bound to."""
    if isinstance(target, ast.Tuple | ast.List) and isinstance(value, ast.Tuple | ast.List):
        if len(target.elts) == len(value.elts):
            for one, its in zip(target.elts, value.elts, strict=True):
                yield from _pairs(one, its)
    elif is_plain(target) and isinstance(value, ast.Call | ast.Name | ast.Attribute):
        yield target, value


@functools.cache
def imported(tree: ast.Module) -> frozenset[str]:
    """Names of modules and of what was taken from them."""
    return frozenset(
        (alias.asname or alias.name).split(".")[0]
        for node in ast.walk(tree)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in node.names
    )


def objects(node: ast.AST) -> Iterator[str]:
    """The objects an expression hands on: not what it calls."""
    if isinstance(node, ast.Call):
        for given in (*node.args, *(keyword.value for keyword in node.keywords)):
            yield from objects(given)
    elif isinstance(node, ast.Name | ast.Attribute) and path_of(node):
        yield path_of(node)
    elif isinstance(node, ast.Tuple | ast.List | ast.Dict | ast.Starred):
        for child in ast.iter_child_nodes(node):
            yield from objects(child)


def users(relation: Mapping[str, Iterable[str]]) -> Mapping[str, set[str]]:
    """What each object was used to make."""
    found: dict[str, set[str]] = defaultdict(set)
    for name, used in relation.items():
        for one in used:
            found[one].add(name)
    return found


def made_from(uses: Mapping[str, set[str]], path: str) -> set[str]:
    """What was made of an object, or of what was made of it, and what holds that."""
    found: set[str] = set()
    rest = [name for one, names in uses.items() if overlap(one, path) for name in names]
    while rest:
        one = rest.pop()
        # What an object holds may have another name; of ``self`` all of a class would be made.
        for holder in _holders(one):
            if holder not in found:
                found.add(holder)
                rest += uses.get(holder, ())
    return found


def _holders(path: str) -> Iterator[str]:
    yield path
    while "." in path:
        path = path.rpartition(".")[0]
        if path not in ("self", "cls"):
            yield path


def overlap(one: str, other: str) -> bool:
    """Whether one of two objects is the other one, or is held by it."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")


def is_plain(node: ast.AST) -> bool:
    """Whether an expression names an object: ``a``, ``a.b``, ``a["b"]``."""
    if isinstance(node, ast.Subscript):
        return _key(node) != "" and is_plain(node.value)
    return isinstance(node, ast.Name) or (isinstance(node, ast.Attribute) and is_plain(node.value))


def path_of(node: ast.AST) -> str:
    """``a.b`` of ``a.b``, ``a["b"]``, ``a.b[i]`` and ``a.b[i].c``; "" where no name stands in front."""
    names: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
        elif key := _key(node):
            names.append(key)
        else:
            names.clear()
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else ""


def _key(node: ast.Subscript) -> str:
    """The word an item goes by; "" for one that is counted or made."""
    match node.slice:
        case ast.Constant(value=str(key)):
            return key.replace(".", " ")
    return ""


def last_name(node: ast.AST) -> str:
    """``c`` of ``a.b.c``, "" of what has no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""
