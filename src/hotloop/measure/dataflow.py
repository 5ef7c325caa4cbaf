"""What a statement of the training loop is for, read from its source by following names.

Flow-sensitive where it costs little, otherwise conservative: what is not understood has no role.
"""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Literal

from hotloop.measure.environments import steps_environment
from hotloop.measure.statements import (
    FunctionNode,
    Spot,
    Statement,
    base_name,
    holders,
    made_anew,
    names_read,
    names_set,
    of_modules,
    own_nodes,
    statements_of,
)

#: ``model``, ``backward``, ``update``, ``fetch``: the statement reaches that call; others as ``steps.Role``.
Purpose = Literal["model", "backward", "update", "fetch", "input", "forward", "metrics", "other"]

_CRITERION = re.compile(r"^(torch\.)?nn\.\w*Loss\(")
_WITHOUT_GRADIENTS = re.compile(r"\b(no_grad|inference_mode)\b")
#: What only modules are asked for.
_OF_MODULES = frozenset(
    ["parameters", "named_parameters", "modules", "named_modules", "requires_grad_", "eval", "zero_grad"]
)
_LAYER = re.compile(r"register_parameter$|\bnn\.(?!\w*Loss$)[A-Z]\w*$")
#: Functions whose syntax is nested deeper are not understood: they are followed recursively.
_DEEPEST = 200


@dataclass(frozen=True, kw_only=True)
class Anchors:
    """Spots of one function through which the observed calls are reached."""

    forward: frozenset[Spot] = frozenset()
    backward: frozenset[Spot] = frozenset()
    update: frozenset[Spot] = frozenset()
    fetch: frozenset[Spot] = frozenset()
    #: Forwards without gradients: a teacher, a target network, an encoder.
    frozen: frozenset[Spot] = frozenset()
    #: Forwards of evaluations.
    evaluate: frozenset[Spot] = frozenset()

    @property
    def lines(self) -> frozenset[int]:
        """Their lines."""
        return frozenset(line for line, _ in self.forward | self.backward | self.update | self.fetch)


@dataclass(frozen=True, kw_only=True)
class Function:
    """A function (or module) of the training loop, with the purpose of each of its statements."""

    statements: tuple[Statement, ...]
    purposes: tuple[Purpose, ...]
    #: Before each statement, the names that hold what a model made.
    made: tuple[frozenset[str], ...] = ()
    loop_line: int | None = None
    #: First and last line of each loop over batches in it; without one its loop may be one within a step.
    over_batches: tuple[tuple[int, int], ...] = ()
    #: Whether the parts of a step are statements of their own: one that does all of it hides what it uses.
    tells: bool = True
    #: Statements that use what an evaluation made.
    of_evaluation: frozenset[int] = frozenset()
    #: Statements that run the whole loop: a framework's ``trainer.fit()``.
    whole: frozenset[int] = frozenset()

    def runs_all(self, spot: Spot) -> bool:
        """Whether the one statement at a spot runs the whole loop."""
        at = holders(self.statements, spot)
        return len(at) == 1 and at[0] in self.whole

    def scores(self, spot: Spot) -> bool:
        """Whether the one statement at a spot uses what an evaluation made."""
        at = holders(self.statements, spot)
        return len(at) == 1 and at[0] in self.of_evaluation

    def beside_loops(self, line: int) -> bool:
        """Whether a line is in no loop over batches: it runs once per epoch, or once."""
        return bool(self.over_batches) and not any(first <= line <= last for first, last in self.over_batches)

    def statement(self, line: int) -> Statement | None:
        """The smallest statement around a line."""
        at = holders(self.statements, (line, -1))
        return self.statements[at[0]] if at else None

    def purposes_at(self, spot: Spot) -> tuple[Purpose, ...]:
        """What the statements at a spot are for: one, or several that share its line; empty outside."""
        return tuple(self.purposes[at] for at in holders(self.statements, spot))


