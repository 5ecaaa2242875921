"""A submission: a kernel, an optional reference to compare with, and options."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, Literal, TypedDict

from kernel_eval_client.errors import CallerError
from kernel_eval_client.kernel import Kernel, KernelType
from kernel_eval_client.untrusted_text import plain

KernelLike = Kernel | Mapping[str, Any]
"""A Kernel, or a kernel as JSON."""

MAX_NAME_CHARS = 200
Budget = Literal["quick", "default", "precise"]
Counters = bool | Literal["basic", "full"] | Sequence[str]
"""The hardware counters to read: none, basic (also True), full, or basic with further metrics by name."""
DrawOn = Literal["device", "host"]
"""Where a source's own code makes its tensors."""
Strictness = Literal["task", "robust"]
"""Whether a failure on inputs that the task never draws is reported, or is the verdict."""
Baseline = Literal["eager", "compile"]
"""A form of the reference that is timed beside the candidate."""
Form = Literal["sass", "ptx", "llir", "ttgir", "ttir"]


class Webhook(TypedDict, total=False):
    """The URL that the service calls when the job ends; an optional `secret` signs the body."""

    url: str
    secret: str


Cases = Sequence[Mapping[str, Any]]
"""Sets of arguments for which one kernel is judged: `{"name", "hidden", "timed", "arguments"}` (docs/api.md#cases)."""


class Options(TypedDict, total=False):
    """Options for judging a kernel; docs/api.md has the bounds. A missing option has the service's default."""

    num_trials: int
    timeout: int
    target_precision: float
    profile: bool
    replay_seed: str
    atol: float
    rtol: float
    matched_ratio: float
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
    draw_on: DrawOn
    determinism: bool
    gradients: bool
    strictness: Strictness
    baselines: Sequence[Baseline]
    cases: Cases


@dataclass(frozen=True)
class Submission:
    """One request; with `reference` it is a comparison, and with `qualify` one that says whether the kernel is fit.

    `label` is sent as the job's `name` (its first 200 characters), and `map` returns it.
    """

    kernel: KernelLike
    reference: KernelLike | None = None
    num_trials: int | None = None
    timeout: int | None = None
    target_precision: float | None = None
    profile: bool | None = None
    replay_seed: str | None = None
    atol: float | None = None
    rtol: float | None = None
    matched_ratio: float | None = None
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
    draw_on: DrawOn | None = None
    determinism: bool | None = None
    gradients: bool | None = None
    strictness: Strictness | None = None
    baselines: Sequence[Baseline] | None = None
    qualify: bool = False
    cases: Cases | None = None
    label: str | None = None
    idempotency_key: str | None = None

    @property
    def path(self) -> str:
        """The path of the request: /evaluate, or with a reference /compare or /qualify."""
        if self.qualify:
            return "/qualify"
        return "/evaluate" if self.reference is None else "/compare"

    def body(self) -> bytes:
        """The JSON body. Raises CallerError for an invalid kernel and for values that JSON lacks, such as NaN."""
        wire: dict[str, Any] = {each: getattr(self, each) for each in Options.__annotations__}
        wire = {name: value for name, value in wire.items() if value is not None}
        if self.label:
            wire["name"] = plain(self.label)[:MAX_NAME_CHARS]
        if self.reference is None:
            wire["kernel"] = _wire(self.kernel)
        else:
            wire["ref_kernel"], wire["custom_kernel"] = _wire(self.reference), _wire(self.kernel)
        try:
            return json.dumps(wire, allow_nan=False).encode()
        except (TypeError, ValueError) as error:
            raise CallerError(f"the request cannot be written as JSON: {error}") from error

    def with_idempotency_key(self) -> Submission:
        """The submission with an idempotency key: its own, else a random one."""
        return self if self.idempotency_key else replace(self, idempotency_key=str(uuid.uuid4()))

    @classmethod
    def from_dict(cls, wire: Mapping[str, Any]) -> Submission:
        """Reads a body of /evaluate or /compare, also of the first version. Like the service, it ignores unknown keys.

        Raises CallerError for a body without a kernel.
        """
        values = {each.name: wire[each.name] for each in fields(cls) if wire.get(each.name) is not None}
        if "label" not in values and wire.get("name") is not None:
            values["label"] = str(wire["name"])
        if "custom_code" in wire and "custom_kernel" not in wire:
            values["reference"] = Kernel(wire.get("ref_code", ""), KernelType.TORCH)
            values["kernel"] = Kernel(wire["custom_code"], KernelType.TORCH_CUDA)
        elif "custom_kernel" in wire:
            values["reference"] = wire.get("ref_kernel", wire.get("kernel"))
            values["kernel"] = wire["custom_kernel"]
        if "kernel" not in values:
            raise CallerError("a submission needs a kernel, or a ref_kernel and a custom_kernel")
        return cls(**values)


SubmissionLike = Submission | Kernel | Mapping[str, Any]
"""A submission, a kernel to evaluate, or a body of /evaluate or /compare."""


def to_submission(value: SubmissionLike) -> Submission:
    """The submission, with a kernel or a request's body converted to one. Raises CallerError for another value."""
    if isinstance(value, Submission):
        return value
    if isinstance(value, Kernel):
        return Submission(value)
    if not isinstance(value, Mapping):
        raise CallerError(_no_kernel(value))
    return Submission.from_dict(value)


def _wire(kernel: KernelLike) -> dict[str, Any]:
    if not isinstance(kernel, (Kernel, Mapping)):
        raise CallerError(_no_kernel(kernel))
    try:
        return kernel.to_dict() if isinstance(kernel, Kernel) else dict(kernel)
    except (TypeError, ValueError, AttributeError) as error:
        raise CallerError(f"the kernel's io or metadata has another type than it should have: {error}") from error


def _no_kernel(value: object) -> str:
    return (
        f"a kernel is a Kernel or a dict in the wire's form, not {type(value).__name__}: torch(source), "
        "triton(source), cuda(source, io), … of kernel_eval_client make one of source text or of a pathlib.Path"
    )
