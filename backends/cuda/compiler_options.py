"""Translates a request's compiler options, in nvcc's or NVRTC's spelling, into NVRTC's."""

from __future__ import annotations

import re
import shlex
from typing import Any

from domain.fault import KernelFault
from domain.result import Status

_SWITCH = r"(?:=(?:true|false))"
_ALLOWED: dict[str, str] = {
    r"--?std=c\+\+(?:11|14|17|20)": "-std=c++11|14|17|20",
    r"--?use_fast_math": "--use_fast_math",
    rf"--?(?:ftz|prec-div|prec-sqrt|fmad){_SWITCH}": "--ftz= --prec-div= --prec-sqrt= --fmad= (true or false)",
    r"--?maxrregcount=\d{1,3}": "--maxrregcount=N",
    r"-lineinfo|--generate-line-info": "-lineinfo",
    r"--?extra-device-vectorization": "--extra-device-vectorization",
    r"-default-device|--device-as-default-execution-space": "-default-device",
    r"--?restrict|-w": "--restrict -w",
    r"--?diag-suppress=[\d,]+": "--diag-suppress=N",
    r"(?:-Xptxas|--ptxas-options)=(?:-(?:O[0-3]|v|d[ls]cm=c[agsv])[ ,]?)+": "-Xptxas=-O0|1|2|3,-v,-dlcm=…,-dscm=…",
    r"-D[A-Za-z_]\w*(?:=.*)?|--define-macro=[A-Za-z_]\w*(?:=.*)?": "-DNAME[=VALUE]",
    r"-U[A-Za-z_]\w*|--undefine-macro=[A-Za-z_]\w*": "-UNAME",
}
_TAKES_VALUE = re.compile(
    r"-D|-U|-Xptxas|--?(?:std|maxrregcount|ptxas-options|ftz|prec-div|prec-sqrt|fmad|diag-suppress)"
)
_DROPPED: dict[str, str] = {
    r"-O[0-3]?|--optimize=\d": "concerns nvcc's host code; device code is optimised at -O3 always",
    r"--?expt-relaxed-constexpr": "is replaced by --device-as-default-execution-space, NVRTC's nearest",
    r"--?(?:expt-)?extended-lambda": "is left out: NVRTC has no such option; leave __device__ off the lambda",
}
RELAXED = "--device-as-default-execution-space"


def translate(metadata: dict[str, Any]) -> tuple[list[str], list[str]]:
    """NVRTC's options for the request's `compiler_options` (or `compile_options`), and notes about the changes.

    Raises KernelFault (compile_error) for an option that is not allowed, naming those that are.
    """
    options: list[str] = []
    notes: list[str] = []
    for option in _joined(_requested(metadata)):
        reason = _matching(_DROPPED, option)
        if reason is not None:
            notes.append(f"{option} {reason}")
            options += [RELAXED] if "constexpr" in option else []
        elif _matching(_ALLOWED, option) is not None:
            options += _one_by_one(option)
        else:
            allowed = ", ".join([*_ALLOWED.values(), "-O0..3", "--expt-relaxed-constexpr"])
            raise KernelFault(Status.COMPILE_ERROR, f"compiler option '{option}' is not allowed; allowed are {allowed}")
    return list(dict.fromkeys(options)), notes


def _one_by_one(option: str) -> list[str]:
    """Splits the value of `--ptxas-options=`, which NVRTC would pass on as a single option."""
    name, _, value = option.partition("=")
    if name not in ("-Xptxas", "--ptxas-options"):
        return [option]
    return [f"--ptxas-options={part}" for part in re.split("[ ,]+", value) if part]


def _requested(metadata: dict[str, Any]) -> list[str]:
    options = metadata.get("compiler_options") or metadata.get("compile_options") or []
    if isinstance(options, str):
        try:
            return shlex.split(options)
        except ValueError as error:
            raise KernelFault(Status.COMPILE_ERROR, f"compiler options do not parse: {error}") from error
    if not isinstance(options, list) or not all(isinstance(option, str) for option in options):
        raise KernelFault(
            Status.COMPILE_ERROR, 'metadata.compiler_options is a list of texts, such as ["--use_fast_math"]'
        )
    return [option.strip() for option in options if option.strip()]


def _joined(tokens: list[str]) -> list[str]:
    """`-D X=1`, as two tokens or one with a space, becomes `-DX=1`; `-Xptxas -v` becomes `-Xptxas=-v`."""
    joined: list[str] = []
    waiting = None
    for token in (part for text in tokens for part in _split(text)):
        if waiting is not None:
            joined.append(waiting + ("" if waiting in ("-D", "-U") else "=") + token)
            waiting = None
        elif _TAKES_VALUE.fullmatch(token):
            waiting = token
        else:
            joined.append(token)
    return joined + ([waiting] if waiting is not None else [])


def _split(token: str) -> list[str]:
    head, space, tail = token.partition(" ")
    return [head, tail.strip()] if space and _TAKES_VALUE.fullmatch(head) else [token]


def _matching(table: dict[str, str], option: str) -> str | None:
    return next((text for pattern, text in table.items() if re.fullmatch(pattern, option)), None)
