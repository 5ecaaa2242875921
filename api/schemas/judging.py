"""How a kernel is to be judged, and when, and where: the fields that every submission has."""

from __future__ import annotations

from typing import Any

from marshmallow import fields, validate

from api.schemas.device_metrics import CountersField
from api.schemas.fields import Flag, Items, Part, RealNumber, Text, WholeNumber, WireSchema, one_of
from api.schemas.webhook import WebhookSchema
from domain.budget import Budget
from domain.listing import Form
from domain.request import DEFAULT_PRIORITY, DEFAULT_TIMEOUT_S
from domain.settings import HIGHEST_PRIORITY

MAX_TRIALS = 10_000
MAX_TARGET_PRECISION = 0.5
MIN_TIMEOUT_S, MAX_TIMEOUT_S = 5, 600
MAX_QUEUE_TIMEOUT_S = 7 * 86_400

NEVER, ALLOW = "never", "allow"


def timeout_field(default: int = DEFAULT_TIMEOUT_S) -> fields.Field[Any]:
    """Of a body whose own default is that."""
    return WholeNumber(
        MIN_TIMEOUT_S,
        MAX_TIMEOUT_S,
        load_default=default,
        metadata={"description": "Seconds of running, and as many again of building; waiting does not count."},
    )


def tolerance_field() -> fields.Field[Any]:
    """Absolute or relative."""
    return RealNumber(load_default=None, allow_none=True, validate=validate.Range(0, error="must not be negative"))


class JudgingSchema(WireSchema):
    """What is asked for beside the kernels."""

    num_trials = WholeNumber(
        1,
        MAX_TRIALS,
        metadata={
            "description": "At most so many rounds of timed windows. Default: as `budget` says, 20, 100 or 1000."
        },
    )
    target_precision = RealNumber(
        validate=validate.Range(0, MAX_TARGET_PRECISION, error="must be from {min} to {max}"),
        metadata={
            "description": "Timing stops when half its 95 % interval is this part of the time or the speed-up. "
            "Default: as `budget` says, 0.05, 0.01 or 0.002."
        },
    )
    budget = Text(
        load_default=Budget.DEFAULT.value,
        validate=one_of(Budget),
        metadata={
            "description": "How much of the device to spend. `quick` leaves checks out, which the result names; "
            "`precise` judges in several processes and takes their mean."
        },
    )
    priority = WholeNumber(
        0,
        HIGHEST_PRIORITY,
        load_default=DEFAULT_PRIORITY,
        metadata={"description": "Of two queued jobs, the one of higher priority is begun first."},
    )
    gpu = Text(
        load_default=None,
        allow_none=True,
        validate=validate.Regexp(
            "^[A-Za-z0-9][A-Za-z0-9-]{0,59}\\Z", error='must be a model\'s name, as "h200" or "cpu"'
        ),
        metadata={"description": "The model to run on, as `GET /health` names it (`gpu_model`). None: any."},
    )
    reuse = Text(
        load_default=NEVER,
        validate=one_of((NEVER, ALLOW)),
        metadata={"description": "`allow`: the same work's earlier answer may be given, marked `reused_from`."},
    )
    webhook = Part(WebhookSchema, load_default=None, allow_none=True)
    timeout = timeout_field()
    build_timeout = WholeNumber(
        MIN_TIMEOUT_S,
        MAX_TIMEOUT_S,
        load_default=None,
        allow_none=True,
        metadata={"description": "Seconds of building, where that is to have other than `timeout`."},
    )
    queue_timeout = WholeNumber(
        1,
        MAX_QUEUE_TIMEOUT_S,
        load_default=None,
        allow_none=True,
        metadata={"description": "Seconds after which a job that no worker has begun is cancelled. None: never."},
    )


class LookingSchema(JudgingSchema):
    """The same, and what the first version's body did not know and still ignores."""

    profile = Flag(
        load_default=False,
        metadata={"description": "Also call each kernel under a profiler, and tell which kernels it launches."},
    )
    device_metrics = CountersField(
        "Also run each kernel under Nsight Compute when it has been timed, and tell what the hardware counters say. "
        "`true` is `basic`; a list names metrics of ncu beside the basic ones. Default: `false`, unless the operator "
        "has set ENABLE_DEVICE_METRICS."
    )
    sanitize = Flag(
        load_default=False,
        metadata={"description": "Also run the candidate under compute-sanitizer, and tell what it finds."},
    )
    artifacts = Items(
        Text(validate=one_of(Form)),
        load_default=list,
        validate=validate.Length(max=len(Form), error="has at most {max} entries"),
        metadata={
            "description": "Also keep each kernel's code as text: `GET /job/<job_id>/artifacts`. `ttir`, `ttgir` and "
            "`llir` are stages of a Triton kernel."
        },
    )
    replay_seed = Text(
        load_default=None,
        allow_none=True,
        validate=validate.Regexp(r"^[0-9a-f]{1,64}\Z", error="must be 1 to 64 hexadecimal digits in lower case"),
        metadata={"description": "`inputs.replay_seed` of an earlier job: the same inputs again, to look for a bug."},
    )
