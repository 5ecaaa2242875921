"""Reads one tensor from a safetensors file: the header's length, a JSON header, the values."""

from __future__ import annotations

import json
from pathlib import Path

from kernel_eval_client.errors import CallerError

HEADER_BYTES = 16 << 20
DTYPES = {
    **{"F64": "float64", "F32": "float32", "F16": "float16", "BF16": "bfloat16"},
    **{"F8_E4M3": "float8_e4m3fn", "F8_E5M2": "float8_e5m2", "BOOL": "bool"},
    **{"I64": "int64", "I32": "int32", "I16": "int16", "I8": "int8"},
    **{"U64": "uint64", "U32": "uint32", "U16": "uint16", "U8": "uint8"},
}


def read_tensor(path: Path, key: str, maximum: int) -> tuple[str, list[int], bytes]:
    """Dtype, shape and raw bytes (C order) of the tensor `key`.

    Raises CallerError for a missing or broken tensor, and for one of more than `maximum` bytes.
    """
    try:
        with path.open("rb") as file:
            length = int.from_bytes(file.read(8), "little")
            if length > HEADER_BYTES:
                raise CallerError(f"{path} is no safetensors file")
            entry = json.loads(file.read(length))[key]
            begin, end = entry["data_offsets"]
            if not 0 <= begin <= end or end - begin > maximum:
                raise CallerError(f"{key} of {path} has {end - begin} bytes; {maximum} can be sent at most")
            file.seek(8 + length + begin)
            raw = file.read(end - begin)
            if len(raw) != end - begin:
                raise CallerError(f"{path} is cut off")
            return DTYPES[entry["dtype"]], [int(size) for size in entry["shape"]], raw
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CallerError(f"{key!r} cannot be read from {path}: {error!r}") from error
