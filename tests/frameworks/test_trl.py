"""TRL: its GRPOTrainer trains a step of a tiny model with KernelReward as its reward function."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import free_port
from tests.frameworks.conftest import example, package

pytestmark = pytest.mark.filterwarnings("ignore")


@pytest.fixture
def tiny(tmp_path: Path) -> str:
    """A model of random weights with a tokenizer of characters, saved as if it had been downloaded."""
    package("trl")
    import tokenizers
    import transformers

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
    package("trl")
    from kernel_eval_client.rewards import KernelReward

    logged = steps(tiny, KernelReward(service), tmp_path / "out")
    assert [each["rewards/kernel_reward/mean"] for each in logged if "rewards/kernel_reward/mean" in each] == [0.0]


def test_trl_leaves_out_what_the_service_failed(tiny: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package("trl")
    from kernel_eval_client import Retry
    from kernel_eval_client.rewards import Extraction, KernelReward, batch

    monkeypatch.setattr(batch, "extract", lambda _: Extraction("def kernel_fn(x):\n    return x\n"))
    away = KernelReward(f"http://127.0.0.1:{free_port()}", retry=Retry(patience_s=0))
    logged = steps(tiny, away, tmp_path / "out")
    (mean,) = [each["rewards/kernel_reward/mean"] for each in logged if "rewards/kernel_reward/mean" in each]
    assert mean is None or math.isnan(mean)  # Its log writes what is not a number as null.
