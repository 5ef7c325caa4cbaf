"""Loops over parameters as people write them: each defines ``run()``, which gives tensors; the line with
``HOT`` is where the time goes.
"""

from __future__ import annotations

HEAD = """
import copy
import torch
from torch import nn

def make(seed=0, width=6):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 3))
    for n, p in enumerate(model.parameters()):
        p.data.add_(0.1 * n)
    return model

def backward(model, seed=0):
    torch.manual_seed(seed)
    for p in model.parameters():
        p.grad = None
    model(torch.randn(8, 4)).pow(2).sum().backward()
"""

#: name -> (source, whether there is an average in it)
WRITTEN: dict[str, tuple[str, bool]] = {
    "an average of two statements": (
        """
class EMA:
    def __init__(self, model, decay=0.999):
        self.model = copy.deepcopy(model).eval()
        self.decay = decay

    @torch.no_grad()
    def update(self, model):
        for ema_p, p in zip(self.model.parameters(), model.parameters()):
            ema_p.mul_(self.decay)  # HOT
            ema_p.add_(p.detach() * (1 - self.decay))
        for ema_b, b in zip(self.model.buffers(), model.buffers()):
            ema_b.copy_(b)

def run():
    model = make()
    averages = [EMA(model, d) for d in (0.9, 0.99)]
    for n in range(5):
        other = make(n + 1)
        other.train()(torch.randn(8, 4))
        for ema in averages:
            ema.update(other)
    return [value for ema in averages for value in ema.model.state_dict().values()]
""",
        True,
    ),
    "soft update of td3": (
        """
def soft_update(target, source, tau):
    for target_param, param in zip(target.parameters(), source.parameters()):
        target_param.data.copy_(target_param.data * (1.0 - tau) + param.data * tau)  # HOT

def run():
    target, source = make(1), make(2)
    for _ in range(7):
        soft_update(target, source, 0.005)
    return list(target.parameters())
""",
        True,
    ),
    "soft update of spinning up, frozen": (
        """
def run():
    ac, ac_targ, polyak = make(1), make(2), 0.995
    for p in ac_targ.parameters():
        p.requires_grad = False
    for _ in range(7):
        with torch.no_grad():
            for p, p_targ in zip(ac.parameters(), ac_targ.parameters()):
                # NB: We use an in-place operations "mul_", "add_" to update target
                # params, as opposed to "mul" and "add", which would make new tensors.
                p_targ.data.mul_(polyak)  # HOT
                p_targ.data.add_((1 - polyak) * p.data)
    return list(ac_targ.parameters())
""",
        True,
    ),
    "momentum encoder of moco": (
        '''
class MoCo(nn.Module):
    def __init__(self, m=0.999):
        super().__init__()
        self.m = m
        self.encoder_q, self.encoder_k = make(1), make(2)

    @torch.no_grad()
    def _momentum_update_key_encoder(self):
        """
        Momentum update of the key encoder
        """
        for param_q, param_k in zip(
            self.encoder_q.parameters(), self.encoder_k.parameters()
        ):
            param_k.data = param_k.data * self.m + param_q.data * (1.0 - self.m)  # HOT

def run():
    moco = MoCo()
    before = [p.data for p in moco.encoder_k.parameters()]
    for _ in range(4):
        moco._momentum_update_key_encoder()
    return [*moco.encoder_k.parameters(), *before]
''',
        True,
    ),
    "dino teacher": (
        """
def run():
    student, teacher_without_ddp = make(1), make(2)
    momentum_schedule = [0.996, 0.997, 0.998]
    for it in range(3):
        with torch.no_grad():
            m = momentum_schedule[it]  # momentum parameter
            for param_q, param_k in zip(student.parameters(), teacher_without_ddp.parameters()):
                param_k.data.mul_(m).add_((1 - m) * param_q.detach().data)  # HOT
    return list(teacher_without_ddp.parameters())
""",
        True,
    ),
    "shadow dictionary": (
        """
class EMA():
    def __init__(self, model, decay):
        self.model = model
        self.decay = decay
        self.shadow = {}
        self.backup = {}

    def register(self):
        for name, param in self.model.named_parameters():
            if param.requires_grad:
                self.shadow[name] = param.data.clone()

    def update(self):
        for name, param in self.model.named_parameters():
            if param.requires_grad:
                assert name in self.shadow
                new_average = (1.0 - self.decay) * param.data + self.decay * self.shadow[name]  # HOT
                self.shadow[name] = new_average.clone()

def run():
    model = make()
    model[0].bias.requires_grad = False
    ema = EMA(model, 0.9)
    ema.register()
    for n in range(4):
        for p in model.parameters():
            p.data.mul_(1.1)
        ema.update()
    return list(ema.shadow.values())
""",
        True,
    ),
    "gradients clamped by value": (
        """
def run():
    model = make()
    out = []
    for n in range(3):
        backward(model, n)
        for param in model.parameters():
            param.grad.data.clamp_(-1, 1)  # HOT
        out += [p.grad for p in model.parameters()]
    return out
""",
        False,
    ),
    "gradients that may be none": (
        """
def clip(model, coef):
    for p in model.parameters():
        if p.grad is None:
            continue
        grad = p.grad.data
        grad.mul_(coef)  # HOT

def run():
    model = make()
    backward(model)
    model[0].weight.grad = None
    total = torch.cat([p.grad.flatten() for p in model.parameters() if p.grad is not None]).norm()
    coef = 1.0 / (total + 1e-6)
    clip(model, coef)
    return [p.grad for p in model.parameters() if p.grad is not None]
""",
        False,
    ),
    "sgd by hand": (
        """
def run():
    model, lr, wd = make(), 0.01, 1e-2
    for n in range(3):
        backward(model, n)
        with torch.no_grad():
            for name, p in model.named_parameters():
                if p.grad is not None and not name.endswith("bias"):
                    p -= lr * (p.grad + wd * p)  # HOT
    return list(model.parameters())
""",
        False,
    ),
    "sgd by hand, guarded inside": (
        """
def run():
    model, lr = make(), 0.01
    for n in range(3):
        backward(model, n)
        for p in model.parameters():
            with torch.no_grad():
                p.sub_(p.grad, alpha=lr)  # HOT
                p.grad.zero_()
    return [*model.parameters(), *(p.grad for p in model.parameters())]
""",
        False,
    ),
    "param groups": (
        """
def run():
    model = make()
    groups = [{"params": model[0].parameters(), "lr": 0.1}, {"params": model[3].parameters()}]
    opt = torch.optim.SGD(groups, lr=0.01)
    for n in range(3):
        backward(model, n)
        for group in opt.param_groups:
            for param in group["params"]:
                param.data.add_(param.data, alpha=-0.01 * group["lr"])  # HOT
        opt.step()
    return list(model.parameters())
""",
        False,
    ),
    "gradient noise": (
        """
def run():
    model = make()
    out = []
    for n in range(3):
        backward(model, n)
        for p in model.parameters():
            if p.grad is not None:
                noise = torch.randn_like(p.grad) * 0.01
                p.grad += noise  # HOT
        out += [p.grad for p in model.parameters()]
    return [*out, torch.randn(3)]
""",
        False,
    ),
    "a state dict with integers": (
        """
class ModelEMA:
    def __init__(self, model, decay=0.99):
        self.ema = copy.deepcopy(model).eval()
        self.updates = 0
        self.decay = lambda x: decay * (1 - 2.0 ** (-x / 20))

    def update(self, model):
        with torch.no_grad():
            self.updates += 1
            d = self.decay(self.updates)
            msd = model.state_dict()
            for k, v in self.ema.state_dict().items():
                if v.dtype.is_floating_point:
                    v *= d  # HOT
                    v += (1. - d) * msd[k].detach()

def run():
    model = make()
    ema = ModelEMA(model)
    for n in range(5):
        model.train()(torch.randn(8, 4))
        ema.update(model)
    return list(ema.ema.state_dict().values())
""",
        True,
    ),
    "a state dict, all of it": (
        """
def run():
    model, decay = make(), 0.9
    ema = copy.deepcopy(model)
    for n in range(5):
        model.train()(torch.randn(8, 4))
        with torch.no_grad():
            for ema_v, model_v in zip(ema.state_dict().values(), model.state_dict().values()):
                ema_v.copy_(decay * ema_v + (1.0 - decay) * model_v)  # HOT
    return list(ema.state_dict().values())
""",
        False,
    ),
    "shadow parameters in a list": (
        """
class ExponentialMovingAverage:
    def __init__(self, parameters, decay):
        self.decay = decay
        self.num_updates = 0
        self.shadow_params = [p.clone().detach() for p in parameters if p.requires_grad]

    def update(self, parameters):
        self.num_updates += 1
        decay = min(self.decay, (1 + self.num_updates) / (10 + self.num_updates))
        one_minus_decay = 1.0 - decay
        with torch.no_grad():
            parameters = [p for p in parameters if p.requires_grad]
            for s_param, param in zip(self.shadow_params, parameters):
                s_param.sub_(one_minus_decay * (s_param - param))  # HOT

def run():
    model = make()
    ema = ExponentialMovingAverage(model.parameters(), 0.9)
    for n in range(5):
        for p in model.parameters():
            p.data.mul_(1.1)
        ema.update(model.parameters())
    return ema.shadow_params
""",
        True,
    ),
    "several targets in one function": (
        """
class Agent:
    def __init__(self):
        self.actor, self.actor_target = make(1), make(2)
        self.critic, self.critic_target = make(3), make(4)
        self.tau = 0.005

    def train(self):
        # Update the frozen target models
        for param, target_param in zip(self.critic.parameters(), self.critic_target.parameters()):
            target_param.data.copy_(self.tau * param.data + (1 - self.tau) * target_param.data)

        for param, target_param in zip(self.actor.parameters(), self.actor_target.parameters()):
            target_param.data.copy_(self.tau * param.data + (1 - self.tau) * target_param.data)  # HOT

def run():
    agent = Agent()
    for _ in range(4):
        agent.train()
    return [*agent.actor_target.parameters(), *agent.critic_target.parameters()]
""",
        True,
    ),
    "literals, lerp": (
        """
def run():
    a, b = make(1), make(2)
    for _ in range(4):
        for t, s in zip(a.parameters(), b.parameters(), strict=False):
            t.data.lerp_(s.data, 0.01)  # HOT
    return list(a.parameters())
""",
        True,
    ),
    "literal weights": (
        """
def run():
    a, b = make(1), make(2)
    for _ in range(4):
        for t, s in zip(a.parameters(), b.parameters()): t.data = t.data.clone() * 0.9 + 0.1 * s.data  # HOT
    return list(a.parameters())
""",
        True,
    ),
    "in another precision": (
        """
def run():
    model, decay = make(1), 0.99
    ema = copy.deepcopy(model).double()
    for _ in range(4):
        for k, q in zip(ema.parameters(), model.parameters()):
            k.data.mul_(decay).add_(q.detach().to(k.device, k.dtype), alpha=1 - decay)  # HOT
    return list(ema.parameters())
""",
        False,
    ),
    "nothing to go over": (
        """
def run():
    model = nn.ReLU()
    for _ in range(4):
        for p in model.parameters():
            p.data.mul_(0.9)  # HOT
    return [torch.zeros(1)]
""",
        False,
    ),
    "shorter on one side": (
        """
def run():
    a, b = make(1), make(1)[0]
    for _ in range(4):
        for p, q in zip(a.parameters(), b.parameters()):
            p.data.add_(q.data)  # HOT
    return list(a.parameters())
""",
        False,
    ),
    "indexed by enumerate": (
        """
def run():
    model = make()
    velocity = [torch.zeros_like(p) for p in model.parameters()]
    for n in range(4):
        backward(model, n)
        with torch.no_grad():
            for i, p in enumerate(model.parameters()):
                velocity[i].mul_(0.9).add_(p.grad)  # HOT
                p.sub_(velocity[i] * 0.01)
    return [*model.parameters(), *velocity]
""",
        False,
    ),
    "pairs of named parameters": (
        """
def run():
    a, b = make(1), make(2)
    m = 0.9
    for _ in range(4):
        for (name_a, param_a), (name_b, param_b) in zip(a.named_parameters(), b.named_parameters()):
            if "weight" in name_a or name_b == "0.bias":
                param_a.data = param_a.data * m + param_b.data * (1 - m)  # HOT
    return list(a.parameters())
""",
        True,
    ),
    "weight decay beside the gradient": (
        """
def run():
    model = make()
    out = []
    for n in range(3):
        backward(model, n)
        for p in filter(lambda p: p.requires_grad, model.parameters()):
            p.grad.add_(p.data, alpha=1e-2)  # HOT
            p.grad.clamp_(min=-2.0)
            p.data -= 0.01 * torch.sign(p.grad)
        out += [p.grad for p in model.parameters()]
    return [*out, *model.parameters()]
""",
        False,
    ),
    "a dictionary of named parameters": (
        '''
from collections import OrderedDict
@torch.no_grad()
def update_ema(ema_model, model, decay=0.9):
    """
    Step the EMA model towards the current model.
    """
    ema_params = OrderedDict(ema_model.named_parameters())
    model_params = OrderedDict(model.named_parameters())

    for name, param in model_params.items():
        # TODO: Consider applying only to params that require_grad
        ema_params[name].mul_(decay).add_(param.data, alpha=1 - decay)  # HOT
def run():
    a, b = make(1), make(2)
    for n in range(3): update_ema(a, b)
    return list(a.parameters())
''',
        True,
    ),
    "keys of a dictionary": (
        """
def accumulate(model1, model2, decay=0.9):
    par1 = dict(model1.named_parameters())
    par2 = dict(model2.named_parameters())

    for k in par1.keys():
        par1[k].data.mul_(decay).add_(par2[k].data, alpha=1 - decay)  # HOT
def run():
    a, b = make(1), make(2)
    for n in range(3): accumulate(a, b)
    return list(a.parameters())
""",
        True,
    ),
    "a copy of an interpolation": (
        """
def run():
    G, G_ema = make(1), make(2)
    ema_beta = 0.9
    with torch.no_grad():
        for p_ema, p in zip(G_ema.parameters(), G.parameters()):
            p_ema.copy_(p.lerp(p_ema, ema_beta))  # HOT
        for b_ema, b in zip(G_ema.buffers(), G.buffers()):
            b_ema.copy_(b)
    return list(G_ema.state_dict().values())
""",
        True,
    ),
    "weight of a state dict of its own": (
        """
def run():
    policy_net, target_net, TAU = make(1), make(2), 0.005
    for _ in range(3):
        target_net_state_dict = target_net.state_dict()
        policy_net_state_dict = policy_net.state_dict()
        for key in policy_net_state_dict:
            target_net_state_dict[key] = (  # HOT
                policy_net_state_dict[key]*TAU + target_net_state_dict[key]*(1-TAU))
        target_net.load_state_dict(target_net_state_dict)
    return list(target_net.state_dict().values())
""",
        False,
    ),
    "slow and fast weights": (
        """
class Lookahead:
    def __init__(self, model):
        self.fast = list(model.parameters())
        self.slow = [p.clone().detach() for p in model.parameters()]
    def step(self, alpha=0.5):
        for fast, slow in zip(self.fast, self.slow):
            slow.data += alpha * (fast.data - slow.data)  # HOT
            fast.data.copy_(slow.data)
def run():
    m = make(); l = Lookahead(m)
    for n in range(3):
        for p in m.parameters(): p.data.mul_(1.2)
        l.step()
    return [*m.parameters(), *l.slow]
""",
        True,
    ),
    "tied weights": (
        """
class Tied(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Embedding(5, 4)
        self.b = nn.Linear(4, 5, bias=False)
        self.b.weight = self.a.weight
def run():
    torch.manual_seed(0)
    m = Tied(); e = copy.deepcopy(m)
    for _ in range(3):
        for p, q in zip(e.parameters(), m.parameters()):
            p.data.mul_(0.9).add_(q.data, alpha=0.1)  # HOT
    return list(e.parameters())
""",
        True,
    ),
    "momentum in a dictionary": (
        """
def run():
    model = make(); lr, mom = 0.01, 0.9
    vel = {n: torch.zeros_like(p) for n, p in model.named_parameters()}
    for s in range(4):
        backward(model, s)
        with torch.no_grad():
            for n, p in model.named_parameters():
                v = vel[n]
                v.mul_(mom).add_(p.grad)
                p.add_(v, alpha=-lr)  # HOT
    return [*model.parameters(), *vel.values()]
""",
        False,
    ),
    "weights swapped": (
        """
def run():
    a, b = make(1), make(2)
    for pa, pb in zip(a.parameters(), b.parameters()):
        tmp = pa.data.clone()
        pa.data.copy_(pb.data)  # HOT
        pb.data.copy_(tmp)
    return [*a.parameters(), *b.parameters()]
""",
        False,
    ),
    "a value made before": (
        """
def run():
    a, b = make(1), make(2)
    for k, q in zip(a.parameters(), b.parameters()):
        new = 0.9 * k.data + 0.1 * q.data
        k.data.zero_()
        k.data.copy_(new)  # HOT
    return [*a.parameters(), *b.parameters()]
""",
        True,
    ),
    "names whose plural is a keyword": (
        """
def run():
    model = make(); acc = [torch.zeros_like(p) for p in model.parameters()]
    for n in range(3):
        backward(model, n)
        for a, p in zip(acc, model.parameters()):
            a += p.grad / 3  # HOT
    for a, p in zip(acc, model.parameters()):
        p.grad = a.clone()
    return acc
""",
        False,
    ),
    "tabs and comments": (
        """
def run():
\ta, b = make(1), make(2)
\tfor x, y in zip(a.parameters(), b.parameters()):
\t\t# decay
\t\tx.data.mul_(0.9)  # HOT
\t\t# and add
\t\tx.data.add_(y.data * 0.1)  # small
\treturn [*a.parameters()]
""",
        True,
    ),
    "at the top of a file": (
        """
a, b = make(1), make(2)
for step in range(3):
    for x, y in zip(a.parameters(), b.parameters()):
        x.data.mul_(0.9).add_(y.data, alpha=0.1)  # HOT
def run(): return [*a.parameters()]
""",
        True,
    ),
    "two ways": (
        """
class EMAModel:
    def __init__(self, parameters, decay=0.9):
        parameters = list(parameters)
        self.shadow_params = [p.clone().detach() for p in parameters]
        self.decay = decay

    @torch.no_grad()
    def step(self, parameters):
        one_minus_decay = 1 - self.decay
        for s_param, param in zip(self.shadow_params, parameters):
            if param.requires_grad:
                s_param.sub_(one_minus_decay * (s_param - param))  # HOT
            else:
                s_param.copy_(param)

def run():
    model = make()
    ema = EMAModel(model.parameters())
    model[0].weight.requires_grad = False
    for n in range(3):
        for p in model.parameters():
            p.data.mul_(1.1)
        ema.step(model.parameters())
    return ema.shadow_params
""",
        True,
    ),
    "three ways": (
        """
def run():
    model, ema = make(1), make(2)
    for n in range(3):
        model.train()(torch.randn(4, 4))
        for (name, a), b in zip(ema.state_dict().items(), model.state_dict().values()):
            if not a.is_floating_point():
                a.copy_(b)  # HOT
            elif "running" in name:
                a.copy_(b)
                a.mul_(0.5)
            else:
                a.lerp_(b.to(device="cpu"), weight=1. - 0.9)
    return list(ema.state_dict().values())
""",
        True,
    ),
    "into itself": (
        """
def polyak_update(params, target_params, tau):
    with torch.no_grad():
        for param, target_param in zip(params, target_params):
            target_param.data.mul_(1 - tau)  # HOT
            torch.add(target_param.data, param.data, alpha=tau, out=target_param.data)

def run():
    a, b = make(1), make(2)
    for _ in range(3):
        polyak_update(a.parameters(), b.parameters(), 0.05)
    return list(b.parameters())
""",
        True,
    ),
    "an optimizer of the user's": (
        """
class O(torch.optim.Optimizer):
    def __init__(self, params, lr=0.1):
        super().__init__(params, dict(lr=lr))

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.add_(p.grad, alpha=-group["lr"])  # HOT

def run():
    model = make()
    opt = O(model.parameters())
    for n in range(3):
        backward(model, n)
        opt.step()
    return list(model.parameters())
""",
        False,
    ),
    "a rate of the command line": (
        """
import argparse

parser = argparse.ArgumentParser()
parser.add_argument("--ema-tau", default=0.005, type=float)
args = parser.parse_args([])

def run():
    target, source = make(1), make(2)
    for p, q in zip(target.parameters(), source.parameters()):
        p.data.mul_(1 - args.ema_tau).add_(q.data, alpha=args.ema_tau)  # HOT
    return list(target.parameters())
""",
        True,
    ),
    "a condition on one line": (
        """
def run():
    model = make(); backward(model); inv_scale = 1. / 1024
    for group in torch.optim.SGD(model.parameters(), 0.1).param_groups:
        for p in group['params']:
            if p.grad is not None: p.grad.mul_(inv_scale)  # HOT
    return [p.grad for p in model.parameters()]
""",
        False,
    ),
}

