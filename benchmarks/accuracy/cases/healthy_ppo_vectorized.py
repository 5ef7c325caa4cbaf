# healthy
# bottleneck: device
"""PPO with a vectorized environment in torch: updates dominate."""
import torch
from torch import nn

torch.manual_seed(0)
NUM_ENVS, HORIZON, EPOCHS, MINIBATCHES = 32, 32, 6, 4


class VectorPendulum:
    def reset(self):
        self.state = torch.randn(NUM_ENVS, 8)
        return self.state

    def step(self, action):
        self.state = 0.95 * self.state + 0.1 * action.unsqueeze(1) + 0.05 * torch.randn(NUM_ENVS, 8)
        return self.state, -self.state.pow(2).sum(1)


class Agent(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 512), nn.Tanh(), nn.Linear(512, 512), nn.Tanh())
        self.mean, self.value = nn.Linear(512, 1), nn.Linear(512, 1)
        self.log_std = nn.Parameter(torch.zeros(1))

    def forward(self, s):
        h = self.body(s)
        return torch.distributions.Normal(self.mean(h).squeeze(-1), self.log_std.exp()), self.value(h).squeeze(-1)


env, agent = VectorPendulum(), Agent()
opt = torch.optim.Adam(agent.parameters(), 3e-4)
s = env.reset()
for update in range(12):
    S, A, LP, R, V = [], [], [], [], []
    for _ in range(HORIZON):
        with torch.no_grad():
            dist, v = agent(s)
            a = dist.sample()
        S.append(s); A.append(a); LP.append(dist.log_prob(a)); V.append(v)
        s, r = env.step(a)
        R.append(r)
    returns, acc = [], torch.zeros(NUM_ENVS)
    for r in reversed(R):
        acc = r + 0.95 * acc
        returns.insert(0, acc)
    S, A, LP, V, RET = (torch.cat(t) for t in (S, A, LP, V, returns))
    adv = RET - V
    adv = (adv - adv.mean()) / (adv.std() + 1e-6)
    for _ in range(EPOCHS):
        for idx in torch.randperm(len(S)).chunk(MINIBATCHES):
            dist, v = agent(S[idx])
            ratio = (dist.log_prob(A[idx]) - LP[idx]).exp()
            surr = torch.min(ratio * adv[idx], ratio.clamp(0.8, 1.2) * adv[idx])
            loss = -surr.mean() + 0.5 * (v - RET[idx]).pow(2).mean() - 0.001 * dist.entropy().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
    print("update", update, "reward", torch.stack(R).mean().item())
