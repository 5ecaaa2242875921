"""Schemas of a kernel's IO contract."""

from __future__ import annotations

from typing import Any

from marshmallow import ValidationError, post_load, validates_schema
from marshmallow.validate import Length

from api.schemas.fields import (
    INT64_LOW,
    MISSING,
    UINT64_HIGH,
    Anything,
    Flag,
    Items,
    LenientSchema,
    Part,
    Text,
    abbreviate,
    one_of,
    whole_number,
)
from api.schemas.index_kinds import check_index_kinds
from api.schemas.launch import LaunchSchema
from api.schemas.tensor import TensorSpecSchema, require_spec
from domain.contract import NONE

ARGUMENT_TYPES = ("tensor", "int", "float", "str", "bool", NONE)
ROLES = ("input", "output", "inout")
MAX_ARGUMENTS = 256


class ArgumentSchema(LenientSchema):
    name = Text(required=True, validate=Length(max=256, error="has more than {max} characters"))
    type = Text(required=True, validate=one_of(ARGUMENT_TYPES))
    value = Anything(
        allow_none=True,
        metadata={
            "type": ["integer", "number", "string", "boolean"],
            "description": "The scalar, of the type that `type` says.",
        },
    )
    tensor_spec = Part(TensorSpecSchema, allow_none=True)
    role = Text(load_default="input", allow_none=True, validate=one_of(ROLES))
    is_meta = Flag(load_default=False, allow_none=True, metadata={"description": "A Triton constexpr."})
    is_constant = Flag(
        load_default=False,
        allow_none=True,
        metadata={"description": "CUDA: the __constant__ variable of that name, and no parameter."},
    )

    @validates_schema(pass_original=True)
    def _content(self, data: dict[str, Any], sent: dict[str, Any], **_: Any) -> None:
        if data["type"] == "tensor":
            require_spec(sent)
        elif data["type"] != NONE and data.get("value") is None:
            raise ValidationError(f'{MISSING} for type "{data["type"]}"', "value")
        if data.get("is_constant") and (
            data["type"] != "tensor" or data.get("role") != "input" or data["tensor_spec"].get("strides") is not None
        ):
            raise ValidationError("is for input tensors without strides; a number is one of shape []", "is_constant")

    @post_load
    def _typed(self, data: dict[str, Any], **_: Any) -> dict[str, Any]:
        if data["type"] == "tensor":
            data.pop("value", None)
            return data
        data.pop("tensor_spec", None)
        if data["type"] == NONE:
            data["value"] = None
        else:
            try:
                data["value"] = _scalar(data["type"], data["value"])
            except ValidationError as error:
                raise ValidationError({"value": error.messages}) from error
        return data


def _scalar(kind: str, value: Any) -> int | float | str | bool:
    """The value at its declared type; raises ValidationError."""
    match kind, value:
        case ("str", str()) | ("bool", bool()):
            return value  # type: ignore[no-any-return]
        case ("int", int() | float()) if not isinstance(value, bool):
            number = whole_number(value)
            if not INT64_LOW <= number <= UINT64_HIGH:
                raise ValidationError(f"must fit 64 bits, not {abbreviate(value)}")
            return number
        case ("float", int() | float()) if not isinstance(value, bool):
            try:
                return float(value)
            except OverflowError:
                pass
    raise ValidationError(f'must be of type "{kind}", not {abbreviate(value)}')


class IOContractSchema(LenientSchema):
    """All arguments in calling order, and the launch."""

    args = Items(
        Part(ArgumentSchema), required=True, validate=Length(max=MAX_ARGUMENTS, error="has more than {max} arguments")
    )
    launch = Part(LaunchSchema, allow_none=True)

    @validates_schema
    def _index_kinds(self, data: dict[str, Any], **_: Any) -> None:
        check_index_kinds(data["args"])
