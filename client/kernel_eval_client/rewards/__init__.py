"""Rewards for reinforcement learning: a number for each completion; docs/rewards.md explains them."""

from kernel_eval_client.rewards.batch import KernelReward
from kernel_eval_client.rewards.extraction import Extraction, extract
from kernel_eval_client.rewards.shaping import Scored, Shaping

__all__ = ["Extraction", "KernelReward", "Scored", "Shaping", "extract"]
