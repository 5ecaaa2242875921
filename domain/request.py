"""A job's request: evaluate one kernel, or compare a candidate with a reference."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any, Self

from domain.budget import Budget
from domain.cases.case import Case, primary
from domain.device_metrics import PRINTING_SECONDS, SANITIZER_SECONDS, CounterRequest
from domain.inputs import DrawOn, Strictness
from domain.kernel import Kernel
from domain.listing import Form
from domain.result import CANDIDATE, REFERENCE
from domain.speed.baseline import Baseline
from domain.speed.confirmation import FirstResult
from domain.wire import Wire

DEFAULT_NUM_TRIALS = Budget.DEFAULT.effort.num_trials
DEFAULT_TIMEOUT_S = 120
DEFAULT_PRIORITY = 5
DEFAULT_TARGET_PRECISION = Budget.DEFAULT.effort.target_precision
"""Half width of the 95 % interval at which timing stops, relative to the time."""
DEFAULT_TOLERANCE = 1e-2
"""The original service's atol and rtol, for requests that name none (None)."""
DEFAULT_MATCHED_RATIO = 1 - 1e-6
"""Minimum share of elements within tolerance, where float64 judges the others (docs/adr/0036)."""

_INTERNAL = ("determinism_seed", "owner", "tried")
"""Fields that the worker sets; they are in no stored request."""
_NO_WORK = ("timeout", "build_timeout", "queue_timeout", "priority", "gpu", "reuse", "name")


@dataclass(frozen=True)
class Request(Wire):
    """The request of one job. docs/api.md describes the fields that a body has.

    - `reference`: None for /evaluate.
    - `timeout`: maximum time of running, in s; includes building unless `build_timeout` is given.
    - `cases`: what the kernel is judged for; empty: once, unless the reference has cases. The contracts of
      both kernels are those of the first timed case.
    - `confirms`: internal; the earlier result that this job judges again.
    - `determinism_seed`: internal; the seed of that check's inputs, the same in all processes of the job.
    - `owner`: internal; the API key under which the job was sent, None without keys.
    - `tried`: internal; this process of the job need not repeat the robustness checks.
    """

    kernel: Kernel
    reference: Kernel | None = None
    num_trials: int = DEFAULT_NUM_TRIALS
    timeout: int = DEFAULT_TIMEOUT_S
    atol: float | None = None
    rtol: float | None = None
    matched_ratio: float = DEFAULT_MATCHED_RATIO
    device_metrics: CounterRequest | None = None
    target_precision: float = DEFAULT_TARGET_PRECISION
    profile: bool = False
    replay_seed: str | None = None
    build_timeout: int | None = None
    queue_timeout: int | None = None
    budget: Budget = Budget.DEFAULT
    priority: int = DEFAULT_PRIORITY
    gpu: str | None = None
    reuse: bool = False
    artifacts: tuple[Form, ...] = ()
    sanitize: bool = False
    draw_on: DrawOn = DrawOn.DEVICE
    determinism: bool = False
    determinism_seed: int | None = None
    gradients: bool = False
    strictness: Strictness = Strictness.TASK
    baselines: tuple[Baseline, ...] = (Baseline.EAGER,)
    qualify: bool = False
    confirms: FirstResult | None = None
    cases: tuple[Case, ...] = ()
    owner: str | None = None
    tried: bool = False
    name: str | None = None

    @property
    def kernels(self) -> dict[str, Kernel]:
        """The kernels by role: the reference, if any, and the candidate."""
        case = primary(self.cases).selector if self.cases else None
        if self.reference is None:
            return {CANDIDATE: replace(self.kernel, case=case)}
        return {REFERENCE: replace(self.reference, is_reference=True, case=case), CANDIDATE: self.kernel}

    def confirming(self, first: FirstResult) -> Self:
        """This request again, at the budget `precise` and without what does not decide verdict and speed-up."""
        effort = Budget.PRECISE.effort
        return replace(
            self,
            budget=Budget.PRECISE,
            num_trials=effort.num_trials,
            target_precision=effort.target_precision,
            timeout=max(self.timeout, DEFAULT_TIMEOUT_S),
            queue_timeout=None,
            gpu=first.gpu_model or self.gpu,
            reuse=False,
            replay_seed=None,
            profile=False,
            artifacts=(),
            device_metrics=None,
            sanitize=False,
            determinism=False,
            baselines=(Baseline.EAGER,),
            qualify=False,
            confirms=first,
        )

    @property
    def processes(self) -> int:
        """Number of processes that each kernel is judged in, one after the other. A replay uses one, for debugging."""
        if self.replay_seed is not None:
            return 1
        usual = self.budget.effort.processes if self.reference is None else self.budget.effort.pairs
        return max(usual, 2) if self.determinism else usual

    @property
    def thorough(self) -> bool:
        """Whether to run the robustness checks of a comparison, as the budget says."""
        return self.budget.effort.thorough and not self.tried

    @property
    def build_seconds(self) -> int:
        """Maximum time of building, in s."""
        return self.timeout if self.build_timeout is None else self.build_timeout

    @property
    def baseline_seconds(self) -> float:
        """Maximum time of building and running the baselines beside the reference itself, in s."""
        return 2 * self.build_seconds + self.timeout if Baseline.COMPILE in self.baselines else 0.0

    @property
    def inspection_seconds(self) -> float:
        """Maximum time of the tools that inspect the kernels after everything else, in s."""
        counters_request = self.device_metrics
        counters = (
            len(self.kernels) * (counters_request.level.seconds + PRINTING_SECONDS)
            if counters_request is not None
            else 0.0
        )
        return counters + (SANITIZER_SECONDS if self.sanitize else 0.0)

    @property
    def operation(self) -> str:
        return "evaluate" if self.reference is None else "compare"

    @property
    def kind(self) -> str:
        """Groups requests that are expected to take about as long."""
        tools = [f"counters-{self.device_metrics.level}"] if self.device_metrics is not None else []
        tools += ["sanitize"] if self.sanitize else []
        tools += ["determinism"] if self.determinism else []
        tools += ["compile"] if Baseline.COMPILE in self.baselines else []
        tools += [f"cases-{len(self.cases)}"] if self.cases else []
        tools += ["gradients"] if self.gradients else []
        return ":".join([self.operation, self.kernel.kernel_type, self.budget, *tools])

    @property
    def work(self) -> str:
        """A digest of the work: equal for requests that differ only in when and where they run."""
        done = {name: value for name, value in self.to_wire().items() if name not in _NO_WORK}
        return hashlib.sha256(json.dumps(done, sort_keys=True).encode()).hexdigest()[:32]

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> Self:
        request = super().from_wire(wire)
        baselines = sorted({Baseline.EAGER, *request.baselines}, reverse=True)
        return replace(request, artifacts=tuple(sorted(set(request.artifacts))), baselines=tuple(baselines))

    def to_wire(self) -> dict[str, Any]:
        return {name: value for name, value in super().to_wire().items() if name not in _INTERNAL}
