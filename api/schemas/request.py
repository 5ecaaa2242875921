"""Request bodies of /evaluate, /compare and /batch, and the one way from a body to a domain Request."""

from __future__ import annotations

from typing import Any

from marshmallow import ValidationError, fields, validate

from api.schemas.fields import Flag, Items, Part, RealNumber, Text, WholeNumber, WireSchema, one_of, shown
from api.schemas.kernel import KernelSchema
from domain.budget import Budget
from domain.kernel import KernelType
from domain.request import DEFAULT_TIMEOUT_S, Request
from domain.settings import settings

MAX_TRIALS = 10_000
MAX_PRECISION = 0.5
MIN_TIMEOUT_S, MAX_TIMEOUT_S = 5, 600
MAX_QUEUE_TIMEOUT_S = 7 * 86_400
LEGACY_TIMEOUT_S = 30

EVALUATE, COMPARE = "evaluate", "compare"


def _trials() -> fields.Field[Any]:
    return WholeNumber(
        1,
        MAX_TRIALS,
        metadata={
            "description": "At most so many rounds of timed windows. Default: as `budget` says, 20, 100 or 1000."
        },
    )


def _precision() -> fields.Field[Any]:
    return RealNumber(
        validate=validate.Range(0, MAX_PRECISION, error="must be from {min} to {max}"),
        metadata={
            "description": "Timing stops when half its 95 % interval is this part of the time or the speed-up. "
            "Default: as `budget` says, 0.05, 0.01 or 0.002."
        },
    )


def _timeout(default: int = DEFAULT_TIMEOUT_S) -> fields.Field[Any]:
    return WholeNumber(
        MIN_TIMEOUT_S,
        MAX_TIMEOUT_S,
        load_default=default,
        metadata={"description": "Seconds of running, and as many again of building; waiting does not count."},
    )


def _build_timeout() -> fields.Field[Any]:
    return WholeNumber(
        MIN_TIMEOUT_S,
        MAX_TIMEOUT_S,
        load_default=None,
        allow_none=True,
        metadata={"description": "Seconds of building, where that is to have other than `timeout`."},
    )


def _queue_timeout() -> fields.Field[Any]:
    return WholeNumber(
        1,
        MAX_QUEUE_TIMEOUT_S,
        load_default=None,
        allow_none=True,
        metadata={"description": "Seconds after which a job that no worker has begun is cancelled. None: never."},
    )


def _budget() -> fields.Field[Any]:
    return Text(
        load_default=Budget.DEFAULT.value,
        validate=one_of(Budget),
        metadata={"description": "How much of the device to spend. `quick` leaves checks out, which the result names."},
    )


def _tolerance() -> fields.Field[Any]:
    return RealNumber(load_default=None, allow_none=True, validate=validate.Range(0, error="must not be negative"))


def _profile() -> fields.Field[Any]:
    return Flag(
        load_default=False,
        metadata={"description": "Also call each kernel under a profiler, and tell which kernels it launches."},
    )


def _replay_seed() -> fields.Field[Any]:
    return Text(
        load_default=None,
        allow_none=True,
        validate=validate.Regexp("^[0-9a-f]{1,64}$", error="must be 1 to 64 hexadecimal digits in lower case"),
        metadata={"description": "`inputs.replay_seed` of an earlier job: the same inputs again, to look for a bug."},
    )


class EvaluateSchema(WireSchema):
    """One kernel to build, run and time."""

    kernel = Part(KernelSchema, required=True)
    num_trials = _trials()
    precision = _precision()
    budget = _budget()
    timeout = _timeout()
    build_timeout = _build_timeout()
    queue_timeout = _queue_timeout()
    profile = _profile()
    replay_seed = _replay_seed()


class CompareSchema(WireSchema):
    """A kernel to judge against a reference. `kernel` is taken for `ref_kernel`."""

    ref_kernel = Part(KernelSchema, required=True)
    custom_kernel = Part(KernelSchema, required=True)
    num_trials = _trials()
    precision = _precision()
    budget = _budget()
    timeout = _timeout()
    build_timeout = _build_timeout()
    queue_timeout = _queue_timeout()
    profile = _profile()
    atol = _tolerance()
    rtol = _tolerance()
    replay_seed = _replay_seed()


class LegacyCompareSchema(WireSchema):
    """The first version's body: a torch reference against a torch_cuda kernel."""

    ref_code = Text(required=True)
    custom_code = Text(required=True)
    num_trials = _trials()
    precision = _precision()
    budget = _budget()
    timeout = _timeout(LEGACY_TIMEOUT_S)
    build_timeout = _build_timeout()
    queue_timeout = _queue_timeout()


class BatchSchema(WireSchema):
    """Many requests in one body; each is answered on its own."""

    jobs = Items(
        fields.Raw(allow_none=True, metadata={"type": "object", "description": "An /evaluate or /compare body."}),
        required=True,
        metadata={"description": "At most 1000."},
    )


