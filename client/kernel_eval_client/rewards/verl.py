"""Reward functions as verl asks for them: `custom_reward_function.path` names this file, `.name` one of these.

`ground_truth` is the reference: PyTorch source, or a kernel in the wire's form. `extra_info` may have the candidate's
`io` and `kernel_type`. Keywords (`reward_kwargs`) are fields of KernelReward, of Shaping, and options such as
`num_trials`. What the service failed is raised, as verl knows no reward that is missing.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from kernel_eval_client.rewards.batch import KernelReward
from kernel_eval_client.rewards.shaping import Scored, Shaping
from kernel_eval_client.submission import Options

Info = Mapping[str, Any] | None
VERLS_OWN = frozenset({"reward_router_address", "reward_model_tokenizer"})
"""Keywords that verl adds where it serves a reward model too."""


def compute_score(
    data_source: str, solution_str: str, ground_truth: Any, extra_info: Info = None, **keywords: Any
) -> dict[str, Any]:
    """One completion's `score`, and what to log beside it."""
    (found,) = compute_scores([data_source], [solution_str], [ground_truth], [extra_info], **keywords)
    return found


def compute_scores(
    data_sources: Sequence[str],
    solution_strs: Sequence[str],
    ground_truths: Sequence[Any],
    extra_infos: Sequence[Info] | None = None,
    **keywords: Any,
) -> list[dict[str, Any]]:
    """The same for a batch, judged side by side: for verl's manager `batch`, of before its reward loop."""
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
    """A KernelReward out of flat keywords; raises TypeError for one that is nobody's."""
    keywords = {name: value for name, value in keywords.items() if name not in VERLS_OWN}
    shaping = {each.name: keywords.pop(each.name) for each in fields(Shaping) if each.name in keywords}
    options = {name: keywords.pop(name) for name in Options.__annotations__ if name in keywords}
    named: dict[str, Any] = {"options": options, "errors": "raise", **keywords}
    return KernelReward(shaping=Shaping(**shaping), **named)


def _plain(metrics: dict[str, Any]) -> dict[str, Any]:
    """Without None: verl takes the mean of what is no text."""
    return {
        name: value if value is not None else "" if name == "reason" else math.nan for name, value in metrics.items()
    }


def _number(scored: Scored) -> float:
    if scored.reward is None:
        raise RuntimeError(f"there is no reward: {scored.verdict}: {scored.reason}; mend the reference in the data set")
    return scored.reward