@dataclass(frozen=True, kw_only=True)
class Source:
    """A parsed file; ``trainable``: names of parameters without a module, and functions that read them."""

    tree: ast.Module
    functions: Mapping[tuple[str, int], FunctionNode]
    trainable: frozenset[str]
    classes: Mapping[ast.AST, ast.ClassDef]
    modules: frozenset[str] = frozenset()  # names by which the file knows modules, optimizers left out
    imported: frozenset[str] = frozenset()  # names of whole imported modules
    deep: frozenset[ast.AST] = frozenset()  # functions nested too deep to be followed

    def copies_module(self, line: int) -> bool:
        """Whether a ``deepcopy`` at a line is of what the file knows as a module."""
        calls = (
            node
            for node in ast.walk(self.tree)
            if isinstance(node, ast.Call) and node.lineno == line and node.args
        )
        return any(
            _last_name(call.func) == "deepcopy" and _last_name(call.args[0]) in self.modules for call in calls
        )

    def function(self, name: str, line: int) -> FunctionNode | None:
        """The function whose code object has this name and first line (a decorator's, where it has one)."""
        known = self.tree if name == "<module>" else self.functions.get((name.rpartition(".")[2], line))
        return None if known in self.deep else known

    def trains(self, name: str, line: int) -> bool:
        """Whether a function is one that is trained through: an ``autograd.Function``'s ``forward``, or a
        method that reads what a module with parameters holds, and not only without gradients.
        """
        node = self.function(name, line)
        owner = self.classes.get(node) if node is not None else None
        if node is None or owner is None or isinstance(node, ast.Module):
            return False
        bases = {ast.unparse(base).rpartition(".")[2] for base in owner.bases}
        if "Function" in bases and node.name == "forward":
            return True
        if any(_WITHOUT_GRADIENTS.search(ast.unparse(one)) for one in node.decorator_list):
            return False
        return _holds_parameters(owner) and bool(_held(node) - _plain(owner))


def parse(lines: Sequence[str], optimizers: Iterable[str] = ()) -> Source | None:
    """Parses a file's text; None where it does not parse."""
    return _parsed("\n".join(lines), frozenset(optimizers))


@functools.lru_cache(maxsize=64)
def _parsed(text: str, optimizers: frozenset[str]) -> Source | None:
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError):
        return None
    nodes = list(ast.walk(tree))
    functions: dict[tuple[str, int], FunctionNode] = {}
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            functions[node.name, node.lineno] = node
            for decorator in node.decorator_list:
                functions.setdefault((node.name, decorator.lineno), node)
    classes: dict[ast.AST, ast.ClassDef] = {
        child: node
        for node in nodes
        if isinstance(node, ast.ClassDef)
        for child in node.body
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)
    }
    try:
        trainable = _trainable(nodes, optimizers)
    except RecursionError:
        trainable = frozenset()
    return Source(
        tree=tree,
        functions=functions,
        trainable=trainable,
        classes=classes,
        modules=frozenset(
            _last_name(node.func.value)
            for node in nodes
            if isinstance(node, ast.Call)
            and isinstance(node.func, ast.Attribute)
            and node.func.attr in _OF_MODULES
        )
        - {""},
        imported=frozenset(
            alias.asname or alias.name.partition(".")[0]
            for node in nodes
            if isinstance(node, ast.Import)
            for alias in node.names
        ),
        deep=_deep(tree),
    )


def _deep(tree: ast.Module) -> frozenset[ast.AST]:
    """Functions, or the module itself, that hold what is nested too deep."""
    found: set[ast.AST] = set()
    rest: list[tuple[ast.AST, int, tuple[ast.AST, ...]]] = [(tree, 0, (tree,))]
    while rest:
        node, depth, holders = rest.pop()
        if depth > _DEEPEST:
            found.update(holders)
            continue
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            depth, holders = 0, (node, *(one for one in holders if one is not tree))
        rest += [(child, depth + 1, holders) for child in ast.iter_child_nodes(node)]
    return frozenset(found)


def _last_name(node: ast.expr) -> str:
    """``net`` of ``net`` and of ``self.net``; "" for what has no name."""
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def understand(source: Source, node: FunctionNode, anchors: Anchors) -> Function:
    """Gives every statement of a function its purpose."""
    statements = tuple(of_modules(one, source.imported) for one in statements_of(node))
    flow = _Flow(statements, anchors, source.trainable)
    loop = innermost_loop(node, anchors.lines)
    return Function(
        statements=statements,
        purposes=flow.purposes(),
        made=flow.made,
        loop_line=loop.lineno if loop else None,
        over_batches=tuple(_loops_over_batches(node, anchors)),
        tells=not flow.whole,
        of_evaluation=flow.of_evaluation,
        whole=frozenset(flow.whole),
    )


