"""GRPO with TRL on the starter suite: python examples/rl/trl_grpo.py MODEL."""

import sys

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from kernel_eval_client.rewards import KernelReward
from kernel_eval_client.suites import read

ASK = (
    "Write a Triton kernel for this PyTorch module. Answer with one Python code block that defines a class `ModelNew`"
    " with the same constructor, and is right and faster.\n\n```python\n{}\n```"
)


def problems():
    """The starter suite's references as a data set; the reward reads the column `reference`."""
    sources = [problem.reference.source_code for problem in read("starter")]
    return Dataset.from_list(
        [{"prompt": [{"role": "user", "content": ASK.format(source)}], "reference": source} for source in sources]
    )


def trainer(model, reward=None, **settings):
    """A trainer that rewards only right and fast kernels."""
    reward = reward or KernelReward(options={"num_trials": 50, "timeout": 60})
    config = GRPOConfig(**{"output_dir": "grpo-kernels", "num_generations": 8, **settings})
    return GRPOTrainer(model=model, reward_funcs=reward, args=config, train_dataset=problems())


if __name__ == "__main__":
    trainer(sys.argv[1]).train()
