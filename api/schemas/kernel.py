"""A submitted kernel (KernelCode), and what each kernel type needs in addition to its source."""

from __future__ import annotations

import base64
import re
from typing import Any

from marshmallow import ValidationError, post_load, validates_schema

from api.schemas.contract import IOContractSchema
from api.schemas.fields import FreeObject, ObjectSchema, Part, Text, abbreviate, one_of
from api.schemas.launch import check_launch
from domain.contract import IOContract
from domain.kernel import JITTED, KernelType
from domain.kernel_guess import LOOKS_LIKE, guess_type, is_cpp, looks_like, other_type
from domain.settings import settings

PYTHON_ENTRIES = ("function_name", "class_name", "entry_point")
TEXT_METADATA = (*PYTHON_ENTRIES, "kernel_name", "method_name")
CONTRACT_REQUIRED = (KernelType.CUDA, KernelType.MULTI_KERNEL)
"""The types whose calls only a contract can describe."""

LIST_METADATA = ("compiler_options", "compile_options", "name_expressions", "functions")

SHORT_CONTRACT = (
    '{"args": [{"name": "x", "type": "tensor", "tensor_spec": {"shape": [1024]}}, {"name": "out", "type": "tensor", '
    '"role": "output", "tensor_spec": {"shape": [1024]}}, {"name": "n", "type": "int", "value": 1024}], '
    '"launch": {"grid": ["cdiv(n, 256)"]}}'
)

_MODEL_CLASS = re.compile(r"^class\s+(Model|ModelNew)\b", re.MULTILINE)
_FUNCTION = re.compile(
    r"^(?P<jit>@(?:(?:triton|gluon)\.)?jit\b[^\n]*\n)?(?:def[ \t]+(?P<name>\w+)|(?P<given>\w+)[ \t]*=(?!=))",
    re.MULTILINE,
)
"""A module-level function. With `jit` it is itself a kernel, not a function that launches one."""
_CALLED = re.compile(
    r"^(?P<jit>@(?:(?:triton|gluon)\.)?jit\b[^\n]*\n)?def[ \t]+(?!_|get_(?:init_)?inputs\b)\w+[ \t]*\(\s*[^\s)]",
    re.MULTILINE,
)
"""A public function with parameters that makes no inputs. If there is one, and a launch, it is called."""
_KERNEL = re.compile(r"^[ \t]*@(?:(?:triton|gluon)\.)?(?:jit|autotune|heuristics)\b|\bjit\(", re.MULTILINE)
"""A kernel. A source without one cannot be bare: the builder says what it is instead, such as no Python."""
_LAUNCH = re.compile(r"\][ \t]*\(")
_CPP_FUNCTION = re.compile(r"[A-Za-z_]\w*(?:::[A-Za-z_]\w*)*", re.ASCII)
"""The names that may become part of the C++ that the service adds to a source: no report shows that text."""
WAY_OUT = " (Python that launches it needs none: call that function kernel_fn, or name it in metadata.function_name)"
_FILE_NAME = re.compile(r"[\w./\\~ -]{1,200}\.(?:py|cu|cuh|cpp|json)")
_BASE64 = re.compile(r"[A-Za-z0-9+/\s]{16,}+={0,2}\s*+")
"""No kernel consists of these characters: it has brackets or a colon."""
_MESSAGES = {"type": "must be a JSON object with `source_code` and `kernel_type`"}


def _check_source(source: str) -> None:
    if _FILE_NAME.fullmatch(source.strip()):
        raise ValidationError("is the name of a file; send the file's text")
    cap = settings().max_source
    if len(source) > cap:  # Checked first, to avoid encoding a huge text.
        raise ValidationError(f"has {len(source)} characters; at most {cap} bytes of UTF-8 are taken")
    if (size := len(source.encode())) > cap:
        raise ValidationError(f"is {size} bytes of UTF-8; at most {cap} are taken")
    if _BASE64.fullmatch(source) and _decodes(source):
        raise ValidationError("is encoded as base64; send the text itself")


def _decodes(source: str) -> bool:
    try:
        return "(" in base64.b64decode(f"{source}==").decode()
    except ValueError:
        return False


