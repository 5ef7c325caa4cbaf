"""The user's source as the run carried it: text and syntax of what a rule speaks about."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise

from hotloop.diagnose.evidence import Evidence
from hotloop.diagnose.reading import opens
from hotloop.findings import Place
from hotloop.measure.steps import LoaderUse
from hotloop.record.recording import Process
from hotloop.written import tree_of

#: ``register_forward_hook``, ``register_full_backward_pre_hook``, a tensor's ``register_hook``.
_REGISTERS = re.compile(r"^register_((full_)?(forward|backward)_(pre_)?|post_accumulate_grad_)?hook$")


@dataclass(frozen=True, kw_only=True)
class Loop:
    """A ``for`` or ``while`` in the user's source. ``over`` is what it runs over, "" for ``while``.

    ``structural``: it runs over parts of an object (``self.layers``) or calls them (``layer(x)``). ``hands``:
    the parts of an object (``cell`` of ``self.cell(x[:, t], h)``) that are called with one item each round.
    """

    line: int
    end_line: int
    over: str
    text: str  # the whole loop
    structural: bool = False
    hands: frozenset[str] = frozenset()


def texts(evidence: Evidence) -> Iterator[str]:
    """The text of every user file that was seen."""
    for process in _processes(evidence):
        for note in process.notes.get("source", ()):
            yield str(note.get("text") or "")


def sources(evidence: Evidence) -> dict[str, str]:
    """The text of every user file that was seen, by its name."""
    return {
        str(note.get("file")): str(note.get("text") or "")
        for process in _processes(evidence)
        for note in process.notes.get("source", ())
    }


def text_of(evidence: Evidence, file: str) -> str:
    """The text of a user file as it was when it ran, "" when the recording does not hold it."""
    for process in _processes(evidence):
        for note in process.notes.get("source", ()):
            if note.get("file") == file:
                return str(note.get("text") or "")
    return ""


def line_text(evidence: Evidence, place: Place | None) -> str:
    """The text of one line without its indent, "" when unknown."""
    if place is None:
        return ""
    lines = text_of(evidence, place.file).splitlines()
    return lines[place.line - 1].strip() if 0 < place.line <= len(lines) else ""


def loops_around(evidence: Evidence, place: Place) -> tuple[Loop, ...]:
    """The loops of the line's own function that contain the line, innermost first."""
    return tuple(_loops_at(text_of(evidence, place.file), place.line))


def rounds_around(evidence: Evidence, place: Place) -> tuple[Loop, ...]:
    """The same with the comprehensions around the line, which come first; what they hand to a method of the
    same class is handed to what that calls.
    """
    text = text_of(evidence, place.file)
    loops = (*_comprehensions_at(text, place.line), *_loops_at(text, place.line))
    return tuple(
        replace(loop, hands=loop.hands | _called_by(text, loop.line, loop.hands)) if loop.hands else loop
        for loop in loops
    )


def function_text(evidence: Evidence, place: Place) -> str:
    """The text of the innermost function around a line, "" at module level or when unknown."""
    return _function_at(text_of(evidence, place.file), place.line)


def hooks(evidence: Evidence) -> frozenset[str]:
    """The names by which user files register hooks of modules and tensors: functions, what makes them, and
    classes of callable objects.
    """
    return frozenset().union(*(_hooks_of(text) for text in texts(evidence) if "_hook(" in text))


def dataset_text(evidence: Evidence, loader: LoaderUse) -> str:
    """The class of the dataset and every function its making was seen in, "" where the source is not
    known. What draws the order of samples is not among them.
    """
    ordering = sampler_classes(evidence, loader)
    calls = [(line.place.file, line.place.function.rpartition(".")) for line in loader.lines]
    wanted = {(file, name) for file, (owner, _, name) in calls if owner not in ordering}
    dataset_file = str(loader.dataset.get("file") or "")
    cls = str(loader.dataset.get("class") or "")
    files = {file for file, _ in wanted} | ({dataset_file} if dataset_file else set())
    parts: list[str] = []
    for file in sorted(files):
        text = text_of(evidence, file)
        names = {name for other, name in wanted if other == file}
        parts += _definitions(text, names | ({cls} if cls else set()))
    return "\n".join(parts)