TWO_PLACES = """
def shrink(model):
    for p in model.parameters():
        p.data.mul_(0.9)  # HOT

def run():
    model = make()
    backward(model)
    for p in model.parameters():
        p.grad.clamp_(max=0.5)
    shrink(model)
    return [*model.parameters(), *(p.grad for p in model.parameters())]
"""

DIVIDED = """
def run():
    model = make()
    backward(model)
    for p in model.parameters():
        p.grad.div_(7)  # HOT
    return [p.grad for p in model.parameters()]
"""

#: name -> (source, a part of why it is left)
REFUSED: dict[str, tuple[str, str]] = {
    "a norm that is read": (
        """
def f(model):
    total = 0.0
    for p in model.parameters():
        total += p.grad.data.norm(2).item() ** 2  # HOT
""",
        "is no tensor of the round",
    ),
    "tied weights of a user's own method": (
        """
class Both:
    def parameters(self):
        return [*self.a.parameters(), *self.a.parameters()]

def f(both):
    for p in both.parameters():
        p.data.mul_(0.5)  # HOT
""",
        "may come twice",
    ),
    "a list of unknown origin": (
        """
def f(params):
    for p in params:
        p.data.mul_(0.5).add_(1)  # HOT
""",
        "may come twice",
    ),
    "a list that grows": (
        """
params = []
for m in (make(1), make(2)):
    params.extend(m.parameters())
for p in params:
    p.data.mul_(0.5)  # HOT
""",
        "may come twice",
    ),
    "two models in a chain": (
        """
import itertools
def f(a, b):
    for p in itertools.chain(a.parameters(), b.parameters()):
        p.data.mul_(0.5)  # HOT
""",
        "may come twice",
    ),
    "a part of itself": (
        """
class Agent(nn.Module):
    def f(self):
        for p, t in zip(self.parameters(), self.target.parameters()):
            t.data.mul_(0.5).add_(p.data, alpha=0.5)  # HOT
""",
        "part of the other",
    ),
    "decay by name": (
        """
def f(a, b):
    for (n, p), q in zip(a.named_parameters(), b.parameters()):
        d = 0.9 if "bias" in n else 0.99
        p.data.mul_(d).add_(q.data, alpha=1 - d)  # HOT
""",
        "no form",
    ),
    "a condition behind an operation": (
        """
def f(a):
    for n, p in a.named_parameters():
        p.data.mul_(0.9)  # HOT
        if "bias" in n:
            continue
        p.data.add_(1)
""",
        "behind an operation",
    ),
    "a condition on values": (
        """
def f(a):
    for p in a.parameters():
        if p.grad.abs().max() > 1:
            p.grad.mul_(0.5)  # HOT
""",
        "asked of each",
    ),
    "a loop that stops": (
        """
def f(a):
    for p in a.parameters():
        p.data.mul_(0.9)  # HOT
        break
""",
        "no form",
    ),
    "a counter": (
        """
def f(a):
    n = 0
    for p in a.parameters():
        p.data.mul_(0.9)  # HOT
        n += p.numel()
""",
        "no tensor of the round",
    ),
    "a print": (
        """
def f(a):
    for name, p in a.named_parameters():
        p.data.mul_(0.9)  # HOT
        print(name)
""",
        "no form",
    ),
    "the last one is read later": (
        """
def f(a):
    for p in a.parameters():
        p.data.mul_(0.9)  # HOT
    return p
""",
        "read outside",
    ),
    "a number that is drawn": (
        """
import random
def f(a):
    for p in a.parameters():
        p.data.mul_(random.random())  # HOT
""",
        "anew in each round",
    ),
    "two draws": (
        """
def f(a):
    for p in a.parameters():
        p.data.add_(torch.randn_like(p)).mul_(torch.rand_like(p))  # HOT
""",
        "two draws",
    ),
    "memory that is shared": (
        """
def f(a, b):
    for p, q in zip(a.parameters(), b.parameters()):
        p.data = q.data  # HOT
""",
        "share it",
    ),
    "read behind a store": (
        """
def f(a, b):
    for p, q in zip(a.parameters(), b.parameters()):
        p.data = p.data * 0.9 + q.data * 0.1  # HOT
        q.data.copy_(p.data)
""",
        "stored before",
    ),
    "a function of the user's": (
        """
def f(a, b, average):
    for p, q in zip(a.parameters(), b.parameters()):
        p.data = average(p.data, q.data)  # HOT
""",
        "no form",
    ),
    "a method of the user's": (
        """
def f(a, b, update_fn):
    with torch.no_grad():
        for p, q in zip(a.state_dict().values(), b.state_dict().values()):
            p.copy_(update_fn(p, q))  # HOT
""",
        "no form",
    ),
    "an optimizer by hand that keeps state": (
        """
def f(opt):
    for group in opt.param_groups:
        for p in group["params"]:
            state = opt.state[p]
            if len(state) == 0:
                state["v"] = torch.zeros_like(p)
            state["v"].mul_(0.9).add_(p.grad)
            p.data.add_(state["v"], alpha=-group["lr"])  # HOT
""",
        "",
    ),
    "a tensor subtracted": (
        """
def f(a, w):
    scale = torch.zeros(3).sum()
    for p in a.parameters():
        p.data.sub_(scale)  # HOT
""",
        "is a tensor",
    ),
    "sums that begin as numbers": (
        """
from collections import defaultdict
def f(a):
    sums = defaultdict(float)
    for name, p in a.named_parameters():
        sums[name] += p.grad  # HOT
""",
        "begin without a tensor",
    ),
    "reshaped": (
        """
def f(a):
    for p in a.parameters():
        p.data.view(-1).mul_(0.9)  # HOT
""",
        "no form",
    ),
    "normalized by its own norm": (
        """
def f(a):
    for p in a.parameters():
        p.grad.data.div_(p.grad.data.norm() + 1e-6)  # HOT
""",
        "no form",
    ),
    "an else": (
        """
def f(a):
    for p in a.parameters():
        p.data.mul_(0.9)  # HOT
    else:
        print("done")
""",
        "else",
    ),
    "scripted": (
        """
@torch.jit.script
def f(params: list[torch.Tensor]):
    for p in params:
        p.mul_(0.9)  # HOT
""",
        "",
    ),
    "sharded": (
        """
from torch.distributed.fsdp import fully_shard
def f(a):
    for p in a.parameters():
        p.data.mul_(0.9)  # HOT
""",
        "parts of tensors",
    ),
    "half on the way of a chain": (
        """
def f(a, b):
    for p, q in zip(a.parameters(), b.parameters()):
        p.data.requires_grad_(False)  # HOT
""",
        "no form",
    ),
    "a name of the module": (
        """
def f(a):
    global p
    for p in a.parameters():
        p.data.mul_(0.9)  # HOT
""",
        "function's own",
    ),
    "torch is another thing": (
        """
def f(a, torch):
    for p in a.parameters():
        p.data.mul_(0.9)  # HOT
""",
        "another thing",
    ),
    "the training loop": (
        """
def f(model, loader):
    for x in loader:
        model(x).sum().backward()  # HOT
""",
        "no form",
    ),
    "a view for each row": (
        """
def f(buf, a):
    for i, p in enumerate(a.parameters()):
        buf[i] *= 0.9  # HOT
""",
        "begin without a tensor",
    ),
    "weights of the loop's own": (
        """
def f(a, lrs):
    for p, lr in zip(a.parameters(), lrs):
        p.data.sub_(lr * p.grad)  # HOT
""",
        "holds tensors is not known",
    ),
    "one way stores what the other asks for": (
        """
def f(model, velocity):
    for name, p in model.named_parameters():
        if name not in velocity:
            velocity[name] = p.grad.clone()
        else:
            velocity[name].mul_(0.9).add_(p.grad)  # HOT
""",
        "one way stores",
    ),
    "gradients that one way makes": (
        """
def f(model):
    for p in model.parameters():
        if p.grad is None:
            p.grad = p.data * 0.1
        else:
            p.grad.mul_(0.5).add_(p.data, alpha=0.1)  # HOT
""",
        "one way stores",
    ),
    "a condition on what is stored": (
        """
def f(model, seen):
    for name, p in model.named_parameters():
        if not seen:
            seen[name] = p.data * 0.1  # HOT
""",
        "a round before it stored",
    ),
    "torch imported behind the loop": (
        """
def f(model):
    for p in model.parameters():
        p.data.mul_(0.9)  # HOT
    import torch
    return torch.zeros(3)
""",
        "at the top of the file",
    ),
    "a name bound in the iterable": (
        """
def f(a, b):
    for p, q in zip(a.parameters(), (bp := list(b.parameters()))):
        p.data.mul_(0.9).add_(q.data)  # HOT
""",
        "bound within",
    ),
    "lists that must be as long": (
        """
def f(a, b):
    for p, q in zip(a.parameters(), b.parameters(), strict=True):
        p.data.mul_(0.9).add_(q.data)  # HOT
""",
        "not as long",
    ),
    "a parameter twice in a group": (
        """
def f(m):
    opt = torch.optim.SGD([m[0].weight, m[0].bias, m[0].weight], lr=0.1)
    for g in opt.param_groups:
        for p in g["params"]:
            p.data.mul_(0.9).add_(1.0)  # HOT
""",
        "may come twice",
    ),
    "a parameter twice in an optimizer of the user's": (
        """
class O(torch.optim.Optimizer):
    def __init__(self, params):
        super().__init__(params, dict(lr=0.1))

    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                p.data.add_(p.grad, alpha=-group["lr"])  # HOT

def f(m):
    return O([*m.parameters(), m[0].weight])
""",
        "may come twice",
    ),
    "a group of an unknown optimizer": (
        """
def f(opt):
    for g in opt.param_groups:
        for p in g["params"]:
            p.data.mul_(0.9)  # HOT
""",
        "may come twice",
    ),
    "one tensor many times": (
        """
def f(m):
    vel = [torch.zeros(3, 3)] * 4
    for i, p in enumerate(m.parameters()):
        vel[i].mul_(0.9).add_(p.grad)  # HOT
""",
        "may come twice",
    ),
    "one tensor for each key": (
        """
def f(m):
    vel = dict.fromkeys([n for n, _ in m.named_parameters()], torch.zeros(3, 3))
    for name, p in m.named_parameters():
        vel[name].mul_(0.9).add_(p.grad)  # HOT
""",
        "may come twice",
    ),
    "a decay that is a buffer": (
        """
class EMA(nn.Module):
    def __init__(self, model):
        super().__init__()
        self.register_buffer("decay", torch.tensor([0.9]))
        self.ema = copy.deepcopy(model)

    def update(self, model):
        for e, p in zip(self.ema.parameters(), model.parameters()):
            e.data.mul_(self.decay).add_(p.data * (1 - self.decay))  # HOT
""",
        "not shown to be a number",
    ),
    "a rate that is a tensor of one": (
        """
def f(model):
    lr = torch.full((1,), 0.1)
    for p in model.parameters():
        p.data.sub_(lr * p.grad)  # HOT
""",
        "not shown to be a number",
    ),
    "a rate that is a parameter": (
        """
class T:
    def __init__(self):
        self.lr = nn.Parameter(torch.tensor(0.01))

    def f(self, model):
        for p in model.parameters():
            p.data.sub_(self.lr)  # HOT
""",
        "not shown to be a number",
    ),
    "a bound that is a tensor": (
        """
class T:
    def __init__(self, high):
        self.high = high

    def f(self, model):
        for p in model.parameters():
            p.data.clamp_(max=self.high)  # HOT

def run(model):
    T(torch.zeros(1)).f(model)
""",
        "not shown to be a number",
    ),
    "a decay that is a property": (
        """
class E:
    @property
    def decay(self):
        self.n += 1
        return 1 - 1 / self.n

    def update(self, a, b):
        for p, q in zip(a.parameters(), b.parameters()):
            p.data.mul_(self.decay).add_(q.data)  # HOT
""",
        "not shown to be a number",
    ),
    "pairs of one model, shifted": (
        """
def f(net):
    for q, p in zip(list(net.parameters())[1:], net.parameters()):
        p.data.mul_(0.5).add_(q.data)  # HOT
""",
        "in common",
    ),
    "a list of its own, turned": (
        """
def f(net):
    params = list(net.parameters())
    prev_params = params[-1:] + params[:-1]
    for p, q in zip(net.parameters(), prev_params):
        p.data.mul_(0.5).add_(q.data)  # HOT
""",
        "in common",
    ),
    "pairs of one model, some left out": (
        """
def f(net):
    for p, q in zip(filter(lambda p: p.requires_grad, net.parameters()), net.parameters()):
        p.data.mul_(0.5).add_(q.data)  # HOT
""",
        "in common",
    ),
    "gradients that are one tensor": (
        """
def f(m):
    gs = torch.autograd.grad(m(torch.ones(1)), list(m.parameters()))
    for p, g in zip(m.parameters(), gs):
        p.grad = g
    for p in m.parameters():
        p.grad.mul_(0.5).add_(p.data)  # HOT
""",
        "may be one",
    ),
    "a list with an entry set again": (
        """
def f(m):
    params = list(m.parameters())
    params[1] = params[0]
    for p in params:
        p.data.mul_(0.5).add_(1)  # HOT
""",
        "may come twice",
    ),
    "a state dict of weights that are tied": (
        """
class T(nn.Module):
    def __init__(self):
        super().__init__()
        self.e, self.h = nn.Embedding(5, 3), nn.Linear(3, 5, bias=False)
        self.h.weight = self.e.weight

def f(a, b):
    sd = b.state_dict()
    for k, v in a.state_dict().items():
        v.mul_(0.9).add_(sd[k], alpha=0.1)  # HOT
""",
        "what is tied here",
    ),
}
