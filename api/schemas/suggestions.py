"""Suggests the name or the value that a request probably meant."""

from __future__ import annotations

import re
from collections.abc import Collection
from difflib import get_close_matches
from itertools import islice

MAX_CHARS = 60
"""Maximum length of a name that is compared with others: a comparison takes time with the square of it."""
MOST_NAMES = 32
"""Most names of an object that are compared with a missing one."""
_MIN_SIMILARITY = 0.75
"""Minimum similarity of two names, by difflib's measure: `num_trails` and `num_trials` have 0.9."""
_DIGITS = re.compile(r"\d+")
_SOURCES = ("source_code", "code", "source", "sources")
MEANT_NAMES = {
    "source_code": ("source", "code", "src", "kernel_code", "kernel_source", "text", "program"),
    "entry_point": ("entrypoint", "entry"),
    "function_name": ("function", "func", "fn"),
    "class_name": ("class", "cls", "model"),
    "kernel_type": ("type", "kind", "language", "lang", "framework"),
    "io": ("io_contract", "contract", "args", "inputs", "signature"),
    "kernel": ("custom_kernel", "candidate", "candidate_kernel", "custom", "solution", *_SOURCES),
    "ref_kernel": ("reference", "reference_kernel", "ref", "baseline", "original"),
    "custom_kernel": ("candidate", "candidate_kernel", "custom", "solution", "new_kernel"),
    "tensor_spec": ("spec", "tensor", "shape"),
    "data_b64": ("data", "base64", "content"),
    "jobs": ("requests", "kernels", "bodies", "items"),
    "wait": ("timeout", "wait_s", "seconds"),
    "state": ("status", "verdict"),
    "name": ("label", "title"),
}
"""By field, other names that clients give it."""
_FIELDS_OF = {
    alias: [field for field, names in MEANT_NAMES.items() if alias in names]
    for names in MEANT_NAMES.values()
    for alias in names
}
_VALUES = {
    **{"fp16": "float16", "half": "float16", "fp32": "float32", "float": "float32", "single": "float32"},
    **{"fp64": "float64", "double": "float64", "bf16": "bfloat16", "long": "int64", "short": "int16", "byte": "uint8"},
    **{"i8": "int8", "i16": "int16", "i32": "int32", "i64": "int64", "u8": "uint8", "char": "int8", "boolean": "bool"},
    **{"f16": "float16", "f32": "float32", "f64": "float64", "fp8": "float8_e4m3fn", "integer": "int", "str": "string"},
    **{"pytorch": "torch", "cu": "cuda", "c++": "cuda", "cpp": "cuda", "cudac++": "cuda", "python": "torch"},
    **{
        "load_inline": "torch_cuda",
        "pytorch_cuda": "torch_cuda",
        "normal": "randn",
        "rand": "uniform",
        "random": "randn",
    },
    **{
        "done": "completed",
        "finished": "completed",
        "pending": "queued",
        "in": "input",
        "out": "output",
        "constant": "full",
        "strict": "robust",
        "fast": "quick",
        "yes": "allow",
    },
}
"""Values that clients send for another one."""
_PREFIXES = ("torch.", "tl.", "np.", "numpy.", "jnp.")


def similar_name(name: str, fields: Collection[str]) -> str | None:
    """The field that a name was meant to be; None if it looks like none of them."""
    if len(name) > MAX_CHARS:
        return None
    fields_of_alias = [field for field in _FIELDS_OF.get(name.lower(), ()) if field in fields]
    similar = fields_of_alias or get_close_matches(name.lower(), fields, 1, _MIN_SIMILARITY)
    return similar[0] if similar else None


def similar_value(value: object, choices: Collection[str]) -> str | None:
    """The choice that a value was meant to be; None if it looks like none of them."""
    if not isinstance(value, str) or len(value) > MAX_CHARS:
        return None
    text = value.strip().lower()
    for prefix in _PREFIXES:
        text = text.removeprefix(prefix)
    exact = next((each for each in (text, _VALUES.get(text), text.replace("-", "_")) if each in choices), None)
    return exact or _misspelt(text, choices)


def _misspelt(text: str, choices: Collection[str]) -> str | None:
    """The choice with a few other letters. A request may have 100,000 wrong values, at 9 to 44 µs each: only choices
    that begin alike, and have the same digits, are compared."""
    like = [each for each in choices if each[:1] == text[:1] and abs(len(each) - len(text)) <= 2]
    digits = _DIGITS.findall(text)
    similar = get_close_matches(text, [each for each in like if _DIGITS.findall(each) == digits], 1, _MIN_SIMILARITY)
    return similar[0] if similar else None


def missing_name(field: str, present: Collection[str]) -> str:
    """The end of the message about a missing field, by the names that are there instead."""
    alias = next((alias for alias in MEANT_NAMES.get(field, ()) if alias in present), None)
    alias = alias or next((name for name in islice(present, MOST_NAMES) if similar_name(str(name), [field])), None)
    if field == "kernel" and alias in _SOURCES:
        return f": an object with `source_code` and `kernel_type`; `{alias}` belongs into it"
    return "" if alias is None else f"; did you mean it by `{alias}`?"


def question(meant: str | None) -> str:
    """The end of a message that asks for what was meant; empty for None."""
    return "" if meant is None else f"; did you mean `{meant}`?"
