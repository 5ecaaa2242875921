"""The fields that every submission has: how, when and where to judge its kernel."""

from __future__ import annotations

from typing import Any

from marshmallow import ValidationError, fields, validate

from api.schemas.cases import CasesField
from api.schemas.device_metrics import CountersField
from api.schemas.fields import Flag, Items, LenientSchema, Part, RealNumber, Text, WholeNumber, one_of
from api.schemas.webhook import WebhookSchema
from domain.budget import Budget
from domain.inputs import DrawOn
from domain.listing import Form
from domain.plain_text import plain
from domain.request import DEFAULT_PRIORITY, DEFAULT_TIMEOUT_S
from domain.settings import HIGHEST_PRIORITY

MAX_TRIALS = 10_000
MAX_TARGET_PRECISION = 0.5
MIN_TIMEOUT_S, MAX_TIMEOUT_S = 5, 600
MAX_QUEUE_TIMEOUT_S = 7 * 86_400

MAX_NAME_CHARS = 200
NEVER, ALLOW = "never", "allow"


def _one_line(name: str) -> None:
    if plain(name) != name:
        raise ValidationError("must be one line of text without control characters")


def timeout_field(default: int = DEFAULT_TIMEOUT_S) -> fields.Field[Any]:
    return WholeNumber(
        MIN_TIMEOUT_S,
        MAX_TIMEOUT_S,
        load_default=default,
        metadata={"description": "Seconds for running, and again for building; waiting does not count."},
    )


def tolerance_field() -> fields.Field[Any]:
    return RealNumber(load_default=None, allow_none=True, validate=validate.Range(0, error="must not be negative"))


class JudgingSchema(LenientSchema):
    """The fields of a submission other than its kernels."""

    name = Text(
        load_default=None,
        allow_none=True,
        validate=[validate.Length(max=MAX_NAME_CHARS, error="has at most {max} characters"), _one_line],
        metadata={"description": "Your name for the job, for lists and pages. It decides nothing."},
    )
    num_trials = WholeNumber(
        1,
        MAX_TRIALS,
        metadata={"description": "Maximum rounds of timed windows. Default by `budget`: 20, 100 or 1000."},
    )
    target_precision = RealNumber(
        validate=validate.Range(0, MAX_TARGET_PRECISION, error="must be from {min} to {max}"),
        metadata={
            "description": "Timing stops when half its 95 % interval is this part of the time or the speed-up. "
            "Default by `budget`: 0.05, 0.01 or 0.002."
        },
    )
    budget = Text(
        load_default=Budget.DEFAULT.value,
        validate=one_of(Budget),
        metadata={
            "description": "How much device time to spend. `quick` skips checks and names them in the result; "
            "`precise` judges in several processes and reports their mean."
        },
    )
    priority = WholeNumber(
        0,
        HIGHEST_PRIORITY,
        load_default=DEFAULT_PRIORITY,
        metadata={"description": "A queued job of higher priority starts first."},
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
        metadata={"description": "`allow`: an earlier result of the same work may be returned, marked `reused_from`."},
    )
    webhook = Part(WebhookSchema, load_default=None, allow_none=True)
    timeout = timeout_field()
    build_timeout = WholeNumber(
        MIN_TIMEOUT_S,
        MAX_TIMEOUT_S,
        load_default=None,
        allow_none=True,
        metadata={"description": "Seconds for building. Default: `timeout`."},
    )
    queue_timeout = WholeNumber(
        1,
        MAX_QUEUE_TIMEOUT_S,
        load_default=None,
        allow_none=True,
        metadata={"description": "Seconds after which a job that no worker has started is cancelled. None: never."},
    )


class LookingSchema(JudgingSchema):
    """The same, and fields that the first version's body did not know and still ignores."""

    profile = Flag(
        load_default=False,
        metadata={"description": "Also call each kernel under a profiler, and report which kernels it launches."},
    )
    device_metrics = CountersField(
        "Also run each kernel under Nsight Compute after it was timed, and report its hardware counters. "
        "`true` is `basic`; a list names metrics of ncu beside the basic ones. Default: `false`, unless the operator "
        "has set ENABLE_DEVICE_METRICS."
    )
    sanitize = Flag(
        load_default=False,
        metadata={"description": "Also run the candidate under compute-sanitizer, and report its findings."},
    )
    determinism = Flag(
        load_default=False,
        metadata={
            "description": "Also call the candidate again and again on the same inputs, in two processes at least, and "
            "its rows beside other rows and in smaller batches: the result says whether the bits are the same."
        },
    )
    cases = CasesField()
    artifacts = Items(
        Text(validate=one_of(Form)),
        load_default=list,
        validate=validate.Length(max=len(Form), error="has at most {max} entries"),
        metadata={
            "description": "Also store each kernel's code as text: `GET /job/<job_id>/artifacts`. `ttir`, `ttgir` and "
            "`llir` are stages of a Triton kernel."
        },
    )
    draw_on = Text(
        load_default=DrawOn.DEVICE.value,
        validate=one_of(DrawOn),
        metadata={
            "description": "Where `get_inputs()`, `get_init_inputs()` and constructors make the tensors whose device "
            "they do not name. A source that cannot do so on the device does it on the host (`inputs.drawn_on`)."
        },
    )
    replay_seed = Text(
        load_default=None,
        allow_none=True,
        validate=validate.Regexp(r"^[0-9a-f]{1,64}\Z", error="must be 1 to 64 hexadecimal digits in lower case"),
        metadata={"description": "`inputs.replay_seed` of an earlier job: the same inputs again, to look for a bug."},
    )
