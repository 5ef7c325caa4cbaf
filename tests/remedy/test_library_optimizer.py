"""``library-optimizer``: the call of a hand-written optimizer becomes torch's, or the place and why not."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from golden import patch_of
from strange_optimizers import (
    DECOUPLED,
    HATS,
    MOMENTS,
    PLAIN,
    STEP,
    STRANGE,
    USUAL,
    adam,
    answered,
    end,
)

from hotloop.remedy.source.optimizers import library

CLASS = f"class MyAdamW(torch.optim.Optimizer):{STRANGE['adamw'].body}"
SCRIPT = """# a stranger's script
import math
import torch
from torch import nn

{definition}

def loop(model, optimizer, scheduler=None, steps=25):
    torch.manual_seed(1)
    for step in range(steps):
        x = torch.randn(16, 6)
        loss = (model(x) - x.flip(1)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if scheduler is not None:
            scheduler.step()


torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 6))
{built}
"""
RUN = "optimizer = MyAdamW(model.parameters())\nloop(model, optimizer)"
NOTE = {"class": "MyAdamW", "module": "__main__", "held": {"cpu": [1, 1, 1]}, "dtypes": ["torch.float32"]}


@pytest.fixture(scope="module", autouse=True)
def process() -> Iterator[None]:
    """One process answers all; how it is started is tested by the runs of test_fix.py."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(library, "_ran", lambda executable, request: answered(request))
        yield
    end()


def fixed(folder: Path, files: dict[str, str], **more: Any) -> tuple[str, str]:
    """The main script behind the patch, and why there is none."""
    for name, text in files.items():
        (folder / name).write_text(text)
    facts = {"apply": ["library-optimizer"], "optimizer": more.get("notes", [NOTE]), **more.get("facts", {})}
    patch = patch_of(folder, facts)
    new = patch.files.get(folder / "train.py")
    return (new[1].decode() if new else ""), " ".join(one.why for one in patch.left)


def script(built: str = RUN, definition: str = CLASS) -> str:
    return SCRIPT.format(definition=definition, built=built)


def ends(text: str) -> list[float]:
    """The parameters that a script ends with."""
    space: dict[str, Any] = {"__name__": "__main__"}
    exec(compile(text, "train.py", "exec"), space)
    return [value for one in space["model"].parameters() for value in one.flatten().tolist()]


GROUPS = """\
decay = [p for p in model.parameters() if p.ndim > 1]
plain = [p for p in model.parameters() if p.ndim < 2]
optimizer = MyAdamW(
    [
        {"params": decay, "weight_decay": 0.1},
        {"params": plain, "weight_decay": 0.0},
    ],
    # tuned by hand
    lr=3e-2,
    betas=(0.9, 0.95),  # as GPT
)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: min(1.0, step / 10))
loop(model, optimizer, schedule)"""
FACTORY = """\
def build(model, config):
    if config["kind"] == "sgd":
        return torch.optim.SGD(model.parameters(), lr=config["lr"])
    return MyAdamW(model.parameters(), config["lr"], eps=1e-6)


optimizer = build(model, {"kind": "adamw", "lr": 0.01})
loop(model, optimizer)"""
MADE = """\
def build():
    return MyAdamW(model.parameters())


mine = build()
mine.warm = 3"""
TWO = """\
first = MyAdamW(model[0].parameters(), lr=1e-2)
second = MyAdamW(model[2].parameters(), lr=1e-3, weight_decay=0.2)
loop(model, first)
loop(model, second)"""


@pytest.mark.parametrize(
    ("built", "written"),
    [
        (RUN, ["optimizer = torch.optim.AdamW(model.parameters(), fused=True)"]),
        (
            GROUPS,
            [
                "optimizer = torch.optim.AdamW(\n    [\n",
                "    # tuned by hand\n    lr=3e-2,\n    betas=(0.9, 0.95),  # as GPT\n    fused=True,\n)",
            ],
        ),
        (FACTORY, ['return torch.optim.AdamW(model.parameters(), lr=config["lr"], eps=1e-6, fused=True)']),
        (
            TWO,
            [
                "first = torch.optim.AdamW(model[0].parameters(), lr=1e-2, fused=True)",
                "second = torch.optim.AdamW(model[2].parameters(), lr=1e-3, weight_decay=0.2, fused=True)",
            ],
        ),
    ],
)  # fmt: skip
def test_both_copies_train_alike(tmp_path: Path, built: str, written: list[str]) -> None:
    before = script(built)
    after, why = fixed(tmp_path, {"train.py": before})
    assert not why
    assert all(one in after for one in written)
    assert "class MyAdamW" in after
    assert ends(after) == pytest.approx(ends(before), abs=2e-5)


