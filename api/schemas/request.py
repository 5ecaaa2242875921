"""Request bodies of /evaluate, /compare and /batch, and the only conversion from a body to a domain Request."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from marshmallow import ValidationError, fields, validate, validates_schema

from api.schemas.cases import ALONE, COMPARED, CaseContracts
from api.schemas.fields import Flag, Items, LenientSchema, Part, RealNumber, Text, abbreviate, one_of
from api.schemas.ignored import unknown_names
from api.schemas.judging import ALLOW, JudgingSchema, LookingSchema, timeout_field, tolerance_field
from api.schemas.kernel import CONTRACT_REQUIRED, KernelSchema
from domain.budget import Budget
from domain.device_metrics import CounterRequest
from domain.inputs import Strictness
from domain.kernel import KernelType
from domain.request import DEFAULT_MATCHED_RATIO, Request
from domain.settings import settings
from domain.speed.baseline import Baseline

LEGACY_TIMEOUT_S = 30
QUALIFYING = {
    "determinism": True,
    "strictness": Strictness.ROBUST.value,
    "baselines": [each.value for each in Baseline],
}
"""The defaults of /qualify where they differ from those of /compare."""
NO_AUTOGRAD = (
    "does not go with `gradients`: a kernel called by a contract has no autograd; send a module or function of Python "
    "without `io`, and define get_inputs() in the reference"
)
EVALUATE, COMPARE = "evaluate", "compare"
_BODY = {"anyOf": [{"$ref": f"#/components/schemas/{name}"} for name in ("Compare", "Evaluate")]}


class EvaluateSchema(LookingSchema):
    """One kernel to build, run and time."""

    kernel = Part(KernelSchema, required=True)


class CompareSchema(LookingSchema):
    """A kernel to judge against a reference. `kernel` is accepted for `ref_kernel`."""

    ref_kernel = Part(KernelSchema, required=True)
    custom_kernel = Part(KernelSchema, required=True)
    atol = tolerance_field()
    rtol = tolerance_field()
    strictness = Text(
        load_default=Strictness.TASK.value,
        validate=one_of(Strictness),
        metadata={
            "description": "`task`: a failure on inputs that the task never draws is reported in "
            "`comparison.robustness`, with a flag. `robust`: it is the verdict."
        },
    )
    baselines = Items(
        Text(validate=one_of(Baseline)),
        load_default=list,
        validate=validate.Length(max=len(Baseline), error="has at most {max} entries"),
        metadata={
            "description": "`compile`: time the reference under torch.compile too, in a process of its own; the "
            "result's `baselines` has the speed-up over each. `eager`, the reference as it was sent, is always there."
        },
    )
    gradients = Flag(
        load_default=False,
        metadata={
            "description": "Also compare the gradients of inputs and parameters, under secret cotangents, and time the "
            "forward pass by itself and both passes together. Needs two kernels of Python without `io`."
        },
    )
    matched_ratio = RealNumber(
        load_default=DEFAULT_MATCHED_RATIO,
        validate=validate.Range(0, 1, error="must be from 0 to 1"),
        metadata={"description": "Minimum share of elements within tolerance; float64 judges the others."},
    )

    @validates_schema
    def _require_autograd(self, data: dict[str, Any], **_: Any) -> None:
        kernels = {name: data[name] for name in ("ref_kernel", "custom_kernel")}
        by_contract = {
            name: {"kernel_type" if kernel["kernel_type"] in CONTRACT_REQUIRED else "io": [NO_AUTOGRAD]}
            for name, kernel in kernels.items()
            if kernel.get("io") is not None
        }
        if data["gradients"] and by_contract:
            raise ValidationError(by_contract)


class LegacyCompareSchema(JudgingSchema):
    """The first version's body: a torch reference against a torch_cuda kernel."""

    ref_code = Text(required=True)
    custom_code = Text(required=True)
    timeout = timeout_field(LEGACY_TIMEOUT_S)


class BatchSchema(LenientSchema):
    """Many requests in one body; each gets a response of its own."""

    jobs = Items(
        fields.Raw(allow_none=True, metadata=_BODY),
        required=True,
        metadata={"description": "At most 1000."},
    )


class CancelSchema(LenientSchema):
    batch_id = Text(validate=validate.Length(1, 100), metadata={"description": "Every job of that batch."})
    job_ids = Items(
        Text(validate=validate.Length(1, 100)), metadata={"description": "1 to 1000 ids; not beside `batch_id`."}
    )


_evaluate, _compare, _legacy, _batch = EvaluateSchema(), CompareSchema(), LegacyCompareSchema(), BatchSchema()
_cancel = CancelSchema()


