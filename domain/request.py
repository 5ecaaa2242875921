"""What a job is asked to do: evaluate one kernel, or compare a candidate with a reference."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace
from typing import Any, Self

from domain.budget import Budget
from domain.device_metrics import PRINTING_SECONDS, SANITIZER_SECONDS, CountersAsked
from domain.kernel import Kernel
from domain.listing import Form
from domain.result import CANDIDATE, REFERENCE

DEFAULT_NUM_TRIALS = Budget.DEFAULT.effort.num_trials
DEFAULT_TIMEOUT_S = 120
DEFAULT_PRIORITY = 5
YIELDS_S = 10.0
"""For each level of priority; so nobody waits for the urgent without end."""

DEFAULT_TARGET_PRECISION = Budget.DEFAULT.effort.target_precision
"""Half the width of the 95 % interval at which timing stops, relative to what is measured."""
DEFAULT_TOLERANCE = 1e-2
"""The original service's atol and rtol, where a request names none (None)."""

_NO_WORK = ("timeout", "build_timeout", "queue_timeout", "priority", "gpu", "reuse")


@dataclass(frozen=True)
class Request:
    """One job's request. `reference` is None for /evaluate.

    `timeout` counts seconds of running, and of building too unless `build_timeout` does. `queue_timeout` is how long
    the job may wait until a worker begins it (None: as long as it takes).
    `num_trials` bounds the rounds of windows, which end sooner at `target_precision` (half the interval, relative);
    `budget` says how much else is done (`domain/budget.py`; at the door it sets those two where they are not given).
    Of two queued jobs the one of higher `priority` is begun first. `gpu` is the model that it is to run on (None: any),
    `reuse` whether the answer to the same work may be given again instead.
    `profile` asks for one more call of each kernel, under a profiler, for information, `artifacts` for its code in
    those forms, `device_metrics` for what the hardware counters say of each kernel, `sanitize` for what
    compute-sanitizer says of the candidate.
    `replay_seed` is the secret of an earlier job in hexadecimal digits, to get its inputs again.
    `tried` is nobody's to ask for: that this process of the job need not try otherwise what answers stand.
    """

    kernel: Kernel
    reference: Kernel | None = None
    num_trials: int = DEFAULT_NUM_TRIALS
    timeout: int = DEFAULT_TIMEOUT_S
    atol: float | None = None
    rtol: float | None = None
    device_metrics: CountersAsked | None = None
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
    tried: bool = False

    @property
    def kernels(self) -> dict[str, Kernel]:
        """By role: the reference, where there is one, and the candidate."""
        candidate = {CANDIDATE: self.kernel}
        if self.reference is None:
            return candidate
        return {REFERENCE: replace(self.reference, is_reference=True), **candidate}

    @property
    def processes(self) -> int:
        """How many processes each kernel is judged in, one after the other; a replay is for finding bugs: in one."""
        if self.replay_seed is not None:
            return 1
        return self.budget.effort.processes if self.reference is None else self.budget.effort.pairs

    @property
    def thorough(self) -> bool:
        """Whether a comparison's answers are tried otherwise too, where the budget has that done."""
        return self.budget.effort.thorough and not self.tried

    @property
    def build_seconds(self) -> int:
        """What building may take."""
        return self.timeout if self.build_timeout is None else self.build_timeout

    @property
    def inspection_seconds(self) -> float:
        """What tools may take that look into the kernels when everything else is known."""
        asked = self.device_metrics
        counters = len(self.kernels) * (asked.level.seconds + PRINTING_SECONDS) if asked is not None else 0.0
        return counters + (SANITIZER_SECONDS if self.sanitize else 0.0)

    @property
    def operation(self) -> str:
        return "evaluate" if self.reference is None else "compare"

    @property
    def queue_offset_s(self) -> float:
        """How long a built job lets others go first at the device: the urgent, then those that need it for less.

        0 for what is usual in both; less than that goes before what came earlier.
        """
        usual = Budget.DEFAULT.effort.device_time
        return YIELDS_S * (DEFAULT_PRIORITY - self.priority) + self.budget.effort.device_time - usual

    @property
    def kind(self) -> str:
        """Requests of one kind take about as long, as far as can be told beforehand."""
        asked = [f"counters-{self.device_metrics.level}"] if self.device_metrics is not None else []
        asked += ["sanitize"] if self.sanitize else []
        return ":".join([self.operation, self.kernel.kernel_type, self.budget, *asked])

    @property
    def work(self) -> str:
        """A digest of what is to be done: the same for requests that differ in when and where only."""
        done = {name: value for name, value in self.to_wire().items() if name not in _NO_WORK}
        return hashlib.sha256(json.dumps(done, sort_keys=True).encode()).hexdigest()[:32]

    @classmethod
    def from_wire(cls, wire: dict[str, Any]) -> Self:
        """From `to_wire`'s form (the HTTP bodies are turned into it at the door)."""
        reference = wire.get("reference")
        return cls(
            kernel=Kernel.from_wire(wire["kernel"]),
            reference=Kernel.from_wire(reference) if reference is not None else None,
            num_trials=wire["num_trials"],
            timeout=wire["timeout"],
            atol=wire.get("atol"),
            rtol=wire.get("rtol"),
            device_metrics=CountersAsked.from_wire(wire.get("device_metrics")),
            target_precision=wire.get("target_precision", DEFAULT_TARGET_PRECISION),
            profile=wire.get("profile", False),
            replay_seed=wire.get("replay_seed"),
            build_timeout=wire.get("build_timeout"),
            queue_timeout=wire.get("queue_timeout"),
            budget=Budget(wire.get("budget", Budget.DEFAULT)),
            priority=wire.get("priority", DEFAULT_PRIORITY),
            gpu=wire.get("gpu"),
            reuse=wire.get("reuse", False),
            artifacts=tuple(sorted({Form(form) for form in wire.get("artifacts", ())})),
            sanitize=wire.get("sanitize", False),
        )

    def to_wire(self) -> dict[str, Any]:
        return {
            "kernel": self.kernel.to_wire(),
            "reference": self.reference.to_wire() if self.reference is not None else None,
            "num_trials": self.num_trials,
            "timeout": self.timeout,
            "atol": self.atol,
            "rtol": self.rtol,
            "device_metrics": self.device_metrics.to_wire() if self.device_metrics is not None else None,
            "target_precision": self.target_precision,
            "profile": self.profile,
            "replay_seed": self.replay_seed,
            "build_timeout": self.build_timeout,
            "queue_timeout": self.queue_timeout,
            "budget": self.budget.value,
            "priority": self.priority,
            "gpu": self.gpu,
            "reuse": self.reuse,
            "artifacts": [form.value for form in self.artifacts],
            "sanitize": self.sanitize,
        }
