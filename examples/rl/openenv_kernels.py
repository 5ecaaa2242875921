"""An OpenEnv environment over HTTP: uvicorn --app-dir examples/rl openenv_kernels:app.

`reset` returns a problem; `step` judges an attempt and returns feedback. An episode has three attempts.
"""

import uuid

from openenv.core.env_server import Action, Environment, Observation, State, create_fastapi_app

from kernel_eval_client.agents.brief import of_result
from kernel_eval_client.rewards import KernelReward
from kernel_eval_client.suites import read

ATTEMPTS = 3


class Attempt(Action):
    """A completion, with the kernel in its last code block."""

    completion: str


class Feedback(Observation):
    """The problem, and the feedback on the last attempt."""

    problem: str = ""
    reference: str = ""
    feedback: str = ""


class KernelEnvironment(Environment):
    """One episode: a problem of the starter suite, and up to three attempts at it."""

    SUPPORTS_CONCURRENT_SESSIONS = True
    judge = KernelReward(errors="raise", options={"num_trials": 50, "timeout": 60})

    def __init__(self):
        super().__init__()
        self._problems = read("starter")
        self._problem = self._problems[0]
        self._state = State(episode_id=str(uuid.uuid4()), step_count=0)

    def reset(self, seed=None, episode_id=None, problem=None, **_):
        """Selects a problem by name, else by the seed."""
        by_name = {item.name: item for item in self._problems}
        self._problem = by_name[problem] if problem else self._problems[(seed or 0) % len(self._problems)]
        self._state = State(episode_id=episode_id or str(uuid.uuid4()), step_count=0)
        return self._observation("Answer with one Python code block that defines ModelNew.", None)

    def step(self, action, timeout_s=None, **_):
        """Judges the attempt. A failure of the service raises, so that it never counts as a reward."""
        (scored,) = self.judge.score([action.completion], [self._problem.reference])
        if scored.reward is None:
            raise RuntimeError(f"{scored.verdict}: {scored.reason}")
        self._state.step_count += 1
        feedback = of_result(scored.result) if scored.result else scored.reason
        return self._observation(feedback, scored.reward)

    @property
    def state(self):
        return self._state

    def _observation(self, feedback, reward):
        return Feedback(
            problem=self._problem.name,
            reference=self._problem.reference.source_code,
            feedback=feedback,
            reward=reward,
            done=self._state.step_count >= ATTEMPTS,
        )


app = create_fastapi_app(KernelEnvironment, Attempt, Feedback, max_concurrent_envs=32)
