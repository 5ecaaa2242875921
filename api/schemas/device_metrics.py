"""The request field that selects the hardware counters to read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from marshmallow import ValidationError

from api.schemas.fields import Anything, abbreviate
from domain.device_metrics import MAX_METRIC_CHARS, MAX_METRICS, METRIC, CounterRequest, Level

_METRIC = re.compile(METRIC, re.ASCII)
_SHAPE = {
    "oneOf": [
        {"type": "boolean"},
        {"type": "string", "enum": [level.value for level in Level]},
        {
            "type": "array",
            "minItems": 1,
            "maxItems": MAX_METRICS,
            "items": {"type": "string", "pattern": f"^{METRIC}$", "maxLength": MAX_METRIC_CHARS},
        },
    ]
}


class CountersField(Anything):
    """true, false, a level, or the names of metrics; loaded as CounterRequest, None for false."""

    def __init__(self, description: str) -> None:
        super().__init__(metadata={"description": description, **_SHAPE})

    def _deserialize(
        self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any
    ) -> CounterRequest | None:
        match value:
            case bool():
                return CounterRequest() if value else None
            case str() if value in set(Level):
                return CounterRequest(Level(value))
            case list() if 1 <= len(value) <= MAX_METRICS:
                return CounterRequest(metrics=_metrics(value))
            case list():
                raise ValidationError(
                    f"has {len(value)} entries; a list names 1 to {MAX_METRICS} metrics (true: the basic ones)"
                )
        raise ValidationError(
            f'must be true, false, "basic", "full", or a list of metrics\' names; not {abbreviate(value)}'
        )


def _metrics(names: list[Any]) -> tuple[str, ...]:
    errors = {index: [message] for index, name in enumerate(names) if (message := _wrong(name)) is not None}
    if errors:
        raise ValidationError(errors)
    return tuple(sorted(set(names)))


def _wrong(name: Any) -> str | None:
    if isinstance(name, str) and name in set(Level):
        return f'is a level and no metric; a level is given by itself: "device_metrics": "{name}"'
    if isinstance(name, str) and len(name) <= MAX_METRIC_CHARS and _METRIC.fullmatch(name):
        return None
    return (
        f"must be a metric's name as `ncu --query-metrics` has it, in lower case, such as "
        f'"smsp__inst_executed.sum"; not {abbreviate(name)}'
    )