def sampler_classes(evidence: Evidence, loader: LoaderUse) -> frozenset[str]:
    """The classes of a loader's samplers, with the classes in user files that these are derived from."""
    named = (str(loader.settings.get(name) or "") for name in ("sampler", "batch_sampler"))
    found = {name.rpartition(".")[2] for name in named} - {""}
    bases = [_bases(text) for text in texts(evidence)] if found else []
    for _ in range(3):  # a class of a class of a class
        found |= {base for known in bases for name in found for base in known.get(name, ())}
    return frozenset(found)


def kept_open(evidence: Evidence, loader: LoaderUse) -> Place | None:
    """The line of the dataset's constructor that opens what holds its samples and keeps it."""
    file, cls = str(loader.dataset.get("file") or ""), str(loader.dataset.get("class") or "")
    for node in ast.walk(tree_of(text_of(evidence, file)) or ast.Module(body=[], type_ignores=[])):
        if not isinstance(node, ast.ClassDef) or node.name != cls:
            continue
        for part in (child for one in node.body if _is_constructor(one) for child in ast.walk(one)):
            if isinstance(part, ast.Assign) and isinstance(part.value, ast.Call):
                kept = any(isinstance(target, ast.Attribute) for target in part.targets)
                called = ast.unparse(part.value.func)
                if kept and "(" not in called and opens(f"{called}(", files=True):
                    return Place(file=file, line=part.lineno, function=f"{cls}.__init__")
    return None


@lru_cache(maxsize=256)
def _bases(text: str) -> Mapping[str, frozenset[str]]:
    """The last names of the bases of each class of a file."""
    classes = [
        node for node in ast.walk(tree_of(text) or ast.Module([], [])) if isinstance(node, ast.ClassDef)
    ]
    return {
        node.name: frozenset(ast.unparse(base).rpartition(".")[2] for base in node.bases) for node in classes
    }


def _is_constructor(node: ast.stmt) -> bool:
    return isinstance(node, ast.FunctionDef) and node.name == "__init__"


def _processes(evidence: Evidence) -> Iterator[Process]:
    for process in evidence.recording.ranks:
        yield process
        yield from process.workers


def _around(text: str, line: int) -> list[ast.stmt]:
    """Statements that contain a line, outermost first."""
    found: list[ast.stmt] = []
    tree = tree_of(text)
    if tree is None:
        return found
    for node in ast.walk(tree):
        if isinstance(node, ast.stmt) and node.lineno <= line <= (node.end_lineno or node.lineno):
            found.append(node)
    return sorted(found, key=lambda node: (node.lineno, -(node.end_lineno or node.lineno)))


@lru_cache(maxsize=1024)
def _loops_at(text: str, line: int) -> tuple[Loop, ...]:
    loops: list[Loop] = []
    in_class, owner = False, ""
    for node in _around(text, line):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            loops.clear()  # only the loops inside the innermost function
            owner = _first_parameter(node) if in_class else owner
            in_class = isinstance(node, ast.ClassDef)
        elif isinstance(node, ast.For | ast.AsyncFor | ast.While):
            over = "" if isinstance(node, ast.While) else ast.unparse(node.iter)
            end = node.end_lineno or node.lineno
            body = "\n".join(text.splitlines()[node.lineno - 1 : end])
            structural = _is_structural(node, owner)
            hands = frozenset() if structural else _handed(node, owner)
            loops.append(
                Loop(
                    line=node.lineno,
                    end_line=end,
                    over=over,
                    text=body,
                    structural=structural,
                    hands=hands,
                )
            )
    return tuple(reversed(loops))


@lru_cache(maxsize=1024)
def _comprehensions_at(text: str, line: int) -> tuple[Loop, ...]:
    owner, statements = "", _around(text, line)
    for outer, inner in pairwise(statements):
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef) and isinstance(outer, ast.ClassDef):
            owner = _first_parameter(inner)
    found: list[Loop] = []
    for node in ast.walk(statements[-1]) if statements else ():
        if not isinstance(node, ast.ListComp | ast.GeneratorExp):
            continue
        end = node.end_lineno or node.lineno
        first = node.generators[0]
        loop = ast.For(target=first.target, iter=first.iter, body=[ast.Expr(node.elt)], orelse=[])
        if node.lineno <= line <= end and not _is_structural(loop, owner):
            over, hands = ast.unparse(first.iter), _handed(loop, owner)
            found.append(Loop(line=node.lineno, end_line=end, over=over, text=ast.unparse(node), hands=hands))
    return tuple(reversed(found))


