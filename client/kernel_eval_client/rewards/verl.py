"""Reward functions for verl: `custom_reward_function.path` names this file, `.name` one of its functions.

`ground_truth` is the reference: PyTorch source, or a kernel as JSON. `extra_info` may have the candidate's `io` and
`kernel_type`. Keywords (`reward_kwargs`) are fields of KernelReward, of Shaping, and options such as `num_trials`. A
failure of the service raises, and so does a kernel that its worker cannot run: verl has no missing rewards.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from kernel_eval_client.rewards.batch import MEND, KernelReward
from kernel_eval_client.rewards.shaping import Scored, Shaping
from kernel_eval_client.submission import Options

Info = Mapping[str, Any] | None
VERLS_OWN = frozenset({"reward_router_address", "reward_model_tokenizer"})
"""Keywords that verl adds if it also serves a reward model."""


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Info = None, **keywords: Any
) -> dict[str, Any]:
    """One completion's `score`, with the values to log."""
    (score,) = compute_scores([data_source], [solution_str], [ground_truth], [extra_info], **keywords)
    return score


def compute_scores(
    data_sources: Sequence[str],
    solution_strs: Sequence[str],
    ground_truths: Sequence[Any],
    extra_infos: Sequence[Info] | None = None,
    **keywords: Any,
) -> list[dict[str, Any]]:
    """`compute_score` for a batch, judged concurrently; for verl's reward manager `batch`, of its older versions."""
    infos = [info or {} for info in (extra_infos if extra_infos is not None else [None] * len(solution_strs))]
    reward = reward_of(**keywords)
    scored = reward.score(
        list(solution_strs),
        list(ground_truths),
        [info.get("io") for info in infos],
        [info.get("kernel_type") for info in infos],
    )
    return [{"score": _number(each), **_plain(each.metrics())} for each in scored]


def reward_of(**keywords: Any) -> KernelReward:
    """A KernelReward from flat keywords. Raises TypeError for an unknown keyword."""
    keywords = {name: value for name, value in keywords.items() if name not in VERLS_OWN}
    shaping = {each.name: keywords.pop(each.name) for each in fields(Shaping) if each.name in keywords}
    options = {name: keywords.pop(name) for name in Options.__annotations__ if name in keywords}
    named: dict[str, Any] = {"options": options, "errors": "raise", **keywords}
    return KernelReward(shaping=Shaping(**shaping), **named)


def _plain(metrics: dict[str, Any]) -> dict[str, Any]:
    """The metrics without None: verl averages every value that is no text."""
    return {
        name: value if value is not None else "" if name == "reason" else math.nan for name, value in metrics.items()
    }


def _number(scored: Scored) -> float:
    if scored.reward is None:
        raise RuntimeError(f"there is no reward, because {MEND.get(scored.verdict, scored.verdict)}: {scored.reason}")
    return scored.reward