def test_other_names_and_arguments_that_torch_has_not(tmp_path: Path) -> None:
    body, _ = adam(
        "lr=1e-3, b1=0.9, b2=0.999, e=1e-8, correct=True, wd=0.1",
        MOMENTS + HATS + DECOUPLED.replace("weight_decay", "wd") + STEP.replace("eps", "e"),
        betas='group["b1"], group["b2"]',
    )
    built = "rate, second = 0.01, 0.98\n" + RUN.replace("()", "(), rate, 0.9, second, correct=True")
    before = script(built, f"class MyAdamW(torch.optim.Optimizer):{body}")
    after, why = fixed(tmp_path, {"train.py": before})
    assert not why
    made = "torch.optim.AdamW(model.parameters(), lr=rate, betas=(0.9, second), weight_decay=0.1, fused=True)"
    assert made in " ".join(after.split())
    assert ends(after) == pytest.approx(ends(before), abs=2e-5)


def test_a_class_of_another_file_that_has_the_name_of_torchs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "optimizers", raising=False)
    base = "import torch\nfrom torch.optim import Optimizer\n\n\nclass Base(Optimizer):\n    pass\n"
    module = base + f"\n\nclass AdamW(Base):{STRANGE['adamw'].body}"
    built = (
        "from optimizers import AdamW\n\nif math.pi > 3:\n"
        "    optimizer = AdamW(model.parameters(), lr=0.01)\nelse:\n"
        "    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)\nloop(model, optimizer)"
    )
    before = script(built, "")
    after, why = fixed(
        tmp_path,
        {"optimizers.py": module, "train.py": before},
        notes=[{**NOTE, "class": "AdamW", "module": "optimizers"}],
    )
    assert not why
    assert "optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, fused=True)" in after
    assert "optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)" in after
    assert ends(after) == pytest.approx(ends(before), abs=2e-5)


def test_without_a_fused_kernel_many_tensors_are_updated_at_once(tmp_path: Path) -> None:
    definition = f"class MyAdamW(torch.optim.Optimizer):{STRANGE['rmsprop'].body}"
    after, why = fixed(tmp_path, {"train.py": script(definition=definition)})
    assert not why
    assert "torch.optim.RMSprop(model.parameters(), foreach=True)" in after


@pytest.mark.parametrize(
    ("built", "why"),
    [
        (f"{RUN}\nprint(len(optimizer.state))", "reads the optimizer's state"),
        (f"{RUN}\nfor p in model.parameters():\n    print(optimizer.state[p]['m'])", "optimizer's state"),
        (f"{RUN}\nassert isinstance(optimizer, MyAdamW)", "more than built here"),
        ("KINDS = {'adamw': MyAdamW}\nmine = KINDS['adamw'](model.parameters())", "more than built here"),
        ("rates = {'lr': 0.1}\nmine = MyAdamW(model.parameters(), **rates)", r"passed on by \* or \*\*"),
        (f"{RUN}\nclass Other(MyAdamW):\n    pass", "more than built here"),
        (f"{RUN}\nprint(getattr(optimizer, 'defaults'))", "what this asks of the optimizer"),
        (f"{RUN}\noptimizer.step = lambda: None", r"sets \.step"),
        (f"{RUN}\noptimizer.step(lambda: None, 3)", "step\\(\\) would take"),
        (MADE, r"sets \.warm"),
        ("MyAdamW = print", "more than built here"),
        (f"{RUN}\nif type(optimizer).__name__[:2] == 'My':\n    pass", "asks for the class"),
        (f"{RUN}\nif optimizer.__class__.__name__[:2] == 'My':\n    pass", "asks for the class"),
        (f"{RUN}\nprint(str(optimizer).split()[0] == 'MyAdamW')", 'names "MyAdamW"'),
        (f"{RUN}\nprint(optimizer.state_dict()['state'][0]['m'])", "reads the optimizer's state"),
    ],
)  # fmt: skip
def test_what_else_the_script_does_with_it(tmp_path: Path, built: str, why: str) -> None:
    after, words = fixed(tmp_path, {"train.py": script(built)})
    assert not after
    assert re.search(why, words), words


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (("class MyAdamW", "@torch.no_grad()\nclass MyAdamW"), "what decorates MyAdamW"),
        (("state = p.grad, self.state[p]", "state = p.grad / WORLD, self.state[p]"), "WORLD has no def"),
        (("if p.grad is None", "if p.is_cuda or p.grad is None"), "depends on the machine"),
        (("loss = None\n", "loss = torch.distributed.is_initialized()\n"), "depends on the machine"),
        (("(grad, alpha=1 - b1)", "(grad, alpha=1 - b1)  # \n                global N"), "changes a global"),
        (("lr=1e-3", "lr=float(1e-3)"), ""),
        (("b1, b2 = ", "b1, b2 = RATES[0], RATES[1]  # "), "RATES has no definition"),
        (("return loss", "return grad"), "returns something"),
        (("def step(self, closure=None)", "def step(self, lr, closure=None)"), "would not show"),
    ],
)  # fmt: skip
def test_what_the_class_does_beside(tmp_path: Path, change: tuple[str, str], why: str) -> None:
    assert change[0] in CLASS
    after, words = fixed(tmp_path, {"train.py": script(definition=CLASS.replace(*change))})
    assert bool(after) == (not why)
    assert not why or re.search(why, words), words


