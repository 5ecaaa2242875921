"""Rewards for verl: reward.custom_reward_function.path=examples/rl/verl_reward.py, .name=compute_score.

verl's reward loop (`naive`, its default) calls that for many completions at once. `compute_scores` is for the reward
manager `batch`, which verl's trainer had before that loop. The data set's `reward_model.ground_truth` is the PyTorch reference. reward_kwargs go to KernelReward, Shaping and the request, such as
`+reward.custom_reward_function.reward_kwargs.num_trials=50`.
"""

from kernel_eval_client.rewards.verl import compute_score, compute_scores

__all__ = ["compute_score", "compute_scores"]