class CancelSchema(WireSchema):
    """Jobs to cancel: a batch, or a list."""

    batch_id = Text(validate=validate.Length(1, 100), metadata={"description": "Every job of that batch."})
    job_ids = Items(
        Text(validate=validate.Length(1, 100)), metadata={"description": "1 to 1000 ids; not beside `batch_id`."}
    )


_evaluate, _compare, _legacy, _batch = EvaluateSchema(), CompareSchema(), LegacyCompareSchema(), BatchSchema()
_cancel = CancelSchema()


def read_evaluate(body: dict[str, Any]) -> Request:
    """The request of an /evaluate body; raises marshmallow.ValidationError with every field at fault."""
    if "kernel" not in body and "ref_kernel" in body:
        if "custom_kernel" in body:
            raise ValidationError({"kernel": ["is missing; a body with two kernels goes to /compare"]}, data=body)
        body = {**body, "kernel": body["ref_kernel"]}
    data = _evaluate.load(body)
    return _request(data["kernel"], None, data)


def read_compare(body: dict[str, Any]) -> Request:
    """The request of a /compare body, old form or new; raises marshmallow.ValidationError with every field at fault."""
    if {"ref_code", "custom_code"} & body.keys() and not {"ref_kernel", "custom_kernel", "kernel"} & body.keys():
        return _read_legacy(body)
    if "ref_kernel" not in body and "kernel" in body:
        body = {**body, "ref_kernel": body["kernel"]}
    data = _compare.load(body)
    return _request(data["custom_kernel"], data["ref_kernel"], data)


def _read_legacy(body: dict[str, Any]) -> Request:
    data = _legacy.load(body)
    kernels = {}
    for name, kernel_type in (("ref", KernelType.TORCH), ("custom", KernelType.TORCH_CUDA)):
        code = {"source_code": data[f"{name}_code"], "kernel_type": kernel_type.value}
        try:
            kernels[name] = KernelSchema().load(code)
        except ValidationError as error:
            messages = error.messages_dict
            raise ValidationError({f"{name}_code": messages.get("source_code", messages)}, data=body) from error
    return _request(kernels["custom"], kernels["ref"], data)


def read_batch(body: dict[str, Any]) -> list[Any]:
    """The bodies in a batch, not yet validated; raises marshmallow.ValidationError when there are none or too many."""
    jobs: list[Any] = _batch.load(body)["jobs"]
    if not 1 <= len(jobs) <= settings().max_batch:
        message = f"has {len(jobs)} entries; a batch has 1 to {settings().max_batch}"
        raise ValidationError({"jobs": [message]}, data=body)
    return jobs


def read_cancel(body: dict[str, Any]) -> tuple[str | None, list[str]]:
    """The batch, or the jobs, that a body names; raises marshmallow.ValidationError unless it is one of the two."""
    data = _cancel.load(body)
    if ("batch_id" in data) == ("job_ids" in data):
        raise ValidationError("must have either batch_id or job_ids", data=body)
    jobs = list(dict.fromkeys(data.get("job_ids", [])))
    if "job_ids" in data and not 1 <= len(jobs) <= settings().max_batch:
        message = f"has {len(jobs)} entries; 1 to {settings().max_batch} jobs are cancelled at once"
        raise ValidationError({"job_ids": [message]}, data=body)
    return data.get("batch_id"), jobs


def read_job(body: Any) -> Request:
    """The request of one body in a batch: by its `operation`, or by the kernels it has."""
    if not isinstance(body, dict):
        raise ValidationError(f"must be a JSON object, not {shown(body)}")
    operation = body.get("operation")
    if operation is None:
        operation = COMPARE if {"custom_kernel", "custom_code", "ref_code"} & body.keys() else EVALUATE
    if operation == EVALUATE:
        return read_evaluate(body)
    if operation == COMPARE:
        return read_compare(body)
    raise ValidationError({"operation": [f'must be "{EVALUATE}" or "{COMPARE}", not {shown(operation)}']}, data=body)


def _request(kernel: dict[str, Any], reference: dict[str, Any] | None, data: dict[str, Any]) -> Request:
    budget = Budget(data["budget"])
    return Request.from_wire(
        {
            "kernel": kernel,
            "reference": reference,
            "num_trials": data.get("num_trials", budget.effort.num_trials),
            "precision": data.get("precision", budget.effort.precision),
            "budget": budget,
            "timeout": data["timeout"],
            "atol": data.get("atol"),
            "rtol": data.get("rtol"),
            "device_metrics": settings().enable_device_metrics,
            "profile": data.get("profile", False),
            "replay_seed": data.get("replay_seed"),
            "build_timeout": data["build_timeout"],
            "queue_timeout": data["queue_timeout"],
        }
    )