LINES = """\
lr = group["lr"] * getattr(p, "lr_mult", 1.0)
p.mul_(0.0 if group.get("frozen") else 1.0)
p.mul_(0.9 if p.requires_grad else 1.0)
if group["lr"] == 0: continue
if p.dtype == torch.float32: m.copy_(m.bfloat16())
if grad.dim() == 3: grad = grad - grad.mean()
if grad.norm() > 1e5: grad = grad * 0.1
if grad.numel() > 1000: grad = grad * 0.1
if torch.isnan(grad).any(): exit()
if t % 100 == 0: torch.save(self.state_dict(), "optimizer.pt")
if t > 5000: grad = grad * 0.5
grad = grad.clamp(-1e3, 1e3)
lr = max(group["lr"], 1e-5)
self.counts["steps"] += 1
b1, b2 = self.betas
p.mul_(1 - Config.decay)
p.mul_(1 - DECAY)
torch.os.rmdir("victim")
p.detach().numpy().tofile("victim")
log.info("t %d", t)
while t: break
lr = [k for k in [t] if k > 300]
(lambda: grad.mul_(1))()
grad = grad[:1]
p.__class__ = t
"""
SETS = "import logging\nDECAY = 0.1\nlog = logging.getLogger('x')\nclass Config:\n    decay = 0.1\n\n"


@pytest.mark.parametrize("line", LINES.strip().splitlines())
def test_a_class_does_arithmetic_on_each_element_and_nothing_else(tmp_path: Path, line: str) -> None:
    step = '                t = state["step"]\n'
    assert step in CLASS
    changed = SETS + CLASS.replace(step, f"{step}                {line}\n")
    after, words = fixed(tmp_path, {"train.py": script(definition=changed)})
    assert not after
    assert "would not show" in words or "it uses logging" in words


@pytest.mark.parametrize(
    "line",
    [
        "params = [{'params': list(params)}]",
        "params = list(params)",
        "if lr == 0.0:\n            lr = 1e-3",
        "lr = lr or 1e-3",
        "torch.manual_seed(0)",
        "[p.register_hook(lambda g: g) for p in params]",
        "self.betas = betas",
    ],
)
def test_a_constructor_hands_on_what_it_is_given(tmp_path: Path, line: str) -> None:
    definition = CLASS.replace("        super().__init__", f"        {line}\n        super().__init__")
    assert definition != CLASS
    after, words = fixed(tmp_path, {"train.py": script(definition=definition)})
    assert not after
    assert "would not show" in words


USUAL_FORM = """class MyAdamW(Optimizer):
    \"\"\"AdamW.\"\"\"

    def __init__(self, params, lr: float = 1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01):
        if not 0.0 <= lr:
            raise ValueError(f"Invalid learning rate: {lr}")
        if not 0.0 <= betas[0] < 1.0:
            raise ValueError("Invalid beta: {}".format(betas[0]))
        defaults = {"lr": lr, "betas": betas, "eps": eps, "weight_decay": weight_decay}
        super(MyAdamW, self).__init__(params, defaults)

    def __setstate__(self, state):
        super().__setstate__(state)

    @torch.no_grad()
    def step(self, closure: Optional[Callable[[], float]] = None) -> Optional[float]:
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if p.grad.is_sparse:
                    raise RuntimeError("no sparse gradients")
                state = self.state[p]
                if not state:
                    state["step"] = 0
                    state["exp_avg"] = torch.zeros_like(p, memory_format=torch.preserve_format)
                    state["exp_avg_sq"] = torch.zeros_like(p, memory_format=torch.preserve_format)
                state["step"] += 1
                self._update(p, p.grad, state, group)
        return loss

    def _update(self, p, grad, state, group):
        beta1, beta2 = group["betas"]
        if group["weight_decay"] > 0:
            p.mul_(1 - group["lr"] * group["weight_decay"])
        state["exp_avg"].mul_(beta1).add_(grad, alpha=1 - beta1)
        state["exp_avg_sq"].mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        root = math.sqrt(1 - beta2 ** state["step"])
        denominator = (state["exp_avg_sq"].sqrt() / root).add_(group["eps"])
        p.addcdiv_(state["exp_avg"], denominator, value=-group["lr"] / (1 - beta1 ** state["step"]))
"""


