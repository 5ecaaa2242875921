"""Packs a contract's argument into the bytes of a kernel parameter's type."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping, Sequence

from backends.cuda.signature import Parameter, spell
from domain.contract import NONE, Argument
from domain.fault import KernelFault
from domain.result import Status

Scalar = int | float | bool

WORD_BYTES = 8
"""Size of an argument's place: a launch reads each parameter's bytes from there."""

_SMALL_FLOATS = {
    "half": "float16",
    "bfloat16": "bfloat16",
    "float8_e4m3fn": "float8_e4m3fn",
    "float8_e5m2": "float8_e5m2",
}
_NO_STRUCT = (
    ". A contract cannot give a struct: take its members as parameters, or send Python that launches it, as torch_cuda"
)
_SAME_BITS = {1: "uint8", 2: "uint16", 4: "uint32", 8: "uint64"}


def check_constants(arguments: Iterable[Argument], sizes: Mapping[str, int]) -> None:
    """Raises KernelFault (contract_mismatch) where a constant has no variable, of `sizes` bytes, that it fits into."""
    for argument in arguments:
        if argument.name not in sizes:
            there = f"it has {', '.join(sizes)}" if sizes else "it has none"
            raise KernelFault(
                Status.CONTRACT_MISMATCH,
                f"the source has no __constant__ variable '{argument.name}' outside of namespaces; {there}",
                compiled=True,
            )
        if argument.nbytes > sizes[argument.name]:
            raise KernelFault(
                Status.CONTRACT_MISMATCH,
                f"argument '{argument.name}' has {argument.nbytes} bytes; the __constant__ variable has "
                f"{sizes[argument.name]}",
                compiled=True,
            )


def check_arguments(kernel: str, parameters: list[Parameter], arguments: Sequence[Argument]) -> None:
    """Raises KernelFault (contract_mismatch) where the contract's arguments do not fit the kernel's parameters."""
    signature = f"{kernel}{spell(parameters)}"
    structs = (parameter.kind == "struct" or parameter.size > WORD_BYTES for parameter in parameters)
    advice = _NO_STRUCT if any(structs) else ""
    if len(parameters) != len(arguments):
        raise KernelFault(
            Status.CONTRACT_MISMATCH,
            f"{signature} takes {len(parameters)} arguments and the contract gives {len(arguments)} "
            f"({', '.join(a.name for a in arguments) or 'none'}): list one argument for each parameter, in order"
            + advice,
            compiled=True,
        )
    for position, (parameter, argument) in enumerate(zip(parameters, arguments, strict=True)):
        if not _fits(parameter, argument):
            article = "an" if argument.type == "int" else "a"
            raise KernelFault(
                Status.CONTRACT_MISMATCH,
                f"argument {position} '{argument.name}' is {article} {argument.type} where {signature} takes "
                f"{parameter.spelling}{advice}",
                compiled=True,
            )
        if not argument.is_tensor:
            pack_word(parameter, argument.value, argument.name)


def _fits(parameter: Parameter, argument: Argument) -> bool:
    if parameter.size > WORD_BYTES:
        return False
    if argument.is_tensor or argument.type == NONE:
        return parameter.kind == "pointer" or (parameter.kind == "word" and parameter.size == 8)
    return parameter.kind not in ("pointer", "struct") and argument.type in ("int", "float", "bool")


def mismatched_pointers(parameters: list[Parameter], arguments: Sequence[Argument]) -> list[str]:
    """A warning for each tensor whose dtype differs from the kernel's pointer type; legal, and seldom intended."""
    return [
        f"argument '{argument.name}' is a tensor of {argument.tensor_spec.dtype} and the kernel takes "
        f"{parameter.spelling}: the bytes are passed as they are"
        for parameter, argument in zip(parameters, arguments, strict=True)
        if argument.is_tensor and argument.tensor_spec is not None and parameter.target is not None
        if not _same_elements(parameter.target, argument.tensor_spec.dtype)
    ]


def _same_elements(target: Parameter, dtype: str) -> bool:
    """Whether the pointer suits that dtype, as far as the type tells: bytes, void and structs may hold anything."""
    if target.kind in ("void", "struct", "pointer", "word") or target.size in (0, 1):
        return True
    if target.kind in _SMALL_FLOATS:
        return dtype == _SMALL_FLOATS[target.kind]
    return dtype.startswith(target.kind) and dtype.endswith(str(target.size * 8))


def pack_word(parameter: Parameter, value: object, name: str) -> int:
    """The value converted to the parameter's type, as the low bytes of an 8-byte word; None is a null pointer.

    Raises KernelFault (runtime_error) for a value that the type cannot hold; `name` is the argument's, for the message.
    """
    if value is None:
        return 0
    if not isinstance(value, (int, float)):
        raise KernelFault(
            Status.CONTRACT_MISMATCH,
            f"argument '{name}' has the value {value!r} where the kernel takes {parameter.spelling}: give a number",
            compiled=True,
        )
    try:
        return _pack_word(parameter, value)
    except (OverflowError, ValueError, struct.error) as error:
        raise KernelFault(
            Status.RUNTIME_ERROR,
            f"argument '{name}': {value!r} does not fit the kernel's parameter of type {parameter.spelling}",
            compiled=True,
        ) from error


def _pack_word(parameter: Parameter, value: Scalar) -> int:
    kind, size = parameter.kind, parameter.size
    if kind in ("word", "bytes"):
        # Only the size is known, so the value's own type decides.
        kind = "float" if isinstance(value, float) else "int" if value < 0 else "uint"
    match kind:
        case "float":
            return int.from_bytes(struct.pack({2: "<e", 4: "<f", 8: "<d"}[size], value), "little")
        case "bool":
            return int(bool(value))
        case "int" | "uint":
            return int.from_bytes(_whole(value).to_bytes(size, "little", signed=kind == "int"), "little")
    return _small_float(_SMALL_FLOATS[kind], value)


def _whole(value: Scalar) -> int:
    whole = int(value)
    if whole != value:
        raise ValueError("not a whole number")
    return whole


def _small_float(dtype: str, value: Scalar) -> int:
    # torch rounds these types as CUDA does, and is installed wherever kernels are built or run.
    import math

    import torch

    small = torch.tensor(float(value), dtype=torch.float64).to(getattr(torch, dtype))
    if math.isfinite(value) and not math.isfinite(small.float().item()):
        raise OverflowError
    return int(small.view(getattr(torch, _SAME_BITS[small.element_size()])).item())
