"""The part of a report that describes a job's inputs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tasks.correctness.distribution_check import DistributionSummary
from tasks.correctness.input_source import TrialInputs
from tasks.correctness.weight_sync import Weights


def inputs_summary(
    inputs: TrialInputs | None,
    weights: Weights | None,
    distributions: DistributionSummary | None,
    secret: int,
    *,
    replayed: bool,
) -> dict[str, Any]:
    """Source of the inputs, weights and distributions that were used, and the secret seed; JSON-ready.

    It is reported after all runners ended, because the seed reveals the inputs.
    """
    if inputs is None:
        return {}
    summary = inputs.summary
    if weights is not None and weights.summary is not None:
        summary["weights"] = weights.summary
        summary["weight_findings"] = [asdict(flag) for flag in weights.findings]
    if distributions is not None:
        summary["distributions"] = asdict(distributions)
    return summary | {"replay_seed": f"{secret:x}", "inputs_replayed": replayed}
