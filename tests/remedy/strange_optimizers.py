# ruff: noqa: E501
"""Optimizers as strangers write them: what each is (torch's class and arguments), or None where torch has none.

Each is the body of a class ``Mine(torch.optim.Optimizer)``, the arguments that it is built with, and what to
write in its place.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from functools import cache
from typing import Any, NamedTuple

from hotloop.remedy.source.optimizers import likeness

#: Answers one request after the other in one process: torch is imported once.
_ALL = """
import importlib.util, json, sys
spec = importlib.util.spec_from_file_location("likeness", sys.argv[1])
likeness = sys.modules["likeness"] = importlib.util.module_from_spec(spec)
spec.loader.exec_module(likeness)
out = sys.stdout
for line in sys.stdin:
    print(json.dumps(likeness.answer(json.loads(line))), file=out, flush=True)
"""


@cache
def _process() -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-P", "-c", _ALL, likeness.__file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
        text=True, env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONDONTWRITEBYTECODE": "1"},
    )  # fmt: skip


@cache
def answered(request: str) -> str:
    """What the script says to a request."""
    process = _process()
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdin.write(request + "\n")
    process.stdin.flush()
    return process.stdout.readline()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(answered(json.dumps(request, sort_keys=True)))
    return found


def end() -> None:
    """End the process that answers."""
    if _process.cache_info().currsize:
        process = _process()
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdin.close()
        process.stdout.close()
        process.wait(timeout=60)
        _process.cache_clear()


class Strange(NamedTuple):
    """``call`` is what stands behind the parameters; ``becomes`` what torch's class is given, None: refused."""

    body: str
    call: str = ""
    becomes: str | None = None
    why: str = ""


HEAD = """
    def __init__(self, params, {signature}):
        super().__init__(params, dict({defaults}))
"""


def adam(signature: str, update: str, *, betas: str = 'group["betas"]', call: str = "") -> tuple[str, str]:
    """A class of Adam's family, with the lines of its update."""
    names = [one.split("=")[0].strip() for one in signature.replace("(0.9, 0.999)", "B").split(",")]
    head = HEAD.format(signature=signature, defaults=", ".join(f"{one}={one}" for one in names))
    lines = "\n".join(f"                {line}" for line in update.strip().splitlines())
    body = f"""{head}
    @torch.no_grad()
    def step(self, closure=None):
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        for group in self.param_groups:
            b1, b2 = {betas}
            for p in group["params"]:
                if p.grad is None:
                    continue
                grad, state = p.grad, self.state[p]
                if len(state) == 0:
                    state["step"] = 0
                    state["m"] = torch.zeros_like(p)
                    state["v"] = torch.zeros_like(p)
                m, v = state["m"], state["v"]
                state["step"] += 1
                t = state["step"]
{lines}
        return loss
"""
    return body, call


USUAL = "lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.01"
MOMENTS = "m.mul_(b1).add_(grad, alpha=1 - b1)\nv.mul_(b2).addcmul_(grad, grad, value=1 - b2)\n"
DECOUPLED = 'p.mul_(1 - group["lr"] * group["weight_decay"])\n'
HATS = "mh = m / (1 - b1 ** t)\nvh = v / (1 - b2 ** t)\n"
STEP = 'p.sub_(group["lr"] * mh / (vh.sqrt() + group["eps"]))\n'
L2 = 'grad = grad + group["weight_decay"] * p\n'