def handed_over(statement: Statement, callee: FunctionNode, made: frozenset[str]) -> frozenset[str] | None:
    """Names by which a called function knows what a model made; None where it cannot be told."""
    calls = [
        call
        for call in ast.walk(statement.node)
        if isinstance(call, ast.Call)
        and ast.unparse(call.func).rpartition(".")[2] == getattr(callee, "name", "")
    ]
    if len(calls) != 1 or isinstance(callee, ast.Module):
        return None
    call, given = calls[0], callee.args
    if isinstance(call.func, ast.Attribute) and names_read(call.func.value) & made:
        return None  # a method of an object that was given it, and may hold it in any of its attributes
    parameters = [a.arg for a in (*given.posonlyargs, *given.args)]
    if isinstance(call.func, ast.Attribute) and parameters[:1] in (["self"], ["cls"]):
        parameters = parameters[1:]
    if len(call.args) > len(parameters) or any(isinstance(a, ast.Starred) for a in call.args):
        return None
    passed: dict[str | None, ast.expr] = dict(zip(parameters, call.args, strict=False))
    passed.update({keyword.arg: keyword.value for keyword in call.keywords})
    if None in passed:
        return None
    # What a function reads of its surroundings goes by the caller's names.
    known = {a.arg for a in (*given.posonlyargs, *given.args, *given.kwonlyargs)}
    return frozenset(name for name, value in passed.items() if name and names_read(value) & made) | (
        made - known
    )


def reach(
    statements: Sequence[Statement],
    sources: Set[int],
    names: frozenset[str] = frozenset(),
    fixed: frozenset[str] = frozenset(),
    ends: Set[int] = frozenset(),
    *,
    in_torch: bool = False,
) -> tuple[set[int], tuple[frozenset[str], ...]]:
    """Statements that use values made by the sources or held by names; and the names before each statement.

    ``fixed`` names hold such values whatever is assigned to them; statements in ``ends`` pass nothing on.
    ``in_torch``: values that left torch, and an environment's answers, are made anew by whoever uses them.
    """
    tainted = set(names | fixed)
    found: set[int] = set()
    before = []
    for i, s in enumerate(statements):
        before.append(frozenset(tainted))
        if i in sources:
            tainted |= s.sets
        elif ((_in_torch(s) if in_torch else s.values) | (s.calls if fixed else frozenset())) & tainted:
            found.add(i)
            if i not in ends:
                tainted |= s.sets
        elif isinstance(s.node, ast.Assign | ast.AnnAssign | ast.For):
            tainted -= s.sets - fixed
    return found, tuple(before)


def _in_torch(statement: Statement) -> frozenset[str]:
    assigns = isinstance(statement.node, ast.Assign)
    steps = assigns and steps_environment(ast.unparse(statement.node))
    return frozenset() if steps else statement.tensors


def innermost_loop(node: FunctionNode, lines: Iterable[int]) -> ast.For | ast.AsyncFor | ast.While | None:
    """The innermost loop of a function that holds all the lines."""
    wanted = list(lines)
    if not wanted:
        return None
    best: ast.For | ast.AsyncFor | ast.While | None = None
    for child in own_nodes(node):
        if isinstance(child, ast.For | ast.AsyncFor | ast.While):
            end = child.end_lineno or child.lineno
            holds = all(child.lineno <= line <= end for line in wanted)
            if holds and (best is None or child.lineno >= best.lineno):
                best = child
    return best


def _loops_over_batches(node: FunctionNode, anchors: Anchors) -> Iterator[tuple[int, int]]:
    """First and last line of the loops in which batches are asked for and, where that shows, updates made."""
    updates = [line for line, _ in anchors.update]
    for line, _ in sorted(anchors.fetch):
        around = [innermost_loop(node, [line, update]) for update in updates]
        loops = [loop for loop in around if loop is not None]
        inner = max(loops, key=lambda loop: loop.lineno, default=innermost_loop(node, [line]))
        if inner is not None:
            yield inner.lineno, inner.end_lineno or inner.lineno


