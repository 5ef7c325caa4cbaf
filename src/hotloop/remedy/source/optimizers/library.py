"""An optimizer written by hand gives way to torch's that does the same: recognised by what it does."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator, Sequence
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, Final

import libcst as cst

from hotloop.diagnose.limits import Limits
from hotloop.record.recording import Note
from hotloop.remedy.source import layout
from hotloop.remedy.source.code import Code
from hotloop.remedy.source.flags import torch_name
from hotloop.remedy.source.optimizers import arithmetic
from hotloop.remedy.source.optimizers.definition import definition
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scene import Cannot
from hotloop.units import share

_LIKENESS: Final = Path(__file__).parent / "likeness.py"
_TIMEOUT_S: Final = 180.0
#: Optimizers with a fused kernel, and the devices that have it.
_FUSED: Final = {
    "Adam": {"cpu", "cuda"}, "AdamW": {"cpu", "cuda"}, "SGD": {"cpu", "cuda"}, "Adagrad": {"cpu"},
}  # fmt: skip
_DTYPES: Final = frozenset(["torch.float32", "torch.float64"])
#: What torch's optimizers call the settings of a group.
_SETTINGS: Final = frozenset([
    "lr", "betas", "eps", "weight_decay", "momentum", "dampening", "nesterov", "amsgrad", "alpha", "centered",
    "lr_decay", "rho", "momentum_decay",
])  # fmt: skip
_HANDS: Final = frozenset(["getattr", "setattr", "hasattr", "delattr", "vars"])
#: Schedulers that set more than the learning rate, and what.
_CYCLES: Final = frozenset(["OneCycleLR", "CyclicLR"])
_CYCLED: Final = frozenset(["betas", "momentum"])
_BY_HAND: Final = "update all parameters at once (torch._foreach_*)"
_STATE: Final = "reads the optimizer's state, which has other entries in torch's"


def library_optimizer(plan: Plan, value: Any) -> None:
    """``MyAdamW(params, lr=..)`` becomes ``torch.optim.AdamW(params, lr=.., fused=True)``."""
    name, code, owner = _class(plan)
    notes = [one for one in plan.scene.process.notes.get("optimizer", ()) if one.get("class") == name]
    where = str(code.path), code.line(owner)
    _fits(notes, name, where)
    calls = _calls(plan, name, code, owner)
    uses = _Uses(plan, name, code, owner)
    source = definition(plan.scene, code.path, name)
    arithmetic.check(source, name, *where)
    request = {
        "source": source,
        "class": name,
        "calls": [[_argument(at, arg) for arg in call.args] for at, call in calls],
        "groups": _groups(notes),
        "open": sorted(uses.written()),
    }
    found = _asked(plan, request)
    if "why" in found:
        raise Cannot(f"no optimizer of torch can stand in for {name}: {found['why']}", *where)
    helpers = {one.name for one in ast.parse(source).body if isinstance(one, ast.FunctionDef)}
    uses.check(found, helpers, several=len(plan.scene.process.notes.get("optimizer", ())) > 1)
    for (at, call), answer in zip(calls, found["calls"], strict=True):
        if "class" not in answer:
            off = answer["off"]
            near = (
                f"is {share(off) if off >= 0.005 else f'{off:.0e}'} of an update away"
                if off < 1
                else "does something else"
            )
            words = f"no optimizer of torch does what {name} does: the nearest, {answer['nearest']}, {near}"
            raise Cannot(words, *where)
        _rewrite(plan, at, call, answer, notes)
    classes = {str(one.get("class")) for one in plan.scene.process.notes.get("optimizer", ())}
    if len(classes) == 1 and len({answer["class"] for answer in found["calls"]}) == 1:
        plan.expect_noted("optimizer", "class", found["calls"][0]["class"])


def _class(plan: Plan) -> tuple[str, Code, cst.ClassDef]:
    """The class of the user's that updates parameters, and where it is defined. Raises Cannot."""
    notes = plan.scene.process.notes.get("optimizer", ())
    names = list(
        dict.fromkeys(str(n.get("class")) for n in notes if not str(n.get("module", "")).startswith("torch."))
    )
    if not names:
        raise Cannot("every optimizer of the run is torch's own")
    found = []
    for name in names:
        for code in plan.scene.codes(name):
            classes = [one for one in code.module.body if isinstance(one, cst.ClassDef)]
            found += [(name, code, one) for one in classes if one.name.value == name]
    place = plan.scene.where.get(plan.remedy)
    if len(found) > 1 and place is not None:
        found = [
            (name, code, one)
            for name, code, one in found
            if str(code.path) == place.file and code.line(one) <= place.line <= code.end(one)[0]
        ]
    if len(found) != 1:
        known = "is defined in several places" if found else "is not defined in a file of yours"
        raise Cannot(f"{', '.join(names)} {known}")
    return found[0]