@lru_cache(maxsize=1024)
def _called_by(text: str, line: int, methods: frozenset[str]) -> frozenset[str]:
    """The attributes that these methods of the class around a line call."""
    owner = next((node for node in reversed(_around(text, line)) if isinstance(node, ast.ClassDef)), None)
    found: set[str] = set()
    for method in owner.body if owner is not None else ():
        if isinstance(method, ast.FunctionDef) and method.name in methods:
            own = _first_parameter(method)
            calls = (child.func for child in ast.walk(method) if isinstance(child, ast.Call))
            attributes = (called for called in calls if isinstance(called, ast.Attribute))
            found |= {
                one.attr for one in attributes if isinstance(one.value, ast.Name) and one.value.id == own
            }
    return frozenset(found)


def _first_parameter(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> str:
    """What a method calls ``self``."""
    parameters = [] if isinstance(node, ast.ClassDef) else [*node.args.posonlyargs, *node.args.args]
    return parameters[0].arg if parameters else ""


def _is_structural(node: ast.For | ast.AsyncFor | ast.While, owner: str) -> bool:
    if isinstance(node, ast.While):
        return False
    if owner and any(isinstance(child, ast.Name) and child.id == owner for child in ast.walk(node.iter)):
        return True
    targets = {child.id for child in ast.walk(node.target) if isinstance(child, ast.Name)}
    calls = (child.func for part in node.body for child in ast.walk(part) if isinstance(child, ast.Call))
    return any(isinstance(called, ast.Name) and called.id in targets for called in calls)


def _handed(node: ast.For | ast.AsyncFor | ast.While, owner: str) -> frozenset[str]:
    """The parts of an object that a round of a loop over data calls with its item, or what it makes of it."""
    if isinstance(node, ast.While) or not owner:
        return frozenset()
    count, items = _targets(node)
    body = [child for statement in node.body for child in ast.walk(statement)]
    found: set[str] = set()
    for part in body * 2:  # what one round leaves to the next is made of items too
        if isinstance(part, ast.Assign) and _holds_item(part.value, count, items):
            items |= {one.id for end in part.targets for one in ast.walk(end) if isinstance(one, ast.Name)}
        elif isinstance(part, ast.Call) and isinstance(part.func, ast.Attribute):
            of_owner = isinstance(part.func.value, ast.Name) and part.func.value.id == owner
            given = [*part.args, *(keyword.value for keyword in part.keywords)]
            if of_owner and any(_holds_item(one, count, items) for one in given):
                found.add(part.func.attr)
    return frozenset(found)


def _targets(node: ast.For | ast.AsyncFor) -> tuple[set[str], set[str]]:
    """The names of a loop that count its rounds, and those that hold an item of what it runs over."""
    names = [child.id for child in ast.walk(node.target) if isinstance(child, ast.Name)]
    called = ast.unparse(node.iter.func) if isinstance(node.iter, ast.Call) else ""
    if called == "range":
        return set(names), set()
    if called == "enumerate":
        return set(names[:1]), set(names[1:])
    return set(), set() if isinstance(node.iter, ast.Tuple | ast.List) else set(names)


def _holds_item(node: ast.expr, count: set[str], items: set[str]) -> bool:
    """Whether an expression reads an item, or takes one out of a name by the number of the round."""
    for child in ast.walk(node):
        if isinstance(child, ast.Name) and child.id in items:
            return True
        if isinstance(child, ast.Subscript) and isinstance(child.value, ast.Name):
            numbers = {one.id for one in ast.walk(child.slice) if isinstance(one, ast.Name)}
            if numbers & count:
                return True
    return False


@lru_cache(maxsize=1024)
def _function_at(text: str, line: int) -> str:
    inner = ""
    for node in _around(text, line):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            inner = "\n".join(text.splitlines()[node.lineno - 1 : node.end_lineno])
    return inner


@lru_cache(maxsize=256)
def _hooks_of(text: str) -> frozenset[str]:
    found: set[str] = set()
    for node in ast.walk(tree_of(text) or ast.Module(body=[], type_ignores=[])):
        if (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and _REGISTERS.match(node.func.attr)
        ):
            for part in (child for one in node.args for child in ast.walk(one)):
                if isinstance(part, ast.Name):
                    found.add(part.id)
                elif isinstance(part, ast.Attribute):
                    found.add(part.attr)
    return frozenset(found)


def _definitions(text: str, names: Iterable[str]) -> list[str]:
    """The source of classes and functions of these names; of a class the whole of it."""
    tree = tree_of(text)
    if tree is None:
        return []
    wanted = set(names)
    found: list[str] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) and node.name in wanted:
            found.append(ast.get_source_segment(text, node) or "")
    return found
