"""The ``__getitem__`` that makes the samples of a loader, and every file that may have a say in them."""

from __future__ import annotations

import libcst as cst

from hotloop.diagnose.collating import DEFAULT_COLLATE, collate_name
from hotloop.remedy.source.code import Code, Function
from hotloop.remedy.source.plan import Plan
from hotloop.remedy.source.scene import Built, Cannot


def maker(plan: Plan, built: Built) -> tuple[Code, cst.ClassDef, Function]:
    """The ``__getitem__`` of a loader's dataset, with its class. Raises Cannot."""
    facts = built.settings.get("dataset") or {}
    file, line = facts.get("file"), facts.get("line")
    if not file:
        raise Cannot("the samples are not made by a __getitem__ of yours")
    code = plan.scene.code(str(file))
    found = [
        one
        for one in code.nodes(cst.FunctionDef)
        if one.name.value == "__getitem__"
        and line in (code.line(one), code.line(one.name), *(code.line(d) for d in one.decorators))
    ]
    owner = code.above(found[0], cst.ClassDef) if len(found) == 1 else None
    if owner is None:
        raise Cannot("the __getitem__ of the dataset cannot be told", str(file), int(line or 0))
    return code, owner, found[0]


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
