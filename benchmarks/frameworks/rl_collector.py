"""torchrl: PPO with its collector; acting in the environment takes most of the time."""

import torch
from tensordict.nn import TensorDictModule
from tensordict.nn.distributions import NormalParamExtractor
from torch import nn
from torchrl.collectors import Collector
from torchrl.data.replay_buffers import ReplayBuffer
from torchrl.data.replay_buffers.samplers import SamplerWithoutReplacement
from torchrl.data.replay_buffers.storages import LazyTensorStorage
from torchrl.envs import Compose, DoubleToFloat, StepCounter, TransformedEnv
from torchrl.envs.libs.gym import GymEnv
from torchrl.modules import ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

frames_per_batch = 500
sub_batch_size = 100
num_epochs = 2

env = TransformedEnv(GymEnv("Pendulum-v1"), Compose(DoubleToFloat(), StepCounter()))
actor_net = nn.Sequential(nn.LazyLinear(64), nn.Tanh(), nn.LazyLinear(64), nn.Tanh(), nn.LazyLinear(2), NormalParamExtractor())
policy = ProbabilisticActor(
    module=TensorDictModule(actor_net, in_keys=["observation"], out_keys=["loc", "scale"]),
    spec=env.action_spec,
    in_keys=["loc", "scale"],
    distribution_class=TanhNormal,
    distribution_kwargs={"low": env.action_spec.space.low, "high": env.action_spec.space.high},
    return_log_prob=True,
)
value = ValueOperator(module=nn.Sequential(nn.LazyLinear(64), nn.Tanh(), nn.LazyLinear(1)), in_keys=["observation"])
policy(env.reset())
value(env.reset())
collector = Collector(env, policy, frames_per_batch=frames_per_batch, total_frames=5000, split_trajs=False, device="cpu")
replay_buffer = ReplayBuffer(storage=LazyTensorStorage(max_size=frames_per_batch), sampler=SamplerWithoutReplacement())
advantage = GAE(gamma=0.99, lmbda=0.95, value_network=value, average_gae=True)
loss_module = ClipPPOLoss(actor_network=policy, critic_network=value, clip_epsilon=0.2, entropy_bonus=True)
optim = torch.optim.Adam(loss_module.parameters(), 3e-4)
scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optim, 10, 0.0)

for i, tensordict_data in enumerate(collector):
    for _ in range(num_epochs):
        advantage(tensordict_data)
        replay_buffer.extend(tensordict_data.reshape(-1).cpu())
        for _ in range(frames_per_batch // sub_batch_size):
            subdata = replay_buffer.sample(sub_batch_size)
            losses = loss_module(subdata)
            loss_value = losses["loss_objective"] + losses["loss_critic"] + losses["loss_entropy"]
            loss_value.backward()
            torch.nn.utils.clip_grad_norm_(loss_module.parameters(), 1.0)
            optim.step()
            optim.zero_grad()
    print(i, "reward", tensordict_data["next", "reward"].mean().item())
    scheduler.step()
collector.shutdown()
