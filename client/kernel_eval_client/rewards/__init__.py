"""Rewards for reinforcement learning: completions in, a number for each out; docs/rewards.md says what is rewarded."""

from kernel_eval_client.rewards.batch import KernelReward
from kernel_eval_client.rewards.extraction import Extraction, extract
from kernel_eval_client.rewards.shaping import Scored, Shaping

__all__ = ["Extraction", "KernelReward", "Scored", "Shaping", "extract"]
