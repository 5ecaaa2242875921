"""verl: its trainer's reward loop, and its batch manager of before, call the reward functions of examples/rl."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.frameworks.conftest import EXAMPLES, example, package, reference_and_answer

pytestmark = pytest.mark.filterwarnings("ignore")
KEYWORDS = {"num_trials": 6, "target_precision": 0.5}


class Tokenizer:
    """Ids are characters, so that what is decoded is what was written."""

    def decode(self, ids: Any, **_: Any) -> str:
        return "".join(chr(int(each)) for each in ids)


def written(texts: list[str], reference: str) -> Any:
    """What verl holds after a rollout: those texts as token ids, and the data set's columns."""
    package("verl")
    import numpy as np
    import torch
    from verl import DataProto

    responses = torch.zeros(len(texts), max(map(len, texts)), dtype=torch.long)
    mask = torch.zeros(len(texts), 1 + responses.shape[1], dtype=torch.long)
    for row, text in enumerate(texts):
        responses[row, : len(text)] = torch.tensor([ord(each) for each in text])
        mask[row, : 1 + len(text)] = 1
    prompts = torch.ones(len(texts), 1, dtype=torch.long)
    return DataProto.from_dict(
        tensors={"prompts": prompts, "responses": responses, "attention_mask": mask},
        non_tensors={
            "data_source": np.array(["starter"] * len(texts), dtype=object),
            "reward_model": np.array([{"ground_truth": reference}] * len(texts), dtype=object),
            "extra_info": np.array([{} for _ in texts], dtype=object),
        },
    )


def settings(function: str) -> Any:
    """As after verl's own configuration and `reward.custom_reward_function.…=` on its command line."""
    verl = package("verl")
    import omegaconf

    whole = omegaconf.OmegaConf.load(Path(str(verl.__file__)).parent / "trainer/config/_generated_ppo_trainer.yaml")
    named = {"path": str(EXAMPLES / "verl_reward.py"), "name": function, "reward_kwargs": KEYWORDS}
    return omegaconf.OmegaConf.merge(whole, {"reward": {"custom_reward_function": named}})


def test_its_reward_loop_scores_completions_side_by_side(service: str) -> None:
    reference, answer = reference_and_answer()
    data = written([answer, "no code at all"], reference)
    from verl.trainer.ppo.reward import load_reward_manager

    async def scored() -> list[dict[str, Any]]:
        manager = load_reward_manager(settings("compute_score"), Tokenizer())
        assert type(manager).__name__ == "NaiveRewardManager"
        found = await asyncio.gather(*(manager.run_single(data[row : row + 1]) for row in range(2)))
        rewards = manager.assemble_rm_scores(data, [each["reward_score"] for each in found])
        assert rewards.sum(dim=1).tolist() == [each["reward_score"] for each in found]
        return found

    right, nothing = asyncio.run(scored())
    assert right["reward_score"] >= 1.0 and right["reward_extra_info"]["verdict"] == "passed"
    assert nothing["reward_score"] == 0.0 and nothing["reward_extra_info"]["verdict"] == "no_code"


def test_its_batch_manager_takes_a_list_of_scores(service: str) -> None:
    reference, answer = reference_and_answer()
    data = written([answer, "no code at all"], reference)
    from verl.workers.reward_manager import BatchRewardManager

    manager = BatchRewardManager(Tokenizer(), 0, example("verl_reward").compute_scores, **KEYWORDS)
    found = manager(data, return_dict=True)
    rewards = found["reward_tensor"].sum(dim=1).tolist()
    assert rewards[0] >= 1.0 and rewards[1] == 0.0
    assert found["reward_extra_info"]["verdict"] == ["passed", "no_code"]
