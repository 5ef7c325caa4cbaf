"""Fields of a sample that nothing reads, left out of the dictionary that ``__getitem__`` returns.

Nothing reads a field that the run did not read (what takes a whole batch reads all of it) and that no file of
the user's names.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from hotloop.diagnose.collating import DEFAULT_COLLATE, collate_name
from hotloop.fix import blocks
from hotloop.fix.loaders import driving
from hotloop.fix.plan import Plan
from hotloop.fix.scene import Built, Cannot
from hotloop.source.code import Code
from hotloop.source.flow import is_pure
from hotloop.source.nodes import is_self, text_of


def drop_unused_fields(plan: Plan, value: Any) -> None:
    """The entry of each field goes out of the dictionary; what was computed for it before stays."""
    built = driving(plan)
    notes = plan.scene.process.notes.get("unread", ())
    seen = [note for note in notes if note.get("loader") == built.id]
    # What a loader of the same samples reads must stay.
    kind = (built.settings.get("dataset") or {}).get("class")
    loaders = plan.scene.process.notes.get("loader", ())
    same = (int(one["id"]) for one in loaders if kind and (one.get("dataset") or {}).get("class") == kind)
    alike = {built.id, *same}
    read = {str(name) for note in notes if note.get("loader") in alike for name in note.get("read") or ()}
    given = [name.strip() for name in str(value or "").split(",") if name.strip()]
    fields = dict.fromkeys(given or [str(name) for note in seen for name in note.get("unread", ())])
    if not fields:
        raise Cannot("which fields are not read is not known: give them")
    code, owner, made = _dictionary(plan, built)
    places = {text_of(key): at for at, key in enumerate(made.keys) if key is not None}
    stays: dict[str, Cannot] = {}
    goes = []
    for field in fields:
        try:
            if field in read:
                raise Cannot.at(f"the run reads {field}", code, made)
            if field not in places:
                raise Cannot.at(f"{field} is not written plainly there", code, made)
            _check(plan, code, owner, made.values[places[field]], field)
            goes.append(places[field])
        except Cannot as cannot:
            stays[field] = cannot
    if not goes:
        raise next(iter(stays.values()))
    if len(goes) == len(made.values):
        raise Cannot.at("nothing would be left of a sample", code, made)
    blocks.without(plan, code, made, sorted(goes))
    for field, why in stays.items():
        plan.remark(f"{field} stays: {why.why} ({Path(why.file).name}:{why.line})")


def _dictionary(plan: Plan, built: Built) -> tuple[Code, ast.ClassDef, ast.Dict]:
    """The one dictionary that the ``__getitem__`` of the loader's dataset returns."""
    facts = built.settings.get("dataset") or {}
    file, line = str(facts.get("file") or ""), int(facts.get("line") or 0)
    if collate_name(built.settings) not in DEFAULT_COLLATE:
        raise Cannot("a collate_fn of yours makes the batches of samples", file, line)
    if not file:
        raise Cannot("the samples are not made by a __getitem__ of yours")
    code = plan.scene.code(file)
    function = code.function_at("__getitem__", line)
    owner = code.class_of(function) if function is not None else None
    if function is None or owner is None:
        raise Cannot("the __getitem__ of the dataset cannot be told", file, line)
    returns = [one for one in code.nodes(ast.Return, function) if code.function_of(one) is function]
    if len(returns) != 1 or not isinstance(returns[0].value, ast.Dict):
        raise Cannot.at("__getitem__ does not return one dictionary that stands there", code, function)
    return code, owner, returns[0].value


def _check(plan: Plan, code: Code, owner: ast.ClassDef, value: ast.expr, field: str) -> None:
    """Raises Cannot where a field may be read somewhere, or is made by what does more than that."""
    if not is_pure(code, value):
        raise Cannot.at(f"{code.source(value)} may do more than make {field}", code, value)
    values = [note.get("value") for note in plan.scene.config]
    if any(one == field or (isinstance(one, list | tuple) and field in one) for one in values):
        raise Cannot.at(f"{field} is named in the configuration", code, value)
    for other in _all_codes(plan):
        for node in _mentions(other, field):
            if other is not code or not code.holds(owner, node):
                raise Cannot.at(f"{field} is named here too", other, node)
    own = [one for one in code.nodes(ast.Subscript, owner) if is_self(one.value)]
    if own or any(one.attr == "__getitem__" for one in code.nodes(ast.Attribute, owner)):
        raise Cannot.at("the dataset reads its own samples", code, own[0] if own else owner)


def _mentions(code: Code, field: str) -> Iterator[ast.AST]:
    """Where a file names a field in a way that may read it: not as a key of a dictionary it makes."""
    for text in code.nodes(ast.Constant):
        above = code.parents.get(text)
        if text_of(text) == field and not (isinstance(above, ast.Dict) and text in above.keys):
            yield text
    yield from (one for one in code.nodes(ast.Attribute) if one.attr == field and not is_self(one.value))


def _all_codes(plan: Plan) -> list[Code]:
    """Every file of the user's that was loaded. Raises Cannot where one cannot be read as it was."""
    found = []
    for file in plan.scene.loaded():
        if file.suffix == ".py" and not {"site-packages", "dist-packages"} & set(file.parts):
            found.append(plan.scene.code(file))
            plan.scene.unchanged(file)
    return found
