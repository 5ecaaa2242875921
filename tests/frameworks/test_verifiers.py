"""verifiers: its environment loads the taskset of examples/rl, rolls out against a model's endpoint and scores."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from kernel_eval_client.suites import read
from tests.client.failing import Reply, Seen, Told, listening
from tests.conftest import free_port
from tests.frameworks.conftest import EXAMPLES, package, reference_and_answer

pytestmark = pytest.mark.filterwarnings("ignore")


def model(reply: str) -> Told:
    """The endpoint of a model that always says that."""

    def answer(request: Seen) -> Reply:
        message = {"role": "assistant", "content": reply}
        choice = {"index": 0, "finish_reason": "stop", "message": message}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        whole = {"id": "c1", "object": "chat.completion", "created": 1, "model": "stub"}
        return Reply(200, {**whole, "choices": [choice], "usage": usage})

    return Told(answer=answer)


def episode(told: Told, reference: str) -> Any:
    """One of the first task, with that reference, as `verifiers_kernels` from the folder of the examples."""
    vf = package("verifiers.v1")
    from verifiers.v1.utils.loaders import load_environment

    agent = {"harness": {"id": "one_question"}, "runtime": {"type": "subprocess"}, "retries": {"max_retries": 0}}
    config = vf.SingleAgentEnvConfig(taskset={"id": "verifiers_kernels"}, agent=agent)
    with listening(told):
        client = vf.EvalClientConfig(base_url=f"{told.url}/v1", api_key_var="NONE")

        async def run() -> Any:
            environment = load_environment(config)
            tasks = list(environment.taskset)
            assert len(tasks) == 40 and tasks[0].data.reference in tasks[0].data.prompt
            task = tasks[0].with_data(reference=reference)
            return await environment.run_episode(task, vf.ModelContext("stub", client))

        return asyncio.run(run())


@pytest.fixture(autouse=True)
def plugins(monkeypatch: pytest.MonkeyPatch) -> None:
    """verifiers finds tasksets and harnesses by the names of modules."""
    monkeypatch.setenv("NONE", "none")
    monkeypatch.syspath_prepend(str(EXAMPLES))
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def test_a_rollout_is_rewarded_for_the_reply(service: str) -> None:
    reference, answer = reference_and_answer()
    told = model(answer)
    done = episode(told, reference)
    (trace,) = done.traces
    assert done.ok and not done.errors, (done.errors, trace.errors)
    assert trace.reward >= 1.0 and trace.info["kernel"]["verdict"] == "passed"
    (asked,) = told.seen
    assert read("starter")[0].reference.source_code in json.loads(asked.body)["messages"][0]["content"]


def test_a_reply_without_code_has_no_reward(service: str) -> None:
    reference, _ = reference_and_answer()
    (trace,) = episode(model("I would rather not."), reference).traces
    assert trace.ok and trace.reward == 0.0 and trace.info["kernel"]["verdict"] == "no_code"


def test_a_failure_of_ours_is_an_error_of_the_rollout(monkeypatch: pytest.MonkeyPatch) -> None:
    package("verifiers.v1")
    monkeypatch.setenv("KERNEL_EVAL_URL", f"http://127.0.0.1:{free_port()}")
    reference, answer = reference_and_answer()
    import verifiers_kernels

    from kernel_eval_client import Retry

    judge = verifiers_kernels.KernelTask.judge
    impatient = type(judge)(errors="raise", options=judge.options, retry=Retry(patience_s=0))
    monkeypatch.setattr(verifiers_kernels.KernelTask, "judge", impatient)
    done = episode(model(answer), reference)
    assert not done.ok and not done.traces[0].ok
    assert "Unreachable" in done.traces[0].errors[0].message
