"""Hand-written optimizers are recognised by what they do, and those that do nearly the same are not."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from strange_optimizers import STRANGE, Strange, answer, end


@pytest.fixture(scope="module", autouse=True)
def process() -> Iterator[None]:
    yield
    end()


def request(strange: Strange, **more: Any) -> dict[str, Any]:
    args = _arguments(strange)
    source = f"import torch\nclass Mine(torch.optim.Optimizer):\n{strange.body}"
    calls = [
        [{"name": name, "value": None if "." in text and text[0].isalpha() else text} for name, text in args]
    ]
    calls[0][0]["value"] = None
    return {"source": source, "class": "Mine", "calls": calls, "groups": [], "open": [], **more}


def _arguments(strange: Strange) -> list[tuple[str | None, str]]:
    text = f"f(params, {strange.call})"
    call = ast.parse(text, mode="eval").body
    assert isinstance(call, ast.Call)
    given = [*((None, one) for one in call.args), *((one.arg, one.value) for one in call.keywords)]
    return [(name, str(ast.get_source_segment(text, node))) for name, node in given]


@pytest.mark.parametrize("name", [name for name, one in STRANGE.items() if one.becomes is not None])
def test_what_torch_has_is_recognised(name: str) -> None:
    found = answer(request(STRANGE[name]))["calls"][0]
    texts = [text for _, text in _arguments(STRANGE[name])]
    written = []
    for keyword, parts in found["keywords"]:
        values = [texts[one["arg"]] if "arg" in one else one["value"] for one in parts]
        written.append(f"{keyword}={values[0] if len(values) == 1 else '(' + ', '.join(values) + ')'}")
    assert f"{found['class']}({', '.join(written)})" == STRANGE[name].becomes


@pytest.mark.parametrize("name", [name for name, one in STRANGE.items() if one.becomes is None])
def test_what_torch_has_not_is_refused(name: str) -> None:
    found = answer(request(STRANGE[name]))
    if STRANGE[name].why:
        assert STRANGE[name].why in found["why"]
    else:
        assert "nearest" in found["calls"][0]


def test_what_groups_of_the_run_had_counts() -> None:
    """A setting that only some groups have is no argument of any class of torch."""
    scaled = STRANGE["adamw"].body.replace('group["lr"] * mh', 'group.get("scale", 1.0) * group["lr"] * mh')
    strange = Strange(scaled)
    groups = [{"lr": 1e-3, "scale": 1.0}, {"lr": 1e-3, "scale": 0.5}]
    plain = [{"lr": 1e-3, "name": "head"}, {"lr": 1e-4, "weight_decay": 0.0}]
    assert answer(request(strange, groups=groups))["calls"][0]["nearest"] == "AdamW"
    assert answer(request(STRANGE["adamw"], groups=plain))["calls"][0]["class"] == "AdamW"


def test_a_decay_of_none_is_adams_unless_the_script_may_set_one() -> None:
    """A class whose decay torch has not is Adam where it never decays."""
    body = STRANGE["decay_after_the_step"].body
    one = Strange(body, "weight_decay=0.0")
    assert answer(request(one))["calls"][0]["class"] == "Adam"
    assert "nearest" in answer(request(one, open=["weight_decay"]))["calls"][0]
    assert "nearest" in answer(request(Strange(body, "weight_decay=args.wd")))["calls"][0]


IN_STEP = '                t = state["step"]\n'
IN_INIT = "\n    @torch.no_grad()\n    def step"


@pytest.mark.parametrize(
    ("place", "line", "why"),
    [
        (IN_STEP, "if t == 2: torch.save({}, 'optimizer.pt')", "does more than update"),
        (IN_STEP, "if t == 2: torch._C.PyTorchFileWriter('optimizer.pt')", "does more than update"),
        (IN_STEP, "if t == 2: torch.os.rmdir('victim')", "does more than update"),
        (IN_STEP, "if t == 2: torch.os.truncate('victim', 0)", "does more than update"),
        (IN_STEP, "if t == 2: torch.os.link('victim', 'other')", "does more than update"),
        (IN_STEP, "if torch.isnan(grad).any(): raise SystemExit(0)", "SystemExit"),
        (IN_STEP, "group['seen'] = t", "changes settings"),
        (IN_INIT, "torch.randn(3)", "draws random numbers"),
        (IN_INIT, "for p in self.param_groups[0]['params']: p.data.mul_(0.5)", "does something"),
        (IN_INIT, "for p in self.param_groups[0]['params']: p.register_hook(lambda g: g)", "does something"),
    ],
)  # fmt: skip
def test_a_trial_has_no_effect_but_on_its_own_parameters(
    place: str, line: str, why: str, tmp_path: Path
) -> None:
    body = STRANGE["adamw"].body
    assert place in body
    indent = " " * (16 if place is IN_STEP else 8)
    added = f"{place}{indent}{line}\n" if place is IN_STEP else f"{indent}{line}\n{place}"
    assert why in answer(request(Strange(body.replace(place, added))))["why"]


def test_a_learning_rate_of_nought_is_tried() -> None:
    skips = STRANGE["adamw"].body.replace("p.grad is None:", "p.grad is None or not group['lr']:")
    assert "nearest" in answer(request(Strange(skips)))["calls"][0]