SGD = """
    def __init__(self, params, lr=0.1, momentum=0.9, weight_decay=0.0, nesterov=False):
        super().__init__(params, dict(lr=lr, momentum=momentum, weight_decay=weight_decay, nesterov=nesterov))

    @torch.no_grad()
    def step(self):
        for g in self.param_groups:
            for p in g["params"]:
                if p.grad is None:
                    continue
                d = p.grad
                if g["weight_decay"] != 0:
                    d = d.add(p, alpha=g["weight_decay"])
                if "buf" not in self.state[p]:
                    self.state[p]["buf"] = torch.zeros_like(p)
                buf = self.state[p]["buf"]
                buf.mul_(g["momentum"]).add_({scale}d)
                p.add_({move}, alpha=-g["lr"])
"""
PLAIN = """
    def __init__(self, params, learning_rate=0.1):
        super().__init__(params, {"lr": learning_rate})

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.data -= group["lr"] * p.grad.data
"""
RMSPROP = """
    def __init__(self, params, lr=1e-2, decay=0.99, eps=1e-8):
        super().__init__(params, {"lr": lr, "decay": decay, "eps": eps})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                s = self.state.setdefault(p, {})
                if "sq" not in s:
                    s["sq"] = torch.zeros_like(p)
                s["sq"] = group["decay"] * s["sq"] + (1 - group["decay"]) * p.grad ** 2
                p -= group["lr"] * p.grad / (%s)
"""
ADAGRAD = """
    def __init__(self, params, lr=1e-2, eps=1e-10):
        super().__init__(params, {"lr": lr, "eps": eps})
        for group in self.param_groups:
            for p in group["params"]:
                self.state[p]["sum"] = torch.full_like(p, %s)

    @torch.no_grad()
    def step(self, closure=None):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                self.state[p]["sum"].addcmul_(p.grad, p.grad)
                p.addcdiv_(p.grad, self.state[p]["sum"].sqrt().add_(group["eps"]), value=-group["lr"])
"""
HARD_CODED = """
    def __init__(self, params, alpha=3e-4):
        super().__init__(params, {"lr": alpha})
        self.t = 0

    @torch.no_grad()
    def step(self):
        self.t += 1
        for group in self.param_groups:
            for p in group["params"]:
                if p not in self.state:
                    self.state[p] = {"m": torch.zeros_like(p), "v": torch.zeros_like(p)}
                if p.grad is None:
                    continue
                s = self.state[p]
                s["m"] = 0.9 * s["m"] + 0.1 * p.grad
                s["v"] = 0.98 * s["v"] + 0.02 * p.grad * p.grad
                m_hat = s["m"] / (1 - 0.9 ** self.t)
                v_hat = s["v"] / (1 - 0.98 ** self.t)
                p -= group["lr"] * m_hat / (torch.sqrt(v_hat) + 1e-9)
"""
SAM = """
    def __init__(self, params, lr=0.1, rho=0.05):
        super().__init__(params, dict(lr=lr, rho=rho))

    @torch.no_grad()
    def step(self, closure=None):
        assert closure is not None
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.add_(p.grad, alpha=group["rho"])
        with torch.enable_grad():
            closure()
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is not None:
                    p.sub_(p.grad, alpha=group["lr"])
"""
LION = """
    def __init__(self, params, lr=1e-4, betas=(0.9, 0.99), weight_decay=0.0):
        super().__init__(params, dict(lr=lr, betas=betas, weight_decay=weight_decay))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                if len(self.state[p]) == 0:
                    self.state[p]["m"] = torch.zeros_like(p)
                p.data.mul_(1 - group["lr"] * group["weight_decay"])
                m = self.state[p]["m"]
                p.add_((m * group["betas"][0] + p.grad * (1 - group["betas"][0])).sign_(), alpha=-group["lr"])
                m.mul_(group["betas"][1]).add_(p.grad, alpha=1 - group["betas"][1])
"""
MUON = """
    def __init__(self, params, lr=0.02, momentum=0.95):
        super().__init__(params, dict(lr=lr, momentum=momentum))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                if p.grad is None:
                    continue
                buf = self.state[p].setdefault("buf", torch.zeros_like(p))
                buf.mul_(group["momentum"]).add_(p.grad)
                g = buf
                if g.ndim == 2:
                    g = g / (g.norm() + 1e-7)
                    for _ in range(5):
                        a = g @ g.T
                        g = 3.4445 * g + (-4.7750 * a + 2.0315 * a @ a) @ g
                p.add_(g, alpha=-group["lr"])
"""