def ignored(body: Any, operation: str | None = None, *, suggest: bool = True) -> list[str]:
    """Returns the names in a body, and in its kernels' contracts, that no field reads.

    `suggest` adds the most similar field. `operation` is None for a body of a batch, which names its own operation.
    """
    if not isinstance(body, dict):
        return []
    operation_name = _operation(body) if operation is None else operation
    schema = _evaluate if operation_name == EVALUATE else _legacy if _is_legacy(body) else _compare
    read = {*schema.fields, *(() if operation else ("operation",))}
    first, other = ("kernel", "ref_kernel") if operation_name == EVALUATE else ("ref_kernel", "kernel")
    if first in read and first not in body and other in body:
        read.add(other)
        return unknown_names({**body, first: body[other]}, read, schema, suggest=suggest)
    return unknown_names(body, read, schema, suggest=suggest)


def ignored_around(batch: dict[str, Any]) -> list[str]:
    """The names in a batch's body, outside of its jobs, that no field reads."""
    return unknown_names(batch, set(_batch.fields))


def read_evaluate(body: dict[str, Any]) -> Request:
    """The request of an /evaluate body; raises marshmallow.ValidationError with every field at fault."""
    if "kernel" not in body and "ref_kernel" in body:
        if "custom_kernel" in body:
            raise ValidationError({"kernel": ["is missing; a body with two kernels goes to /compare"]}, data=body)
        body = {**body, "kernel": body["ref_kernel"]}
    contracts = CaseContracts(body, ALONE)
    data = _evaluate.load(contracts.first)
    return _request(data["kernel"], None, data, contracts)


def read_compare(body: dict[str, Any]) -> Request:
    """The request of a /compare body, old form or new; raises marshmallow.ValidationError with every field at fault."""
    if _is_legacy(body):
        return _read_legacy(body)
    if "ref_kernel" not in body and "kernel" in body:
        if "custom_kernel" not in body:
            message = "is missing; a body with one kernel goes to /evaluate, or add the kernel to judge"
            raise ValidationError({"custom_kernel": [message]}, data=body)
        body = {**body, "ref_kernel": body["kernel"]}
    contracts = CaseContracts(body, COMPARED)
    data = _compare.load(contracts.first)
    return _request(data["custom_kernel"], data["ref_kernel"], data, contracts)


def read_qualify(body: dict[str, Any]) -> Request:
    """The request of a /qualify body: a comparison with further checks, unless the body chooses otherwise.

    Raises marshmallow.ValidationError with every field at fault.
    """
    return replace(read_compare(QUALIFYING | body), qualify=True)


def _is_legacy(body: dict[str, Any]) -> bool:
    return bool(
        {"ref_code", "custom_code"} & body.keys() and not {"ref_kernel", "custom_kernel", "kernel"} & body.keys()
    )


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
    _check_number(body, "jobs", "a batch has 1 to {}")
    jobs: list[Any] = _batch.load(body)["jobs"]
    return jobs


def read_cancel(body: dict[str, Any]) -> tuple[str | None, list[str]]:
    """The batch, or the jobs, that a body names; raises marshmallow.ValidationError unless it is one of the two."""
    _check_number(body, "job_ids", "1 to {} jobs are cancelled at once")
    data = _cancel.load(body)
    if ("batch_id" in data) == ("job_ids" in data):
        raise ValidationError("must have either batch_id or job_ids", data=body)
    return data.get("batch_id"), list(dict.fromkeys(data.get("job_ids", [])))


def _check_number(body: dict[str, Any], name: str, limit_text: str) -> None:
    """Checks the number of entries before the entries themselves."""
    entries, most = body.get(name), settings().max_batch
    if isinstance(entries, list) and not 1 <= len(entries) <= most:
        raise ValidationError({name: [f"has {len(entries)} entries; {limit_text.format(most)}"]}, data=body)


def read_job(body: Any) -> Request:
    """The request of one body in a batch: by its `operation`, or by the kernels it has."""
    if not isinstance(body, dict):
        raise ValidationError(f"must be a JSON object, not {abbreviate(body)}")
    operation = _operation(body)
    if operation == EVALUATE:
        return read_evaluate(body)
    if operation == COMPARE:
        return read_compare(body)
    raise ValidationError(
        {"operation": [f'must be "{EVALUATE}" or "{COMPARE}", not {abbreviate(operation)}']}, data=body
    )


def _operation(body: dict[str, Any]) -> Any:
    if (operation := body.get("operation")) is not None:
        return operation
    return COMPARE if {"ref_kernel", "custom_kernel", "ref_code", "custom_code"} & body.keys() else EVALUATE


def _request(
    kernel: dict[str, Any],
    reference: dict[str, Any] | None,
    data: dict[str, Any],
    contracts: CaseContracts | None = None,
) -> Request:
    effort = Budget(data["budget"]).effort
    # Without the field, the operator's setting applies.
    requested = data.get("device_metrics", CounterRequest() if settings().enable_device_metrics else None)
    return Request.from_wire(
        {"num_trials": effort.num_trials, "target_precision": effort.target_precision}
        | data
        | {
            "kernel": kernel,
            "reference": reference,
            "device_metrics": requested.to_wire() if requested is not None else None,
            "cases": contracts.all() if contracts is not None else [],
            "gpu": data["gpu"].lower() if data["gpu"] is not None else None,
            "reuse": data["reuse"] == ALLOW,
            "name": data["name"] or None,
        }
    )
