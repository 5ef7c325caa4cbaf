"""The ``__getitem__`` that makes the samples of a loader, and every file that may have a say in them."""

from __future__ import annotations

import ast

from hotloop.diagnose.collating import DEFAULT_COLLATE, collate_name
from hotloop.fix.plan import Plan
from hotloop.fix.scene import Built, Cannot
from hotloop.source.code import Code
from hotloop.source.nodes import Function


def maker(plan: Plan, built: Built) -> tuple[Code, ast.ClassDef, Function]:
    """The ``__getitem__`` of a loader's dataset, with its class. Raises Cannot."""
    facts = built.settings.get("dataset") or {}
    file, line = facts.get("file"), facts.get("line")
    if not file:
        raise Cannot("the samples are not made by a __getitem__ of yours")
    code = plan.scene.code(str(file))
    found = code.function_at("__getitem__", int(line or 0))
    owner = code.class_of(found) if found is not None else None
    if found is None or owner is None:
        raise Cannot("the __getitem__ of the dataset cannot be told", str(file), int(line or 0))
    return code, owner, found


def require_default_collate(built: Built) -> None:
    """Raises Cannot where a function of the user's makes the batches of samples."""
    facts = built.settings.get("dataset") or {}
    if collate_name(built.settings) not in DEFAULT_COLLATE:
        file, line = facts.get("file"), facts.get("line")
        raise Cannot("a collate_fn of yours makes the batches of samples", str(file or ""), int(line or 0))


def all_codes(plan: Plan) -> list[Code]:
    """Every file of the user's that was loaded. Raises Cannot where one cannot be read as it was."""
    found = []
    for file in plan.scene.loaded():
        if file.suffix == ".py" and not {"site-packages", "dist-packages"} & set(file.parts):
            found.append(plan.scene.code(file))
            plan.scene.unchanged(file)
    return found