class _Flow:
    """Forward and backward reach over the statements of one function."""

    def __init__(
        self, statements: tuple[Statement, ...], anchors: Anchors, trainable: frozenset[str]
    ) -> None:
        self.statements = statements
        self.trainable = trainable
        self.model = self._touched(anchors.forward)
        self.backward = self._touched(anchors.backward)
        self.update = self._touched(anchors.update)
        self.fetch = self._touched(anchors.fetch)
        # A statement that both trains and fetches or updates runs the whole loop: it says nothing.
        self.whole = (self.model | self.backward) & (self.update | self.fetch)
        # A whole step in one call (train_step(batch), agent.update(rollout)): what each round makes for it.
        calls = (self.model & self.update) - self.fetch
        self.handed = frozenset().union(*(statements[i].values & made_anew(statements, i) for i in calls))
        for anchored in (self.model, self.backward, self.update, self.fetch):
            anchored -= self.whole
        self.frozen = self._touched(anchors.frozen) - self.model - self.backward - self.update - self.whole
        # Without a module's call, what is made from parameters is made by the model.
        fixed = frozenset() if self.model else trainable
        ends = self.update | self.backward
        trained = self.model | self.whole
        self.dependent, self.made = reach(statements, trained, fixed=fixed, ends=ends)
        evaluated = self._touched(anchors.evaluate) - trained - ends
        self.of_evaluation = frozenset(reach(statements, evaluated, ends=ends)[0])
        # Inner loops make the next parameters from gradients: params = [p - lr * g ...].
        gradients = {i for i in self.backward if isinstance(statements[i].node, ast.Assign)}
        read = frozenset().union(*(statements[i].reads for i in self.model))
        made_of_gradients, _ = reach(statements, gradients, ends=ends)
        self.inner_updates = {i for i in made_of_gradients if statements[i].sets & read}
        self.penalties = set(made_of_gradients) - self.inner_updates
        self.of_frozen: set[int] = set()
        if self.frozen:
            self.of_frozen, _ = reach(statements, self.frozen, ends=ends)
            _, self.made = reach(statements, trained | self.frozen, fixed=fixed, ends=ends)
        # What answers the model outside torch, before the step trains: a rollout.
        within, _ = reach(statements, trained | self.frozen, fixed=fixed, ends=ends, in_torch=True)
        trains = min(ends | self.whole, default=len(statements))
        self.answers = {i for i in (self.dependent | self.of_frozen) - within if i < trains}

    def _touched(self, spots: frozenset[Spot]) -> set[int]:
        return {found[0] for spot in spots if (found := holders(self.statements, spot))}

    def purposes(self) -> tuple[Purpose, ...]:
        loss = self._loss()
        inputs = self._inputs(loss)
        untold = self._untold(loss)
        after_update = min(self.update, default=len(self.statements))
        result: list[Purpose] = []
        for i in range(len(self.statements)):
            if i in self.whole:
                result.append("other")
            elif i in self.model or i in self.frozen:
                result.append("model")
            elif i in self.backward:
                result.append("backward")
            elif i in self.update:
                result.append("update")
            elif i in self.answers & inputs:
                result.append("input")
            elif (i in loss and (i in self.dependent or i in untold or i in self.penalties)) or (
                i in self.of_frozen and i in loss | inputs
            ):
                result.append("forward")
            elif i in self.inner_updates:
                result.append("update")
            elif i in self.fetch:
                result.append("fetch")
            elif i in inputs or (i in loss and i < after_update):
                result.append("input")
            elif i in self.dependent:
                result.append("metrics")
            else:
                result.append("other")
        return tuple(result)

    def _loss(self) -> set[int]:
        """Statements that flow into what backward is called on, or into the result where it is elsewhere."""
        ends = self.backward or {i for i, s in enumerate(self.statements) if s.returns and self.model}
        found = set(ends) - self.backward
        for end in ends:
            needed = set(self.statements[end].reads)
            for i in range(end - 1, -1, -1):
                s = self.statements[i]
                if i in self.update:
                    continue
                if s.sets & needed:
                    found.add(i)
                    if i not in self.model:
                        needed |= s.reads
        return found

    def _untold(self, loss: set[int]) -> set[int]:
        """Where nothing shows how parameters come into the loss: all that is made of what the loop made."""
        if self.model or self.whole or self.dependent or self.frozen or not self.backward:
            return set()
        made = frozenset().union(*(self.statements[i].sets for i in loss | self.fetch))
        return {i for i in loss - self.fetch if self.statements[i].reads & made}

    def _inputs(self, loss: set[int]) -> set[int]:
        """Statements that reach the model's arguments, also of the next round, not made from its output."""
        needed: set[str] = set()
        for i in self.model:
            needed |= self.statements[i].reads
        for i in loss - self.dependent:
            needed |= self.statements[i].reads
        if not self.model:
            for i in loss | self.backward:
                needed |= self.statements[i].reads
        needed |= self.handed
        needed -= self.trainable
        skip = self.model | self.backward | self.update | self.whole | (self.dependent - self.answers)
        found: set[int] = set()
        grew = True
        while grew:
            grew = False
            for i, s in enumerate(self.statements):
                if i not in found and i not in skip and s.sets & needed:
                    found.add(i)
                    needed |= s.reads
                    grew = True
        return found


