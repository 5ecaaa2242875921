"""What an answer says about a job's inputs."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from tasks.correctness.input_source import TrialInputs
from tasks.correctness.weight_sync import Weights


def inputs_summary(
    inputs: TrialInputs | None,
    weights: Weights | None,
    distributions: dict[str, Any] | None,
    secret: int,
    *,
    replayed: bool,
) -> dict[str, Any]:
    """Where they came from, which weights and distributions went with them, and the secret; JSON-ready.

    Told when everything has ended: whoever knows the secret while the job runs knows the inputs.
    """
    if inputs is None:
        return {}
    told = inputs.summary
    if weights is not None and weights.summary is not None:
        told["weights"] = weights.summary
        told["weight_findings"] = [asdict(flag) for flag in weights.findings]
    if distributions is not None:
        told["distributions"] = distributions
    return told | {"replay_seed": f"{secret:x}", "inputs_replayed": replayed}