class KernelSchema(ObjectSchema):
    """One kernel. Unlike elsewhere, an unknown key is rejected, because the kernel would be judged without it."""

    error_messages = _MESSAGES

    source_code = Text(required=True, validate=_check_source, metadata={"description": "At most 1 MiB of UTF-8."})
    kernel_type = Text(required=True, validate=one_of(KernelType))
    io = Part(
        IOContractSchema,
        allow_none=True,
        metadata={"description": f"Required for {', '.join(CONTRACT_REQUIRED)} and a bare triton or gluon kernel."},
    )
    metadata = FreeObject(
        (*TEXT_METADATA, *LIST_METADATA, "backend"),
        allow_none=True,
        metadata={"description": "What to call and how to compile: kernel_name, function_name, compiler_options, …"},
    )

    def handle_error(self, error: ValidationError, data: Any, *, many: bool, **options: Any) -> None:
        """Says at a missing or unknown type which type the source looks like, and which fields are metadata's."""
        super().handle_error(error, data, many=many, **options)
        for name in (*TEXT_METADATA, *LIST_METADATA):
            if isinstance(error.messages, dict) and name in error.messages and name not in self.load_fields:
                error.messages[name] = ["is not a field of this object; put it into `metadata`"]
        messages = error.messages.get("kernel_type") if isinstance(error.messages, dict) else None
        source = data.get("source_code") if isinstance(data, dict) else None
        if messages and "did you mean" not in messages[0] and LOOKS_LIKE not in messages[0] and isinstance(source, str):
            messages[0] += f"; {looks_like(guess_type(source))}"

    @validates_schema
    def _check_metadata(self, data: dict[str, Any], **_: Any) -> None:
        metadata, errors = data.get("metadata") or {}, {}
        for key in TEXT_METADATA:
            if not isinstance(metadata.get(key), str | None):
                errors[key] = [f"must be a string, not {abbreviate(metadata[key])}"]
        for key in LIST_METADATA:
            value = metadata.get(key)
            if value is not None and not (isinstance(value, list) and all(isinstance(item, str) for item in value)):
                errors[key] = ["must be an array of strings"]
        if "functions" not in errors and not all(map(_CPP_FUNCTION.fullmatch, metadata.get("functions") or ())):
            errors["functions"] = ["must be names of C++ functions, such as forward or ops::forward"]
        if data["kernel_type"] == KernelType.MULTI_KERNEL and not metadata.get("entry_point"):
            errors["entry_point"] = ["is missing; multi_kernel needs the name of the Python function to call"]
        if errors:
            raise ValidationError({"metadata": errors})

    @validates_schema
    def _require_contract(self, data: dict[str, Any], **_: Any) -> None:
        if data.get("io") is None and _needs_contract(data):
            other = other_type(data["source_code"], KernelType(data["kernel_type"]))
            if other is not None:
                raise ValidationError(other, "kernel_type")
            bare, way_out = ("bare ", WAY_OUT) if data["kernel_type"] in JITTED else ("", "")
            raise ValidationError(
                f"is missing; a {bare}{data['kernel_type']} kernel needs its IO contract (io_contract) in this field"
                f'{way_out}, such as "io": {SHORT_CONTRACT}; /docs and /openapi.json have whole requests',
                "io",
            )

    @post_load
    def _check_launch(self, data: dict[str, Any], **_: Any) -> dict[str, Any]:
        data["source_code"] = data["source_code"].removeprefix("\ufeff")  # An editor's byte order mark.
        if data.get("io") is not None:
            try:
                contract, launch = IOContract.from_wire(data["io"]), data["io"].get("launch") or {}
                check_launch(contract, launch, KernelType(data["kernel_type"]), data["source_code"])
            except ValidationError as error:
                raise ValidationError({"io": {"launch": error.messages}}) from error
        return data


def _needs_contract(data: dict[str, Any]) -> bool:
    """Whether only a contract can tell how this kernel is called."""
    if data["kernel_type"] in JITTED:
        # A Python wrapper that launches its own kernels is called like a torch module.
        metadata, source = data.get("metadata") or {}, data["source_code"]
        called = any(metadata.get(key) for key in PYTHON_ENTRIES) or _python(source, metadata)
        return not called and _is_bare(source)
    return data["kernel_type"] in CONTRACT_REQUIRED


def _is_bare(source: str) -> bool:
    """Whether the source has a kernel, as its lines say or as C++ does."""
    return _KERNEL.search(source) is not None or is_cpp(source)


def _python(source: str, metadata: dict[str, Any]) -> bool:
    """Whether the source defines something that the type calls as Python; the backend checks the module itself
    again."""
    names = ("kernel_fn", metadata.get("kernel_name"))
    functions = (match["name"] or match["given"] for match in _FUNCTION.finditer(source) if match["jit"] is None)
    called = [match for match in _CALLED.finditer(source) if match["jit"] is None]
    launches = len(called) == 1 and not metadata.get("kernel_name") and _LAUNCH.search(source) is not None
    return bool(_MODEL_CLASS.search(source)) or any(name in names for name in functions) or launches