def _trainable(nodes: Sequence[ast.AST], optimizers: frozenset[str]) -> frozenset[str]:
    """Names of tensors that are trained without a module, and of functions that read them."""
    names: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.Assign) and _makes_parameter(node.value):
            for target in node.targets:
                names |= names_set(target)
        elif isinstance(node, ast.Call):
            called = node.func.attr if isinstance(node.func, ast.Attribute) else base_name(node.func)
            if called in optimizers and node.args:
                names |= {name for name in names_read(node.args[0]) if name not in ("self", "cls")}
            if called == "requires_grad_" and isinstance(node.func, ast.Attribute):
                names |= names_set(node.func.value)
    if not names:
        return frozenset()
    for _ in range(2):
        for node in nodes:
            if isinstance(node, ast.Assign) and isinstance(node.value, ast.List | ast.Tuple | ast.Dict):
                if names & set().union(*(names_set(target) for target in node.targets)):
                    names |= names_read(node.value)
            elif isinstance(node, ast.FunctionDef):
                own = {arg.arg for arg in node.args.args}
                reads = set().union(*(names_read(child) for child in node.body), set()) - own
                if reads & names and any(isinstance(c, ast.Return) and c.value for c in ast.walk(node)):
                    names.add(node.name)
    return frozenset(names)


def _holds_parameters(owner: ast.ClassDef) -> bool:
    """Whether a class makes parameters or layers of its own."""
    calls = [node for node in ast.walk(owner) if isinstance(node, ast.Call)]
    return any(_makes_parameter(call) or _LAYER.search(ast.unparse(call.func)) for call in calls)


def _held(node: ast.AST) -> set[str]:
    """Attributes of ``self`` that are read where gradients may be built."""
    found: set[str] = set()
    parts = [node]
    while parts:
        part = parts.pop()
        if isinstance(part, ast.With) and any(
            _WITHOUT_GRADIENTS.search(ast.unparse(item.context_expr)) for item in part.items
        ):
            continue
        if (
            isinstance(part, ast.Attribute)
            and isinstance(part.ctx, ast.Load)
            and isinstance(part.value, ast.Name)
            and part.value.id == "self"
        ):
            found.add(part.attr)
        parts += ast.iter_child_nodes(part)
    return found


def _plain(owner: ast.ClassDef) -> set[str]:
    """Attributes of a class that are settings and methods: given to it or constant, and no layers."""
    plain = {child.name for child in owner.body if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef)}
    for node in ast.walk(owner):
        if isinstance(node, ast.Assign) and len(node.targets) == 1:
            targets = getattr(node.targets[0], "elts", node.targets)
            values = getattr(node.value, "elts", [node.value])
            plain |= {
                target.attr
                for target, value in zip(targets, values, strict=False)
                if isinstance(target, ast.Attribute)
                and (isinstance(value, ast.Name | ast.Constant) or _CRITERION.search(ast.unparse(value)))
            }
    return plain


def _makes_parameter(node: ast.AST) -> bool:
    for child in ast.walk(node):
        if isinstance(child, ast.keyword) and child.arg == "requires_grad":
            return isinstance(child.value, ast.Constant) and child.value.value is True
        if isinstance(child, ast.Call):
            name = child.func.attr if isinstance(child.func, ast.Attribute) else base_name(child.func)
            if name in ("Parameter", "requires_grad_"):
                return True
    return False
