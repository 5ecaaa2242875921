"""The examples for training frameworks, each with the real package where that is installed: see examples/rl."""

from __future__ import annotations

import asyncio
import importlib.util
import math
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from kernel_eval_client.suites import read
from stack.environment import ROOT
from tests.conftest import free_port

pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]
NAME = "level1/vector_add"


def example(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "examples" / "rl" / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture
def service(url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setenv("KERNEL_EVAL_URL", url)
    yield url


def reference_and_answer() -> tuple[str, str]:
    """A problem of the starter suite at its small sizes, and a completion that solves it."""
    (problem,) = [each for each in read("starter", small=True) if each.name == NAME]
    solution = {each.label: each.kernel for each in problem.candidates}["torch"]
    assert problem.reference is not None and solution is not None
    return problem.reference.source_code, f"```python\n{solution.source_code}```\n"


def test_verl_loads_and_calls_it(service: str) -> None:
    pytest.importorskip("verl", reason="verl is not installed")
    omegaconf = pytest.importorskip("omegaconf")
    from verl.trainer.ppo.reward import get_custom_reward_fn

    reference, answer = reference_and_answer()
    named = {
        "path": str(ROOT / "examples" / "rl" / "verl_reward.py"),
        "name": "compute_scores",
        "reward_kwargs": {"num_trials": 6, "precision": 0.5},
    }
    function = get_custom_reward_fn(omegaconf.OmegaConf.create({"reward": {"custom_reward_function": named}}))
    assert function is not None
    scores = function(
        data_sources=["starter"] * 2, solution_strs=[answer, "?"], ground_truths=[reference] * 2, extra_infos=[{}, {}]
    )
    assert scores[0]["score"] >= 1.0 and scores[1]["score"] == 0.0


def test_verl_s_batch_manager_takes_its_scores(service: str) -> None:
    pytest.importorskip("verl", reason="verl is not installed")
    torch = pytest.importorskip("torch")
    np = pytest.importorskip("numpy")
    from verl import DataProto
    from verl.workers.reward_manager import BatchRewardManager

    reference, answer = reference_and_answer()
    texts = [answer, "no code at all"]

    class Tokenizer:
        """Ids are characters, so that what is decoded is what was written."""

        def decode(self, ids: Any, **_: Any) -> str:
            return "".join(chr(int(each)) for each in ids)

    longest = max(map(len, texts))
    responses = torch.zeros(2, longest, dtype=torch.long)
    mask = torch.zeros(2, 1 + longest, dtype=torch.long)
    for row, text in enumerate(texts):
        responses[row, : len(text)] = torch.tensor([ord(each) for each in text])
        mask[row, : 1 + len(text)] = 1
    data = DataProto.from_dict(
        tensors={"prompts": torch.ones(2, 1, dtype=torch.long), "responses": responses, "attention_mask": mask},
        non_tensors={
            "data_source": np.array(["starter"] * 2, dtype=object),
            "reward_model": np.array([{"ground_truth": reference}] * 2, dtype=object),
            "extra_info": np.array([{}, {}], dtype=object),
        },
    )
    manager = BatchRewardManager(Tokenizer(), 0, example("verl_reward").compute_scores, num_trials=6, precision=0.5)
    found = manager(data, return_dict=True)
    rewards = found["reward_tensor"].sum(dim=1).tolist()
    assert rewards[0] >= 1.0 and rewards[1] == 0.0
    assert found["reward_extra_info"]["verdict"] == ["passed", "no_code"]


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    """A model of random weights with a tokenizer of characters, saved as if it had been downloaded."""
    transformers = pytest.importorskip("transformers")
    tokenizers = pytest.importorskip("tokenizers")
    letters = {chr(code): number for number, code in enumerate(range(32, 127), 3)}
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({"<pad>": 0, "<eos>": 1, "<unk>": 2, **letters}, unk_token="<unk>")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Split("", "isolated")
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )
    tokenizer.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    config.pad_token_id, config.eos_token_id = 0, 1
    transformers.LlamaForCausalLM(config).save_pretrained(tmp_path / "model")
    tokenizer.save_pretrained(tmp_path / "model")
    return str(tmp_path / "model")


def steps(tiny: str, reward: Any, folder: Path) -> list[dict[str, Any]]:
    """What TRL logs of one step of training."""
    trainer = example("trl_grpo").trainer(
        tiny,
        reward,
        output_dir=str(folder),
        max_steps=1,
        num_generations=2,
        per_device_train_batch_size=2,
        max_completion_length=4,
        logging_steps=1,
        report_to=[],
        save_strategy="no",
        use_cpu=True,
        bf16=False,
    )
    trainer.train()
    return list(trainer.state.log_history)


def test_trl_trains_a_step_with_it(service: str, tiny: str, tmp_path: Path) -> None:
    pytest.importorskip("trl", reason="trl is not installed")
    from kernel_eval_client.rewards import KernelReward

    logged = steps(tiny, KernelReward(service), tmp_path / "out")
    assert [each["rewards/kernel_reward/mean"] for each in logged if "rewards/kernel_reward/mean" in each] == [0.0]


def test_trl_leaves_out_what_the_service_failed(tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("trl", reason="trl is not installed")
    from kernel_eval_client import Retry
    from kernel_eval_client.rewards import Extraction, KernelReward, batch

    monkeypatch.setattr(batch, "extract", lambda _: Extraction("def kernel_fn(x):\n    return x\n"))
    away = KernelReward(f"http://127.0.0.1:{free_port()}", retry=Retry(patience_s=0))
    logged = steps(tiny, away, tmp_path / "out")
    (mean,) = [each["rewards/kernel_reward/mean"] for each in logged if "rewards/kernel_reward/mean" in each]
    assert mean is None or math.isnan(mean)  # Its log writes what is not a number as null.


def test_verifiers_scores_a_reply(service: str) -> None:
    pytest.importorskip("verifiers", reason="verifiers is not installed")
    import verifiers.v1 as vf
    from verifiers.v1.types import AssistantMessage

    module = example("verifiers_kernels")
    reference, answer = reference_and_answer()
    tasks = list(module.KernelTaskset(vf.TasksetConfig()))
    assert len(tasks) == 40 and tasks[0].data.reference in tasks[0].data.prompt

    def scored(reply: str) -> Any:
        task = tasks[0].with_data(reference=reference)
        trace = vf.Trace(task=vf.TraceTask(type="KernelTask", data=task.data), agent=agent_info(vf))
        trace.nodes.append(vf.MessageNode(message=AssistantMessage(content=reply), sampled=True))
        asyncio.run(task.score(trace))
        return trace

    right = scored(answer)
    assert right.reward >= 1.0 and right.info["kernel"]["verdict"] == "passed"
    assert scored("no code").reward == 0.0


def agent_info(vf: ModuleType) -> Any:
    return vf.AgentInfo(name="a", config=vf.AgentConfig())


def test_openenv_is_asked_by_its_own_client(service: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("openenv", reason="openenv-core is not installed")
    import uvicorn
    from openenv.core import GenericEnvClient

    module = example("openenv_kernels")
    small = read("starter", small=True)
    monkeypatch.setattr(module, "read", lambda _: small)
    _, answer = reference_and_answer()
    port = free_port()
    server = uvicorn.Server(uvicorn.Config(module.app, host="127.0.0.1", port=port, log_level="warning"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    try:
        deadline = time.monotonic() + 60
        while not server.started:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with GenericEnvClient(base_url=f"http://127.0.0.1:{port}").sync() as environment:
            begun = environment.reset(problem=NAME)
            assert begun.observation["problem"] == NAME and not begun.done
            wrong = environment.step({"completion": "no code"})
            assert wrong.reward == 0.0 and "no closed code block" in wrong.observation["feedback"]
            right = environment.step({"completion": answer})
            assert right.reward is not None and right.reward >= 1.0
            assert right.observation["feedback"].startswith("passed") and not right.done
            assert environment.step({"completion": "?"}).done
    finally:
        server.should_exit = True
        thread.join(20)