def _fits(notes: Sequence[Note], name: str, where: tuple[str, int]) -> None:
    """Raises Cannot where torch's optimizers take another way with parameters as the run had them."""
    for note in notes:
        if note.get("loaded"):
            words = f"the run loads a state into {name}, which torch's optimizer cannot read"
            raise Cannot(words, *where, write="start anew, or convert the state, then fix")
        dtypes = set(note.get("dtypes") or ())
        if dtypes - _DTYPES:
            raise Cannot(f"parameters are {', '.join(sorted(dtypes))}: rounding is not told apart", *where)
        if note.get("sparse"):
            raise Cannot("gradients are sparse", *where, write="leave the optimizer as it is")


def _groups(notes: Sequence[Note]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    for note in notes:
        found += [group for group in note.get("groups") or () if group not in found]
    return found


# -- calls ---------------------------------------------------------------------------------------------------


def _calls(plan: Plan, name: str, code: Code, owner: cst.ClassDef) -> list[tuple[Code, cst.Call]]:
    """Every call that builds the class. Raises Cannot where it is used otherwise."""
    found = []
    for at in plan.scene.codes(name):
        for node in at.names():
            if node.value != name or (at is code and at.holds(owner, node)):
                continue
            parent = at.parents[node]
            if at.above(node, cst.Import) or at.above(node, cst.ImportFrom):
                if isinstance(parent, cst.AsName):
                    raise Cannot(f"{name} is another name here", str(at.path), at.line(node))
                continue
            used: cst.BaseExpression = node
            if isinstance(parent, cst.Attribute) and parent.attr is node:
                used, parent = parent, at.parents[parent]
            whole = at.qualified(used)
            if whole.startswith("torch."):
                continue  # torch has one of that name
            module = whole.lstrip(".").rpartition(".")[0]
            if at is not code and plan.scene.module(module, at.path) != code.path:
                raise Cannot(f"which {name} this is cannot be told", str(at.path), at.line(node))
            if not (isinstance(parent, cst.Call) and parent.func is used):
                raise Cannot(f"{name} is more than built here", str(at.path), at.line(node))
            if any(arg.star for arg in parent.args) or not parent.args:
                words = f"what {name} is built with is passed on by * or **"
                raise Cannot(words, str(at.path), at.line(parent))
            found.append((at, parent))
    if not found:
        raise Cannot(f"no call builds {name} plainly", str(code.path), code.line(owner))
    return found


def _argument(code: Code, arg: cst.Arg) -> dict[str, Any]:
    text = code.source(arg.value)
    try:
        ast.literal_eval(text)
    except (ValueError, SyntaxError):
        text = ""
    return {"name": arg.keyword.value if arg.keyword else None, "value": text or None}


def _rewrite(plan: Plan, code: Code, call: cst.Call, answer: dict[str, Any], notes: Sequence[Note]) -> None:
    """The call of torch's class: arguments under their names there, those left out that it does not take."""
    name, args = answer["class"], call.args
    new = {0: _text(code, args[0]) if args[0].keyword is None else f"params={_text(code, args[0])}"}
    added: dict[str, str] = {}
    for keyword, parts in answer["keywords"]:
        texts = [_text(code, args[one["arg"]]) if "arg" in one else one["value"] for one in parts]
        text = texts[0] if len(texts) == 1 else f"({', '.join(texts)})"
        used = [one["arg"] for one in parts if "arg" in one]
        if used:
            new[min(used)] = f"{keyword}={text}"
        else:
            added[keyword] = text
    for at, arg in enumerate(args):
        start, end = layout.begin_of(code, arg), layout.behind_of(code, arg)
        old = code.text.text[start:end]
        if at not in new:
            before = layout.behind_of(code, args[at - 1])
            if "#" in code.text.text[before:end]:
                words = "a comment stands beside an argument that goes"
                raise Cannot(words, str(code.path), code.line(call), write=f"torch.optim.{name}")
            plan.edit(code.text, before, end, "")
        elif _squeezed(new[at]) != _squeezed(old):
            plan.edit(code.text, start, end, new[at])
    whole = f"{torch_name(plan, code)}.optim.{name}"
    plan.replace(code, call.func, whole, f"{code.source(call.func)} → {whole}")
    for keyword, text in added.items():
        plan.keyword(code, call, keyword, text)
    kernel = _kernel(name, notes)
    if kernel:
        plan.keyword(code, call, kernel, "True")


def _text(code: Code, arg: cst.Arg) -> str:
    """The value of an argument, its parentheses included."""
    start, end = layout.begin_of(code, arg), layout.behind_of(code, arg)
    if arg.keyword is not None:
        start = code.text.text.index("=", start) + 1
    return code.text.text[start:end].strip()


def _squeezed(text: str) -> str:
    return "".join(text.split())


def _kernel(name: str, notes: Sequence[Note]) -> str:
    """What makes torch's optimizer update many parameters at once; "" where it does so, or loops faster."""
    held: dict[str, list[int]] = {}
    for note in notes:
        held |= note.get("held") or {}
    laid_out = all(note.get("laid_out", True) for note in notes)
    if held and set(held) <= _FUSED.get(name, set()) and laid_out:
        return "fused"
    # Lists are the usual way on a device; on a CPU they pay while what they make on the way is small.
    small = set(held) == {"cpu"} and held["cpu"][0] <= Limits().list_results_bytes
    return "foreach" if small else ""


# -- the answer of a process of its own ----------------------------------------------------------------------


def _asked(plan: Plan, request: dict[str, Any]) -> dict[str, Any]:
    """What the class does, in an interpreter like that of the run."""
    executable = str(plan.scene.process.first("process").get("executable") or sys.executable)
    try:
        found: dict[str, Any] = json.loads(_ran(executable, json.dumps(request, sort_keys=True)))
    except ValueError:
        return {"why": "it could not be tried"}
    return found


@lru_cache(maxsize=8)
def _ran(executable: str, request: str) -> str:
    keep = {key: value for key, value in os.environ.items() if not key.startswith(("HOTLOOP_", "PYTHONPATH"))}
    env = {**keep, "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        with tempfile.TemporaryDirectory(prefix="hotloop-") as empty:
            done = subprocess.run(
                [executable, "-P", str(_LIKENESS)], input=request, capture_output=True, text=True, env=env,
                timeout=_TIMEOUT_S, check=False, cwd=empty,
            )  # fmt: skip
    except (OSError, subprocess.TimeoutExpired) as error:
        return json.dumps({"why": f"it could not be tried ({type(error).__name__})"})
    return done.stdout if done.returncode == 0 else json.dumps({"why": "it could not be tried"})


# -- what else the script does with it -----------------------------------------------------------------------


class _Uses:
    """What the user's files do with the optimizers of a class, outside of it."""

    def __init__(self, plan: Plan, name: str, code: Code, owner: cst.ClassDef) -> None:
        self._name = name
        span = code.line(owner), code.end(owner)[0]
        self._trees: list[tuple[Path, ast.Module]] = []
        self._inside: set[int] = set()
        for path in plan.scene.loaded():
            try:
                tree = ast.parse(plan.scene.text(path).text)
            except (Cannot, SyntaxError):
                continue
            self._trees.append((path, tree))
            if path == code.path:
                for node in ast.walk(tree):
                    if span[0] <= getattr(node, "lineno", 0) <= span[1]:
                        self._inside.add(id(node))
        self._holders = self._held()
        self._plan = plan

    def _nodes(self) -> Iterator[tuple[Path, ast.AST]]:
        for path, tree in self._trees:
            yield from ((path, node) for node in ast.walk(tree) if id(node) not in self._inside)

    def written(self) -> set[str]:
        """Words of the script that may be settings of a group, which it then may change."""
        found = set[str]()
        for _, node in self._nodes():
            if isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(node.value)
            elif isinstance(node, ast.Call) and _last(node.func) != self._name:
                found |= {one.arg for one in node.keywords if one.arg}
            if isinstance(node, ast.Name | ast.Attribute) and _last(node) in _CYCLES:
                found |= _CYCLED
        return found & _SETTINGS

    def _held(self) -> set[str]:
        """Names of variables, attributes and parameters that may hold the optimizer."""
        made, found = {self._name}, set[str]()
        for _ in range(4):
            for _, node in self._nodes():
                if isinstance(node, ast.Assign | ast.AnnAssign | ast.NamedExpr):
                    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                    if node.value is not None and self._gives(node.value, made, found):
                        for target in targets:
                            found |= set(_stored(target))
                elif isinstance(node, ast.For | ast.comprehension):
                    if _words(node.iter) & found:
                        found |= set(_stored(node.target))
                elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                    answers = [
                        one.value
                        for one in ast.walk(node)
                        if isinstance(one, ast.Return | ast.Yield) and one.value
                    ]
                    if any(self._gives(one, made, found) for one in answers):
                        made.add(node.name)
                elif isinstance(node, ast.Call):
                    found |= self._taken(node, made, found)
        return found

    def _taken(self, call: ast.Call, made: set[str], found: set[str]) -> set[str]:
        """Parameters of the user's functions that are given it."""
        called = _last(call.func)
        given = [at for at, one in enumerate(call.args) if self._gives(one, made, found)]
        named = {one.arg for one in call.keywords if one.arg and self._gives(one.value, made, found)}
        if not given and not named:
            return set()
        names = set(named)
        for _, node in self._nodes():
            if isinstance(node, ast.ClassDef) and node.name == called:
                inner = [
                    one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"
                ]
            elif isinstance(node, ast.FunctionDef) and node.name == called:
                inner = [node]
            else:
                continue
            for function in inner:
                args = [one.arg for one in (*function.args.posonlyargs, *function.args.args)]
                args = args[1:] if args[:1] in (["self"], ["cls"]) else args
                names |= {args[at] for at in given if at < len(args)}
        return names

    def _gives(self, node: ast.expr, made: set[str], found: set[str]) -> bool:
        """Whether the value of an expression is or holds the optimizer."""
        if isinstance(node, ast.Call):
            return _last(node.func) in made or (
                _last(node.func) == "prepare" and any(self._gives(one, made, found) for one in node.args)
            )
        if isinstance(node, ast.Tuple | ast.List):
            return any(self._gives(one, made, found) for one in node.elts)
        if isinstance(node, ast.Dict):
            return any(self._gives(one, made, found) for one in node.values)
        if isinstance(node, ast.IfExp):
            return self._gives(node.body, made, found) or self._gives(node.orelse, made, found)
        if isinstance(node, ast.ListComp | ast.GeneratorExp):
            return self._gives(node.elt, made, found)
        return isinstance(node, ast.Name | ast.Attribute | ast.Subscript) and _last(node) in found

    def _is_held(self, node: ast.expr) -> bool:
        name = _last(node)
        return name in self._holders or "optim" in name.lower() or name in ("opt", "o")

    def check(self, found: dict[str, Any], helpers: Collection[str], *, several: bool) -> None:
        """Raises Cannot where the script uses what torch's optimizer has not."""
        called = set[str]()
        for path, node in self._nodes():
            why = ""
            if isinstance(node, ast.Attribute):
                why = self._of_attribute(node, found)
                if node.attr in helpers and isinstance(node.ctx, ast.Store):
                    why = f"this may set {node.attr}(), which {self._name} calls"
                if self._is_held(node.value):
                    called.add(node.attr)
            elif isinstance(node, ast.Subscript):
                why = self._of_item(node)
            elif isinstance(node, ast.Constant):
                why = self._of_word(node.value, found["keys"])
            elif isinstance(node, ast.Call):
                called |= {_last(node.func), *(one.arg or "" for one in node.keywords)}
                why = self._of_call(node, found)
            if why:
                raise Cannot(why, str(path), getattr(node, "lineno", 0))
        name = self._name
        if not found["bumps"] and (several or "retain_graph" in called):
            raise Cannot(
                f"{name} hides from autograd what it changes, and a graph may be used behind an update"
            )
        drops = list(self._drops_beside())
        if found["writes_gradients"] and not (drops and all(drops)):
            raise Cannot(f"{name} changes gradients, and no zero_grad() beside each step() drops them")
        if called & {"load_state_dict", "state_dict"}:
            self._plan.remark(
                f"states saved of {name} do not load into torch's optimizer, nor its into {name}"
            )

    def _drops_beside(self) -> Iterator[bool]:
        """For each update of the optimizer whether gradients are dropped as often: in the same block."""
        for _, node in self._nodes():
            for block in (getattr(node, one, None) for one in ("body", "orelse", "finalbody")):
                own = [
                    one.value
                    for one in (block if isinstance(block, list) else [])
                    if isinstance(one, ast.Expr | ast.Assign) and isinstance(one.value, ast.Call)
                ]
                drops = any(_last(one.func) == "zero_grad" for one in own)
                yield from (drops for one in own if _last(one.func) == "step" and self._is_update(one))

    def _is_update(self, call: ast.Call) -> bool:
        held = [call.func.value] if isinstance(call.func, ast.Attribute) else []
        return any(self._is_held(one) for one in (*held, *call.args))

    def _of_attribute(self, node: ast.Attribute, found: dict[str, Any]) -> str:
        if node.attr == "grad" and found["writes_gradients"]:
            return f"{self._name} changes gradients, torch's does not, and this uses one"
        if not self._is_held(node.value):
            return ""
        if node.attr == "__class__":
            return f"this asks for the class of the optimizer, which is {self._name} no more"
        if node.attr == "state":
            return f"this {_STATE}"
        if node.attr in found["names"]:
            return f"this uses .{node.attr} of {self._name}, which torch's optimizer has not"
        return f"this sets .{node.attr} of the optimizer" if isinstance(node.ctx, ast.Store) else ""

    def _of_word(self, value: Any, keys: Collection[str]) -> str:
        if value == self._name:
            return f'this names "{value}", which the optimizer is no more'
        if isinstance(value, str) and value in keys:
            return f'this may use "{value}" of a group, which torch\'s optimizer has not'
        return ""

    def _of_item(self, node: ast.Subscript) -> str:
        of = node.value
        if isinstance(of, ast.Attribute) and of.attr == "state" and _last(of.value) != "self":
            return f"this {_STATE}"
        key = node.slice.value if isinstance(node.slice, ast.Constant) else None
        is_state = key == "state" and (_last(of) == "state_dict" or self._is_held(of))
        return f"this {_STATE}" if is_state else ""

    def _of_call(self, node: ast.Call, found: dict[str, Any]) -> str:
        called = _last(node.func)
        words = {one.arg for one in node.keywords} & set(found["keys"])
        if words and called in ("update", "dict", "add_param_group"):
            return f'this may set "{min(map(str, words))}" of a group, which torch\'s optimizer has not'
        if called == "type" and node.args and self._is_held(node.args[0]):
            return f"this asks for the class of the optimizer, which is {self._name} no more"
        if called in _HANDS and node.args and self._is_held(node.args[0]):
            return "what this asks of the optimizer is not told"
        if not isinstance(node.func, ast.Attribute):
            return ""
        if called in found["names"] and called not in self._methods:
            return f"this may call {called}() of {self._name}, which torch's optimizer has not"
        given = len(node.args) + len(node.keywords) if called == "step" else 0
        if self._is_held(node.func.value) and (given > 1 or (given and not found["takes_closures"])):
            return "step() would take what this gives it otherwise"
        return ""

    @cached_property
    def _methods(self) -> Collection[str]:
        """Methods of other classes."""
        return {
            one.name
            for _, node in self._nodes()
            if isinstance(node, ast.ClassDef) and node.name != self._name
            for one in node.body
            if isinstance(one, ast.FunctionDef)
        }


def _last(node: ast.AST) -> str:
    """``optimizer`` of ``self.optimizer[0]``."""
    while isinstance(node, ast.Subscript | ast.Await | ast.Starred):
        node = node.value
    if isinstance(node, ast.Attribute):
        return node.attr
    if isinstance(node, ast.Call):
        return _last(node.func)
    return node.id if isinstance(node, ast.Name) else ""


def _stored(target: ast.expr) -> Iterator[str]:
    """Names that a target gives a value."""
    if isinstance(target, ast.Tuple | ast.List):
        for one in target.elts:
            yield from _stored(one)
    elif _last(target):
        yield _last(target)


def _words(node: ast.AST) -> set[str]:
    return {_last(one) for one in ast.walk(node) if isinstance(one, ast.Name | ast.Attribute)}
