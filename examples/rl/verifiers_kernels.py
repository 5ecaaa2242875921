"""The starter suite as a taskset for verifiers: --env.taskset.id verifiers_kernels, with examples/rl on PYTHONPATH."""

import asyncio

import verifiers.v1 as vf

from kernel_eval_client.rewards import KernelReward
from kernel_eval_client.suites import read

__all__ = ["KernelTaskset"]

ASK = (
    "Write a faster version of this PyTorch module as a class `ModelNew` with the same constructor, in one Python code"
    " block. It may launch Triton kernels.\n\n```python\n{}\n```"
)


class KernelData(vf.TaskData):
    """A task's data: the reference that a kernel must match and beat."""

    reference: str


class KernelTask(vf.Task[KernelData, vf.State, vf.TaskConfig]):
    """Rewarded for the last reply's code block."""

    judge = KernelReward(errors="raise", options={"num_trials": 50, "timeout": 60})

    @vf.reward
    async def right_and_fast(self, trace) -> dict[str, float]:
        """The parts of the reward. A failure of the service is an error of the rollout, not a reward."""
        (scored,) = await asyncio.to_thread(self.judge.score, [trace.last_reply], [self.data.reference])
        if scored.reward is None:
            raise RuntimeError(f"{scored.verdict}: {scored.reason}")
        trace.info["kernel"] = scored.metrics()
        return {f"kernel_{name}": value for name, value in scored.parts.items()}


class KernelTaskset(vf.Taskset[KernelTask, vf.TasksetConfig]):
    """A task for each problem."""

    def load(self):
        for problem in read("starter"):
            source = problem.reference.source_code
            data = KernelData(id=problem.name, name=problem.name, prompt=ASK.format(source), reference=source)
            yield KernelTask(data, self.config.task)