STRANGE: dict[str, Strange] = {
    "adamw": Strange(*adam(USUAL, MOMENTS + HATS + DECOUPLED + STEP), "AdamW()"),
    "adamw_with_values": Strange(
        *adam(USUAL, MOMENTS + HATS + DECOUPLED + STEP, call="lr=3e-4, weight_decay=0.1"),
        "AdamW(lr=3e-4, weight_decay=0.1)",
    ),
    "adamw_by_position": Strange(
        *adam(USUAL, MOMENTS + HATS + DECOUPLED + STEP, call="args.lr, (0.9, 0.95), 1e-8, args.wd"),
        "AdamW(lr=args.lr, betas=(0.9, 0.95), eps=1e-8, weight_decay=args.wd)",
    ),
    "adamw_as_one_sum": Strange(
        *adam(
            USUAL, MOMENTS + HATS + 'p.sub_(group["lr"] * (mh / (vh.sqrt() + group["eps"]) + group["weight_decay"] * p))'
        ),
        "AdamW()",
    ),
    "adam_with_l2": Strange(
        *adam("lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0", L2 + MOMENTS + HATS + STEP), "Adam()"
    ),
    "adam_with_other_defaults": Strange(
        *adam("lr=3e-4, beta1=0.9, beta2=0.99, epsilon=1e-6, wd=0.1", L2.replace("weight_decay", "wd") + MOMENTS + HATS + STEP.replace("eps", "epsilon"), betas='group["beta1"], group["beta2"]'),
        "Adam(lr=0.0003, betas=(0.9, 0.99), eps=1e-06, weight_decay=0.1)",
    ),
    "adam_two_betas_given": Strange(
        *adam("lr=1e-3, b1=0.9, b2=0.999, e=1e-8", MOMENTS + HATS + STEP.replace("eps", "e"), betas='group["b1"], group["b2"]', call="lr=1e-3, b2=0.95, b1=cfg.beta"),
        "Adam(lr=1e-3, betas=(cfg.beta, 0.95))",
    ),
    "amsgrad": Strange(
        *adam(
            "lr=1e-3, betas=(0.9, 0.999), eps=1e-8",
            MOMENTS + 'state["x"] = torch.maximum(state.get("x", torch.zeros_like(v)), v)\n'
            + 'p.sub_(group["lr"] / (1 - b1 ** t) * m / ((state["x"] / (1 - b2 ** t)).sqrt() + group["eps"]))',
        ),
        "Adam(amsgrad=True)",
    ),
    "adam_hard_coded": Strange(HARD_CODED, why="counts steps for all parameters together"),
    "adam_changes_gradients": Strange(
        *adam("lr=1e-3, betas=(0.9, 0.999), eps=1e-8, weight_decay=0.1", 'grad.add_(p, alpha=group["weight_decay"])\n' + MOMENTS + HATS + STEP),
        "Adam(weight_decay=0.1)",
    ),
    "sgd_plain": Strange(PLAIN, "learning_rate=0.05", "SGD(lr=0.05)"),
    "sgd_momentum": Strange(SGD.format(scale="", move="buf"), "lr=0.1", "SGD(lr=0.1, momentum=0.9)"),
    "sgd_nesterov": Strange(
        SGD.format(scale="", move='d.add(buf, alpha=g["momentum"])'), "lr=0.1", "SGD(lr=0.1, momentum=0.9, nesterov=True)"
    ),
    "rmsprop": Strange(RMSPROP % 's["sq"].sqrt() + group["eps"]', "", "RMSprop()"),
    "adagrad": Strange(ADAGRAD % "0.0", "", "Adagrad()"),
    "adagrad_from_a_tenth": Strange(ADAGRAD % "0.1", "", None),
    # -- what torch has not --
    "eps_in_the_root": Strange(*adam(USUAL, MOMENTS + HATS + DECOUPLED + STEP.replace('(vh.sqrt() + group["eps"])', '(vh + group["eps"]).sqrt()'))),
    "eps_before_the_correction": Strange(
        *adam(USUAL, MOMENTS + DECOUPLED + 'a = group["lr"] * (1 - b2 ** t) ** 0.5 / (1 - b1 ** t)\np.addcdiv_(m, v.sqrt().add_(group["eps"]), value=-a)')
    ),
    "no_correction": Strange(*adam(USUAL, MOMENTS + DECOUPLED + 'p.addcdiv_(m, v.sqrt().add_(group["eps"]), value=-group["lr"])')),
    "no_correction_of_the_second": Strange(*adam(USUAL, MOMENTS + "mh = m / (1 - b1 ** t)\nvh = v\n" + DECOUPLED + STEP)),
    "decay_after_the_step": Strange(*adam(USUAL, MOMENTS + HATS + STEP + DECOUPLED)),
    "decay_without_lr": Strange(*adam(USUAL, MOMENTS + HATS + DECOUPLED.replace('group["lr"] * ', "") + STEP)),
    "warm_up_inside": Strange(*adam(USUAL, MOMENTS + HATS + DECOUPLED + STEP.replace('group["lr"]', 'min(1.0, t / 500) * group["lr"]'))),
    "lr_halves_each_thousand": Strange(*adam(USUAL, MOMENTS + HATS + DECOUPLED + 'if t % 10000 == 0:\n    group["lr"] *= 0.5\n' + STEP), why="changes settings"),
    "clips_inside": Strange(*adam(USUAL, "torch.nn.utils.clip_grad_norm_(p, 1.0)\n" + MOMENTS + HATS + DECOUPLED + STEP)),
    "clips_large_values": Strange(*adam(USUAL, "grad = grad.clamp(-50, 50)\n" + MOMENTS + HATS + DECOUPLED + STEP)),
    "skips_what_is_no_number": Strange(*adam(USUAL, "if not torch.isfinite(grad).all():\n    continue\n" + MOMENTS + HATS + DECOUPLED + STEP)),
    "lookahead": Strange(
        *adam(USUAL, MOMENTS + HATS + DECOUPLED + STEP + 'if t % 5 == 0:\n    slow = state.setdefault("slow", p.clone())\n    slow.add_(p - slow, alpha=0.5)\n    p.copy_(slow)')
    ),
    "trust_ratio": Strange(*adam(USUAL, MOMENTS + HATS + 'u = mh / (vh.sqrt() + group["eps"]) + group["weight_decay"] * p\nw, n = p.norm(), u.norm()\nr = (w / n).item() if w > 0 and n > 0 else 1.0\np.sub_(u * (r * group["lr"]))')),
    "centralised": Strange(*adam(USUAL, "if grad.dim() > 1:\n    grad = grad - grad.mean(dim=tuple(range(1, grad.dim())), keepdim=True)\n" + MOMENTS + HATS + DECOUPLED + STEP)),
    "clamps_weights": Strange(*adam(USUAL, MOMENTS + HATS + DECOUPLED + STEP + "p.clamp_(-20.0, 20.0)")),
    "draws_noise": Strange(*adam(USUAL, MOMENTS + HATS + DECOUPLED + STEP + "p.add_(torch.randn_like(p), alpha=1e-12)"), why="it draws random numbers"),
    "prints": Strange(*adam(USUAL, 'print("step", t)\n' + MOMENTS + HATS + DECOUPLED + STEP), why="it prints"),
    "another_memory": Strange(*adam(USUAL, MOMENTS + HATS + 'p.data = p.data * (1 - group["lr"] * group["weight_decay"])\n' + STEP), why="another memory"),
    "ema_momentum": Strange(SGD.format(scale='(1 - g["momentum"]) * ', move="buf")),
    "rmsprop_eps_in_the_root": Strange(RMSPROP % '(s["sq"] + group["eps"]).sqrt()'),
    "sam": Strange(SAM, why="fails by itself"),
    "lion": Strange(LION),
    "muon": Strange(MUON),
    "zeroes_gradients_itself": Strange(*adam(USUAL, MOMENTS + HATS + DECOUPLED + STEP + "p.grad = None"), why="drops gradients"),
    "zero_grad_of_its_own": Strange(PLAIN + "\n    def zero_grad(self):\n        for g in self.param_groups:\n            for p in g['params']:\n                if p.grad is not None:\n                    p.grad.zero_()\n", why="zero_grad() of its own"),
}  # fmt: skip