def test_the_usual_form_is_known(tmp_path: Path) -> None:
    imports = "from typing import Callable, Optional\nfrom torch.optim import Optimizer\n\n\n"
    after, why = fixed(tmp_path, {"train.py": script(definition=imports + USUAL_FORM)})
    assert not why
    assert "optimizer = torch.optim.AdamW(model.parameters(), fused=True)" in after


@pytest.mark.parametrize("text", ["", "Traceback"])
def test_no_answer_is_a_refusal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setattr(library, "_ran", lambda executable, request: text)
    after, why = fixed(tmp_path, {"train.py": script()})
    assert not after
    assert "could not be tried" in why


@pytest.mark.parametrize(
    ("note", "why"),
    [
        ({"loaded": True}, "loads a state"),
        ({"dtypes": ["torch.bfloat16", "torch.float32"]}, "bfloat16"),
        ({"sparse": True}, "sparse"),
        ({"class": "Adam", "module": "torch.optim.adam"}, "torch's own"),
        ({"class": "FusedLAMB", "module": "apex.optimizers"}, "not defined in a file of yours"),
    ],
)
def test_what_the_run_shows(tmp_path: Path, note: dict[str, Any], why: str) -> None:
    after, words = fixed(tmp_path, {"train.py": script()}, notes=[{**NOTE, **note}])
    assert not after
    assert why in words


def test_what_autograd_does_not_see_is_left_where_several_are_updated(tmp_path: Path) -> None:
    definition = f"class MyAdamW(torch.optim.Optimizer):{PLAIN}"
    text = script(definition=definition)
    assert fixed(tmp_path, {"train.py": text})[0]
    after, words = fixed(tmp_path, {"train.py": text}, notes=[NOTE, NOTE])
    assert not after
    assert "hides from autograd" in words


@pytest.mark.parametrize(("line", "is_written"), [("", True), ("print(model[0].weight.grad.norm())", False)])
def test_gradients_that_the_class_changes_are_used_by_nobody(
    tmp_path: Path, line: str, is_written: bool
) -> None:
    definition = f"class MyAdamW(torch.optim.Optimizer):{STRANGE['adam_changes_gradients'].body}"
    text = script(f"{RUN}\n{line}", definition)
    after, _ = fixed(tmp_path, {"train.py": text})
    assert bool(after) == is_written
    zero = "optimizer.zero_grad()"
    rarely = text.replace(zero, f"if step % 2 == 0:\n            {zero}")
    assert not fixed(tmp_path, {"train.py": rarely})[0]


def test_keys_of_groups_that_torch_has_not(tmp_path: Path) -> None:
    body, _ = adam(
        USUAL.replace("weight_decay", "wd"), MOMENTS + HATS + DECOUPLED.replace("weight_decay", "wd") + STEP
    )
    definition = f"class MyAdamW(torch.optim.Optimizer):{body}"
    for line in (
        "optimizer.param_groups[0]['wd'] = 0.1",
        "optimizer.add_param_group({'params': [], 'wd': 0.1})",
        "for one in optimizer.param_groups:\n    one['wd'] = 0.1",
        "for one in optimizer.param_groups:\n    one.update(wd=0.1)",
    ):
        after, words = fixed(tmp_path, {"train.py": script(f"{RUN}\n{line}", definition)})
        assert not after
        assert '"wd" of a group' in words


def test_settings_that_are_set_by_name_of_an_argument(tmp_path: Path) -> None:
    """A decay that torch has not counts from where the script sets one."""
    definition = f"class MyAdamW(torch.optim.Optimizer):{STRANGE['decay_after_the_step'].body}"
    built = RUN.replace("()", "(), weight_decay=0.0")
    assert fixed(tmp_path, {"train.py": script(built, definition)})[0]
    later = f"{built}\nfor one in optimizer.param_groups:\n    one.update(weight_decay=0.01)"
    assert not fixed(tmp_path, {"train.py": script(later, definition)})[0]


def test_settings_that_a_scheduler_sets_are_read(tmp_path: Path) -> None:
    definition = CLASS.replace('b1, b2 = group["betas"]', "b1, b2 = 0.9, 0.999")
    assert definition != CLASS
    after, words = fixed(tmp_path, {"train.py": script(definition=definition)})
    assert not after
    assert "would not show" in words


def test_helpers_that_the_script_sets(tmp_path: Path) -> None:
    helper = "def root(v):\n    return v.sqrt()\n\n\n"
    definition = helper + CLASS.replace("vh.sqrt()", "root(vh)")
    assert "root(vh)" in definition
    assert fixed(tmp_path, {"train.py": script(definition=definition)})[0]
    built = f"import sys\nsys.modules[__name__].root = torch.abs\n{RUN}"
    after, words = fixed(tmp_path, {"train.py": script(built, definition)})
    assert not after
    assert "this may set root()" in words
