"""Field types of all request schemas: lenient where JSON writers differ, and exact in their error messages."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from itertools import islice
from typing import Any

from apiflask import Schema
from marshmallow import EXCLUDE, RAISE, ValidationError, fields, pre_load, validate

from api.schemas.suggestions import missing_name, question, similar_name, similar_value

MISSING = "is missing; it is required"
UNKNOWN, REMOVE = "is not a field of this object; remove it", "; remove it"
MOST_UNKNOWN = 100
MOST_SUGGESTED = 8
"""Maximum unknown names of one object that are compared with its fields."""
INT64_LOW, UINT64_HIGH = -(2**63), 2**64 - 1

_WHOLE = re.compile(r"[+-]?[0-9]{1,20}", re.ASCII)
_REAL = re.compile(r"[+-]?([0-9]{1,30}\.?[0-9]{0,30}|\.[0-9]{1,30})([eE][+-]?[0-9]{1,3})?", re.ASCII)
_OBJECT = {"unknown": UNKNOWN, "type": "must be a JSON object"}
_MAX_VALUE_CHARS = 60


def _messages(**own: str) -> dict[str, str | list[Any] | dict[Any, Any]]:
    return {"required": MISSING, "null": "must not be null", "validator_failed": "is not valid", **own}


def abbreviate(value: Any) -> str:
    """A value for an error message, shortened."""
    match value:
        case dict():
            return "an object"
        case list():
            return "an array"
        case None | bool():
            return {None: "null", True: "true", False: "false"}[value]
    text = repr(value)
    return text if len(text) <= _MAX_VALUE_CHARS else f"{text[:_MAX_VALUE_CHARS]}…"


class ObjectSchema(Schema):
    """A JSON object; unknown keys are rejected, each by its name unless there are very many."""

    error_messages = _OBJECT

    def handle_error(self, error: ValidationError, data: Any, *, many: bool, **_: Any) -> None:
        """Says at an unknown or a missing field which one was meant."""
        if not isinstance(data, dict) or not isinstance(error.messages, dict):
            return
        suggested = 0
        for name, messages in error.messages.items():
            if messages == [UNKNOWN] and suggested < MOST_SUGGESTED:
                suggested += 1
                free = [field for field in self.load_fields if field not in data]
                messages[0] = _unknown(similar_name(name, free))
            elif messages == [MISSING]:
                messages[0] += missing_name(name, data)

    @pre_load
    def _few_unknown(self, data: Any, **_: Any) -> Any:
        if self.unknown == RAISE and isinstance(data, dict) and len(data) > len(self.load_fields) + MOST_UNKNOWN:
            raise ValidationError(f"has {len(data)} keys; its fields are {', '.join(self.load_fields)}")
        return data


class LenientSchema(ObjectSchema):
    """A JSON object whose unknown keys are ignored, as the original service does outside of KernelCode."""

    class Meta:
        unknown = EXCLUDE


class Text(fields.String):
    default_error_messages = _messages(invalid="must be a string")


class Flag(fields.Boolean):
    """A JSON boolean; also the spellings that form-like writers use."""

    default_error_messages = _messages(invalid="must be true or false")


class Items(fields.List[Any]):
    """A JSON array, whose length is checked before its members."""

    default_error_messages = _messages(invalid="must be an array")

    def _deserialize(self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any) -> list[Any]:
        if isinstance(value, list):
            for validator in self.validators:
                if isinstance(validator, validate.Length):
                    validator(value)
        return super()._deserialize(value, attr, data, **kwargs)


class Part(fields.Nested):
    default_error_messages = _messages(type="must be a JSON object")


class Anything(fields.Raw):
    """A value that the schema's own checks validate."""

    default_error_messages = _messages()


class FreeObject(fields.Dict):
    """A JSON object with any content, of which the service reads the names in `read`."""

    default_error_messages = _messages(invalid="must be a JSON object")

    def __init__(self, read: Collection[str], **options: Any) -> None:
        super().__init__(**options)
        self.read = read


class WholeNumber(fields.Integer):
    """An integer; `"7"` and `7.0` are accepted as 7, `2.5` and `true` are rejected."""

    default_error_messages = _messages()

    def __init__(self, low: int = INT64_LOW, high: int = UINT64_HIGH, **options: Any) -> None:
        super().__init__(validate=validate.Range(low, high, error="must be between {min} and {max}"), **options)

    def _deserialize(self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any) -> int:
        return whole_number(value)


def whole_number(value: Any) -> int:
    """The integer that `value` stands for; raises ValidationError."""
    match value:
        case bool():
            pass
        case int():
            return value
        case float() if value.is_integer():
            return int(value)
        case str() if _WHOLE.fullmatch(value):
            return int(value)
    raise ValidationError(f"must be a whole number, not {abbreviate(value)}")


class RealNumber(fields.Float):
    """A finite number; numeric strings are accepted, booleans rejected."""

    default_error_messages = _messages()

    def _deserialize(self, value: Any, attr: str | None, data: Mapping[str, Any] | None, **kwargs: Any) -> float:
        if isinstance(value, str) and not _REAL.fullmatch(value):
            value = None
        try:
            number = math.nan if isinstance(value, bool) else float(value)
        except (OverflowError, TypeError):
            number = math.nan
        if not math.isfinite(number):
            raise ValidationError("must be a finite number")
        return number


class QuerySchema(LenientSchema):
    """The parameters of a query; unknown ones are rejected, because a request would be served without them."""

    @pre_load
    def _known(self, data: Any, **_: Any) -> Any:
        names = list(self.load_fields)
        errors = {
            name: [f"is no query parameter here; there are: {', '.join(names)}{question(similar_name(name, names))}"]
            for name in islice((name for name in data if name not in self.load_fields), MOST_SUGGESTED)
        }
        if errors:
            raise ValidationError(errors)
        return data


class Choice(validate.OneOf):
    """Validates that a string is exactly one of the choices, case-sensitive, and says which one was meant."""

    def _format_error(self, value: Any) -> str:
        return f"{super()._format_error(value)}{question(similar_value(value, list(self.choices)))}"


def _unknown(meant: str | None) -> str:
    return UNKNOWN if meant is None else UNKNOWN.removesuffix(REMOVE) + question(meant)


def one_of(choices: Any) -> validate.OneOf:
    """Validates that a string is exactly one of these, case-sensitive."""
    return Choice([str(choice) for choice in choices], error="must be one of: {choices}; not {input!r}")
