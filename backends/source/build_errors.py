"""Finds the line of a compiler's output that says what is wrong, and what its author can do about it."""

from __future__ import annotations

import re

from backends.source.build_hints import ARCHITECTURE, HALVES_OFF, hint_for

_ERROR = re.compile(
    r"^.*(?:\b(?:error\b(?: #\S+)?|fatal) *: *\S"
    r"|undefined reference to|multiple definition of|cannot find -l|: not found$).*$",
    re.MULTILINE,
)
MAX_CHARS = 500
"""Maximum length of a line; the rest is cut."""
_SUMMARY = re.compile(r"ld returned \d+ exit status|assembly aborted due to errors|compilation terminated")
"""Words of a line that only counts or repeats the errors before it."""
_ARCH_OPTION = re.compile(
    r"""-(?:-?gpu-architecture|arch|-?generate-code|gencode)[=\s'",]+[\w=,\[\]]{1,99}|TORCH_CUDA_ARCH_LIST"""
)
_DECLARED = re.compile(r"\W(\w+)\W was not declared in this scope")
_SYMBOL = re.compile(r"undefined symbol: (_Z(\d+)(\w+))")


def first_error(text: str) -> str | None:
    """The first line that names an error, else the first that counts them; None without either.

    Knows the output of nvcc, cicc, ptxas, NVRTC, g++, the linker and ninja.
    """
    lines = [match[0].strip()[:MAX_CHARS] for match in _ERROR.finditer(text)]
    return next((line for line in lines if not _SUMMARY.search(line)), lines[0] if lines else None)


def advice(error: str, log: str = "", source: str = "") -> str | None:
    """Says what to do about this line or message; None where that is not known.

    `log` is the whole output, `source` the submission, in which the option at fault is looked up.
    """
    declared = _DECLARED.search(error)
    if declared and f'm.def("{declared[1]}"' in log:
        return f"declare {declared[1]} in cpp_sources: each of `functions` needs its prototype there"
    hint = hint_for(error, log)
    if hint is None or hint in source:  # The source has that #include.
        return None
    if hint is HALVES_OFF and "-U__CUDA_NO_HALF" in source:
        return None
    if hint is ARCHITECTURE:
        option = _ARCH_OPTION.search(source)
        if source and option is None:
            return None
        return f"remove {option[0] if option else '-arch, -gencode and TORCH_CUDA_ARCH_LIST'}: {hint}"
    symbol = _SYMBOL.search(error)
    return f"{symbol[3][: int(symbol[2])]}: {hint}" if symbol else hint
