"""What is handed in: a kernel, or a kernel against a reference, and how it is to be judged."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypedDict

from kernel_eval_client.errors import CallerError
from kernel_eval_client.kernel import Kernel, KernelType

KernelLike = Kernel | Mapping[str, Any]
"""A Kernel, or one in the wire's form."""


Budget = Literal["quick", "default", "precise"]
Counters = bool | Literal["basic", "full"] | Sequence[str]
"""Which hardware counters are read: none, the basic ones (True), all, or metrics by name beside the basic ones."""
Form = Literal["sass", "ptx", "llir", "ttgir", "ttir"]


class Webhook(TypedDict, total=False):
    """Where the service is to tell of the job's end; `secret` signs what it sends, and may be left out."""

    url: str
    secret: str


class Options(TypedDict, total=False):
    """How to judge; docs/api.md has the bounds. What is left out is the service's default."""

    num_trials: int
    timeout: int
    target_precision: float
    profile: bool
    replay_seed: str
    atol: float
    rtol: float
    build_timeout: int
    queue_timeout: int
    budget: Budget
    priority: int
    gpu: str
    reuse: Literal["never", "allow"]
    webhook: Webhook
    artifacts: Sequence[Form]
    device_metrics: Counters
    sanitize: bool


@dataclass(frozen=True)
class Submission:
    """One request. With `reference` it is a comparison. `label` is yours: it is not sent, and comes back from `map`."""

    kernel: KernelLike
    reference: KernelLike | None = None
    num_trials: int | None = None
    timeout: int | None = None
    target_precision: float | None = None
    profile: bool | None = None
    replay_seed: str | None = None
    atol: float | None = None
    rtol: float | None = None
    build_timeout: int | None = None
    queue_timeout: int | None = None
    budget: Budget | None = None
    priority: int | None = None
    gpu: str | None = None
    reuse: Literal["never", "allow"] | None = None
    webhook: Webhook | None = field(default=None, repr=False)
    artifacts: Sequence[Form] | None = None
    device_metrics: Counters | None = None
    sanitize: bool | None = None
    label: str | None = None
    idempotency_key: str | None = None

    @property
    def path(self) -> str:
        """Where it is sent."""
        return "/evaluate" if self.reference is None else "/compare"

    def body(self) -> bytes:
        """The JSON body; raises CallerError for what is no kernel and what JSON does not have, such as NaN."""
        wire: dict[str, Any] = {each: getattr(self, each) for each in Options.__annotations__}
        wire = {name: value for name, value in wire.items() if value is not None}
        if self.reference is None:
            wire["kernel"] = _wire(self.kernel)
        else:
            wire["ref_kernel"], wire["custom_kernel"] = _wire(self.reference), _wire(self.kernel)
        try:
            return json.dumps(wire, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise CallerError(f"the request cannot be written as JSON: {error}") from error

    def named(self) -> Submission:
        """The same with an idempotency key: a random one unless it has one."""
        return self if self.idempotency_key else replace(self, idempotency_key=str(uuid.uuid4()))

    @classmethod
    def from_dict(cls, wire: Mapping[str, Any]) -> Submission:
        """From a body of /evaluate or /compare, the first version's too; unknown keys are ignored, as the service does.

        Raises CallerError for a body without a kernel.
        """
        known = {each.name: wire[each.name] for each in fields(cls) if wire.get(each.name) is not None}
        if "custom_code" in wire and "custom_kernel" not in wire:
            known["reference"] = Kernel(wire.get("ref_code", ""), KernelType.TORCH)
            known["kernel"] = Kernel(wire["custom_code"], KernelType.TORCH_CUDA)
        elif "custom_kernel" in wire:
            known["reference"] = wire.get("ref_kernel", wire.get("kernel"))
            known["kernel"] = wire["custom_kernel"]
        if "kernel" not in known:
            raise CallerError("a submission needs a kernel, or a ref_kernel and a custom_kernel")
        return cls(**known)


SubmissionLike = Submission | Kernel | Mapping[str, Any]
"""A submission, a kernel to evaluate, or a body of /evaluate or /compare."""


def submission_of(given: SubmissionLike) -> Submission:
    """The submission that this stands for; raises CallerError where it stands for none."""
    if isinstance(given, Submission):
        return given
    if isinstance(given, Kernel):
        return Submission(given)
    if not isinstance(given, Mapping):
        raise CallerError(_no_kernel(given))
    return Submission.from_dict(given)


def _wire(kernel: KernelLike) -> dict[str, Any]:
    if not isinstance(kernel, (Kernel, Mapping)):
        raise CallerError(_no_kernel(kernel))
    try:
        return kernel.to_dict() if isinstance(kernel, Kernel) else dict(kernel)
    except (TypeError, ValueError, AttributeError) as error:
        raise CallerError(f"the kernel's io or metadata has another type than it should have: {error}") from error


def _no_kernel(given: object) -> str:
    return (
        f"a kernel is a Kernel or a dict in the wire's form, not {type(given).__name__}: torch(source), "
        "triton(source), cuda(source, io), … of kernel_eval_client make one of source text or of a pathlib.Path"
    )
