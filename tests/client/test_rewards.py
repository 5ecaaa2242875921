"""Rewards: what is taken out of a completion, what a verdict is worth, and that no failure of ours is a reward."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest

from kernel_eval_client import Result, Retry, errors
from kernel_eval_client.flag import CPU_TIME_INDICATIVE
from kernel_eval_client.rewards import KernelReward, Scored, Shaping, extract
from kernel_eval_client.rewards.verl import compute_score, compute_scores, reward_of
from kernel_eval_client.submission import Strictness
from tests.client.failing import BROKEN, Reply, Told, listening, problem
from tests.client.suite_files import NEW, TWICE

RIGHT = f"I double it.\n```python\n{NEW}```\n"
WRONG = RIGHT.replace("x + x", "x * 3")


@pytest.mark.parametrize(
    ("completion", "source"),
    [
        ("no code", None),
        ("```python\na = 1\n```", "a = 1\n"),
        ("```python\na = 1\n```\nor rather\n```py\nb = 2\n```\n", "b = 2\n"),
        ("```\na = 1\n```\nrun it:\n```bash\nls\n```", "a = 1\n"),
        ("```python\na = 1\n```\n```python\ncut off", "a = 1\n"),
        ("```python\ncut off", None),
        ("<think>```python\na = 1\n```</think>\n```python\nb = 2\n```", "b = 2\n"),
        ("<think>```python\na = 1\n```", None),
        ("````python\ns = '''\n```\n'''\n````", "s = '''\n```\n'''\n"),
        ("~~~cuda\n__global__\n~~~", "__global__\n"),
        ([{"role": "user", "content": "```\nx\n```"}, {"role": "assistant", "content": "```\ny\n```"}], "y\n"),
        ([{"role": "assistant", "content": [{"type": "text", "text": "```\ny\n```"}]}], "y\n"),
        ("```python\r\na = 1\r\n```\r\n", "a = 1\n"),
        ("<answer>```python\na = 1\n```</answer>", "a = 1\n"),
        ("```python\na = 1\n```<|im_end|>", "a = 1\n"),
        ("1. Do\n   ```python\n   def f():\n       g()\n\n   ```", "def f():\n    g()\n\n"),
        ("   ```python\ndef f():\n    g()\n   ```", "def f():\n    g()\n"),
        ("```python\ndef f(): ...\n```\nUse it:\n```python\nf()\n```\n```\n3.2x\n```", "def f(): ...\n"),
        ("```py\ndef f(): ...\n```\nTime it:\n```py\ndo_bench(lambda: f())\n```", "def f(): ...\n"),
        ("```py\ndef f(): ...\n```\nShorter:\n```py\nkernel_fn = torch.relu\n```", "kernel_fn = torch.relu\n"),
        ("```py\ndef f(): ...\n```\nShorter:\n```py\nf = lambda x: x\n```", "f = lambda x: x\n"),
        ("~~~\n```python\nb = 2\n```\n", "b = 2\n"),
        ("```python\ndef f(): ...\n```\nor rather\n```python\ndef g(): ...\n```", "def g(): ...\n"),
        ([], None),
    ],
)
def test_the_last_closed_block_is_the_source(completion: Any, source: str | None) -> None:
    found = extract(completion)
    assert found.source == source and (found.reason is None) == (source is not None)


def test_a_long_completion_that_opens_one_block_after_another_is_read_at_once() -> None:
    started = time.process_time()
    assert extract("```python\nx = 1\n" * 60_000).source is None
    assert time.process_time() - started < 20


def judged(
    verdict: str = "passed", speedup: tuple[float, float, float | None, str] | None = None, **more: Any
) -> Result:
    comparison = {"passed": verdict == "passed", **more.pop("comparison", {})}
    kernel = {
        **{"status": verdict, "compiled": True, "correctness": verdict == "passed"},
        **{"comparison": comparison, "timing": {"method": "m", "latency_ms": 1.0, "flags": more.pop("flags", [])}},
        "inputs": more.pop("inputs", {}),
        "validation_error": None if verdict == "passed" else "it failed",
    }
    told = dict(zip(("ratio", "ci_low", "ci_high", "verdict"), speedup, strict=True)) if speedup else None
    wire = {"job_id": "j", "verdict": verdict, "kernel_exec_result": kernel, "speedup": told}
    wire["environment"] = {"gpu_name": more.pop("gpu_name", "a GPU")}
    return Result.from_dict({**wire, "budget": more.pop("budget", {})})


FAST = (4.2, 4.0, 4.4, "faster")
TOO_FAST = {"code": "too_fast_for_memory", "message": "the time is too short for the bytes", "data": {}}
LOW = {"code": "lower_precision", "message": "it seems to compute in bfloat16", "data": {}}
WEAK = {"code": "trivial_output_passes", "message": "zeros would pass", "data": {}}
FIXED = {"code": "fixed_outputs_pass", "message": "fixed outputs would pass", "data": {}}
FRAGILE = {"code": "robustness_failed", "message": "it fails on large inputs", "data": {}}
LARGE = {"code": "unexplained_error", "message": "larger than that", "data": {}}


def test_a_right_answer_earns_one_and_half_a_point_for_each_doubling() -> None:
    assert Shaping().of_result(judged(speedup=FAST)).reward == 2.0
    assert Shaping().of_result(judged(speedup=(0.5, 0.4, 0.6, "slower"))).reward == 1.0
    assert Shaping().of_result(judged(speedup=(99.0, 90.0, None, "faster"))).reward == 2.5
    assert Shaping(correct=2.0, speed=1.0, cap=4.0).of_result(judged(speedup=FAST)).reward == 4.0


@pytest.mark.parametrize("verdict", ["wrong_result", "compile_error", "crashed", "timeout", "unsupported"])
def test_a_failure_earns_nothing_however_fast(verdict: str) -> None:
    found = Shaping().of_result(judged(verdict, speedup=FAST))
    assert found.reward == 0.0 and found.reason == "it failed"


@pytest.mark.parametrize(
    "more",
    [
        {"flags": [TOO_FAST]},
        {"flags": [FRAGILE]},
        {"inputs": {"inputs_replayed": True}},
        {"inputs": {"reused_sets": 3}},
        {"inputs": {"inputs_not_random": True}},
        {"budget": {"name": "quick", "skipped_checks": ["float64_precision"]}},
        {"comparison": {"precision_check": {"finding": LOW}}},
        {"speedup": (1.3, 0.9, 1.7, "not_distinguishable")},
        {"speedup": None},
    ],
)
def test_a_doubtful_speed_up_earns_no_bonus(more: dict[str, Any]) -> None:
    found = Shaping().of_result(judged(**{"speedup": FAST, **more}))
    assert found.reward == 1.0 and found.held_back and found.metrics()["speed_bonus"] == 0.0


def test_what_is_known_to_be_harmless_can_be_ignored() -> None:
    windows = judged(speedup=FAST, flags=[{"code": "events_mismatch", "message": "in 3 of 14 windows", "data": {}}])
    assert Shaping().of_result(windows).held_back == ("in 3 of 14 windows",)
    assert Shaping(ignored=("upper_bound",)).of_result(windows).reward == 1.0
    assert Shaping(ignored=("upper_bound", "events_mismatch")).of_result(windows).reward == 2.0
    cpu = judged(speedup=FAST, flags=[{"code": CPU_TIME_INDICATIVE, "message": "timed on a CPU", "data": {}}])
    assert Shaping().of_result(cpu).reward == 1.0
    assert Shaping(ignored=(CPU_TIME_INDICATIVE,)).of_result(cpu).reward == 2.0
    low = judged(speedup=FAST, comparison={"precision_check": {"finding": LOW}})
    assert Shaping(lower_precision=True).of_result(low).reward == 2.0


def test_a_sentence_is_no_code_to_ignore() -> None:
    with pytest.raises(ValueError, match="codes of flags"):
        Shaping(ignored=("in 3 of 14 windows",))


def test_an_error_that_no_precision_explains_is_not_excused_by_one() -> None:
    wrong = judged(speedup=FAST, comparison={"precision_check": {"finding": LARGE}})
    assert Shaping(lower_precision=True).of_result(wrong).reward == 1.0


def test_a_problem_that_fixed_outputs_pass_earns_nothing_and_its_speed_up_is_unknown() -> None:
    result = judged(speedup=FAST, comparison={"weak_reference": [WEAK, FIXED]})
    found = Shaping().of_result(result)
    assert found.reward == 0.0 and found.reason == "fixed outputs would pass"
    assert found.metrics()["speedup"] is None and found.metrics()["speedup_ci_low"] is None
    assert Shaping(ignored=("fixed_outputs_pass", "trivial_output_passes")).of_result(result).reward == 2.0


def test_a_trivial_output_that_fails_on_other_inputs_takes_the_bonus_only() -> None:
    result = judged(speedup=FAST, comparison={"weak_reference": [WEAK]})
    found = Shaping().of_result(result)
    assert found.reward == 1.0 and found.held_back == ("zeros would pass",)
    assert found.metrics()["speedup"] == 4.2
    assert Shaping(ignored=("trivial_output_passes",)).of_result(result).reward == 2.0


def test_a_reference_that_failed_is_no_reward_at_all() -> None:
    assert Shaping().of_result(judged("reference_failed")).reward is None


def test_a_kernel_that_needs_a_gpu_has_no_reward_where_there_is_none() -> None:
    assert Shaping().of_result(judged("unsupported", gpu_name=None)).reward is None
    assert Shaping().of_result(judged("wrong_result", gpu_name=None)).reward == 0.0


@pytest.mark.parametrize(
    ("lacks", "gpu_name", "reward"),
    [("gpu", None, None), ("gpu", "NVIDIA H200", 0.0), ("part", "NVIDIA H200", None), (None, None, 0.0)],
)
def test_only_what_the_worker_lacks_leaves_a_kernel_unjudged(
    lacks: str | None, gpu_name: str | None, reward: float | None
) -> None:
    result = judged("unsupported", gpu_name=gpu_name)
    kernel = {**result.raw["kernel_exec_result"], "worker_lacks": lacks}
    found = dataclasses.replace(result, raw={**result.raw, "kernel_exec_result": kernel})
    assert Shaping().of_result(found).reward == reward


@pytest.mark.parametrize("shaping", [{"failed": 1.0}, {"no_code": 2.0}, {"speed": -1.0}, {"cap": 0.5}])
def test_a_shaping_that_pays_for_failing_is_refused(shaping: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="below correct"):
        Shaping(**shaping)  # type: ignore[arg-type]


def test_a_batch_is_judged_and_the_same_source_once(url: str) -> None:
    reward = KernelReward(url, options={"num_trials": 6, "target_precision": 0.5})
    completions = [RIGHT, WRONG, "no code", [{"role": "assistant", "content": RIGHT}], "```python\ndef (\n```"]
    scored = reward.score(completions, [TWICE] * 5)
    assert [each.verdict for each in scored] == ["passed", "wrong_result", "no_code", "passed", "compile_error"]
    assert scored[0] is scored[3]
    assert [each.reward for each in scored][1:3] == [0.0, 0.0] and scored[0].reward == 1.0
    assert any("timed on a CPU" in reason for reason in scored[0].held_back), "a CPU's time earns no bonus"
    assert reward([WRONG], reference=[TWICE], prompts=["p"], trainer_state=None) == [0.0]
    assert reward.__name__ == "kernel_reward"


SOFTMAX = "class Model(nn.Module):\n    def forward(self, x):\n        return torch.softmax(x, -1)\n"
NO_MAXIMUM = SOFTMAX.replace("Model", "ModelNew").replace("torch.softmax(x, -1)", "x.exp() / x.exp().sum(-1, True)")


def test_a_fragile_kernel_earns_no_bonus_or_by_strictness_nothing(url: str) -> None:
    reference = f"{SOFTMAX}def get_inputs():\n    return [torch.randn(16, 64)]\n"
    completion = f"```python\n{NO_MAXIMUM}```"

    def scored(strictness: Strictness) -> Scored:
        reward = KernelReward(url, options={"num_trials": 6, "timeout": 60, "strictness": strictness})
        (found,) = reward.score([completion], [reference])
        return found

    found, refused = scored("task"), scored("robust")
    assert found.reward == 1.0 and any("beyond the task's inputs" in reason for reason in found.held_back)
    assert refused.reward == 0.0 and refused.verdict == "wrong_result"


@pytest.mark.parametrize("reply", [BROKEN, problem(503, "queue-full"), problem(500, "job-failed"), problem(429)])
def test_what_the_service_failed_is_none_or_raised(reply: Reply) -> None:
    with listening(Told(reply)) as told:
        none = KernelReward(told.url, retry=Retry(patience_s=0))
        assert none([RIGHT, "no code"], reference=[TWICE, TWICE]) == [None, 0.0]
        raising = KernelReward(told.url, errors="raise", retry=Retry(patience_s=0))
        with pytest.raises(errors.KernelEvalError):
            raising([RIGHT], reference=[TWICE])


def test_a_key_that_is_refused_always_raises() -> None:
    with listening(Told(problem(401, "key-required"))) as told, pytest.raises(errors.KeyRefused):
        KernelReward(told.url)([RIGHT], reference=[TWICE])


@pytest.mark.parametrize(
    ("columns", "says"),
    [
        ({"reference": [None]}, "a reference is None"),
        ({"reference": TWICE}, "reference is one text for 1 completions: give a list"),
        ({"reference": [TWICE, TWICE]}, "reference is 2 entries for 1 completions"),
        ({"reference": [TWICE], "io": []}, "io is 0 entries"),
    ],
)
def test_a_column_that_does_not_fit_is_no_failure_of_the_completions(columns: dict[str, Any], says: str) -> None:
    with pytest.raises(ValueError, match=says):
        KernelReward("http://127.0.0.1:1")([RIGHT], **columns)
    with pytest.raises(ValueError, match="errors is 'skip'"):
        KernelReward(errors="skip")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("path", "raises"),
    [
        *((["custom_kernel", *rest], False) for rest in (["source_code"], ["io"], ["metadata"], ["io", "launch"], [])),
        *(
            (path, True)
            for path in (["ref_kernel", "source_code"], ["num_trials"], ["custom_kernel", "io", "args"], [])
        ),
    ],
)
def test_a_request_at_fault_is_the_completion_s_only_where_its_kernel_is(path: list[str], raises: bool) -> None:
    body = {"type": "urn:kernel-eval:problem:invalid-request", "status": 400, "detail": "too long"}
    body["errors"] = [{"path": path, "message": "is too long"}]  # type: ignore[assignment]
    with listening(Told(Reply(400, body))) as told:
        reward = KernelReward(told.url)
        if raises:
            with pytest.raises(errors.CallerError):
                reward([RIGHT], reference=[TWICE])
        else:
            assert reward([RIGHT], reference=[TWICE]) == [0.0]


BARE = "```python\nimport triton\n\n@triton.jit\ndef double(x, n):\n    pass\n```"
RAW = "```cuda\n__global__ void twice(float* x) { x[0] *= 2; }\n```"
LAUNCHED = """```python
import torch, triton
import triton.language as tl

@triton.jit
def double(x, out, n, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + i, tl.load(x + i, mask=i < n) * 2, mask=i < n)

def kernel_fn(x):
    out = torch.empty_like(x)
    double[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out
```"""


def test_a_kernel_without_a_contract_fails_alone(url: str) -> None:
    scored = KernelReward(url, options={"num_trials": 6}).score([BARE, RAW, WRONG, LAUNCHED], [TWICE] * 4)
    assert [(each.verdict, each.reward) for each in scored] == [
        *([("refused", 0.0)] * 2),
        ("wrong_result", 0.0),
        ("passed", 1.0),
    ]
    assert "call that function kernel_fn" in str(scored[0].reason)


def test_what_the_service_refuses_to_read_is_the_completion_s_fault(url: str) -> None:
    completions = ["```python\n'\ud800'\n```", f"```python\n{'#' * (1 << 20)}\n```"]
    scored = KernelReward(url).score(completions, [TWICE, TWICE])
    assert [(each.verdict, each.reward) for each in scored] == [("refused", 0.0)] * 2


def test_verl_s_two_forms(url: str) -> None:
    keywords = {"url": url, "num_trials": 6, "target_precision": 0.5, "correct": 3.0}
    one = compute_score("kernels", RIGHT, TWICE, {"split": "train"}, **keywords)
    assert one["score"] >= 3.0 and one["correct"] is True and one["verdict"] == "passed"
    two = compute_scores(
        ["a", "b"], [WRONG, "none"], [TWICE, {"source_code": TWICE, "kernel_type": "torch"}], **keywords
    )
    assert [each["score"] for each in two] == [0.0, 0.0] and set(two[0]) == set(one)
    assert not any(value is None for each in (one, *two) for value in each.values())


def test_verl_is_told_of_failures_and_of_words_that_mean_nothing() -> None:
    with listening(Told(BROKEN)) as told, pytest.raises(errors.Unreachable):
        compute_score("kernels", RIGHT, TWICE, url=told.url, retry=Retry(patience_s=0))
    assert reward_of(reward_router_address="a", reward_model_tokenizer=None, speed=2.0).shaping.speed == 2.0
    with pytest.raises(TypeError, match="nosuch"):
        reward_of(nosuch=1)


def test_a_reference_that_fails_is_warned_of(url: str, caplog: pytest.LogCaptureFixture) -> None:
    broken = TWICE.replace("x * 2", "torch.nosuch(x)")
    reward = KernelReward(url, options={"num_trials": 6, "budget": "quick"})
    first, _, other = reward([RIGHT, RIGHT, RIGHT], reference=[broken, broken, TWICE])
    assert first is None and other is not None
    (warning,) = caplog.messages
    assert warning.startswith("2 of 3 completions have no reward, because their reference fails; correct it in the")
    assert "nosuch" in warning


def test_a_kernel_that_its_worker_cannot_run_is_warned_of(url: str, caplog: pytest.LogCaptureFixture) -> None:
    needs_gpu = RIGHT.replace("return x + x", "assert x.is_cuda, '\\x1b[2J'\n        return x + x")
    options: Any = {"num_trials": 6, "budget": "quick"}
    assert KernelReward(url, options=options)([needs_gpu], reference=[TWICE]) == [None]
    (warning,) = caplog.messages
    assert warning.startswith("1 of 1 completions have no reward, because their worker lacks what they need")
    assert "[2J" in warning and warning.isprintable()
    with pytest.raises(RuntimeError, match="their worker lacks what they need"):
        compute_score("kernels", needs_gpu, TWICE, url=url, **options)
