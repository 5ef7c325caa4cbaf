"""stable-baselines3: PPO on CartPole as its guide writes it."""

import gymnasium as gym
from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import EvalCallback

env = gym.make("CartPole-v1")
model = PPO("MlpPolicy", env, verbose=1, n_steps=512, n_epochs=4, device="cpu")
callback = EvalCallback(gym.make("CartPole-v1"), eval_freq=2000, n_eval_episodes=3, verbose=0)
model.learn(total_timesteps=6000, callback=callback)
model.save("out-sb3/ppo_cartpole")
