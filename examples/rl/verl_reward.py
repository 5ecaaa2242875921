"""Rewards for verl: reward.custom_reward_function.path=examples/rl/verl_reward.py, .name=compute_scores.

With the reward manager `batch`; `compute_score` is the form for one completion at a time. The data set's
`reward_model.ground_truth` is the PyTorch reference. reward_kwargs go to KernelReward, Shaping and the request, such as
`+reward.custom_reward_function.reward_kwargs.num_trials=50`.
"""

from kernel_eval_client.rewards.verl import compute_score, compute_scores

__all__ = ["compute_score", "compute_scores"]
