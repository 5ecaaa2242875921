"""Wraps NVRTC, the CUDA compiler as a library: source text in; machine code, PTX and the whole log out. Needs no
GPU."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cuda.bindings import nvrtc

from domain.fault import InfrastructureFault

PROGRAM_NAME = "kernel.cu"


@dataclass(frozen=True)
class Compilation:
    """The result of one compilation. After a failure `cubin` and `symbols` are empty; `log` is always complete.

    `symbols` maps each requested name expression to its name in the machine code.
    """

    ok: bool
    log: str
    ptx: str = ""
    cubin: bytes = b""
    symbols: dict[str, str] = field(default_factory=dict)


def version() -> str:
    major, minor = _checked(nvrtc.nvrtcVersion())
    return f"{major}.{minor}"


def supported_archs() -> list[int]:
    """The compute capabilities that this compiler supports, times ten: 75, 80, …, 90."""
    return [int(arch) for arch in _checked(nvrtc.nvrtcGetSupportedArchs())[0]]


def compile_source(
    source: str, options: Sequence[str], headers: Mapping[str, str], names: Sequence[str] = ()
) -> Compilation:
    """Compiles for the `-arch=sm_…` among the options; `headers` maps the name of an include to its text.

    Raises MemoryError where the compiler has too little host memory.
    """
    (program,) = _checked(
        nvrtc.nvrtcCreateProgram(
            source.encode(),
            PROGRAM_NAME.encode(),
            len(headers),
            [text.encode() for text in headers.values()],
            [name.encode() for name in headers],
        )
    )
    try:
        for name in names:
            _checked(nvrtc.nvrtcAddNameExpression(program, name.encode()))
        (status,) = nvrtc.nvrtcCompileProgram(program, len(options), [option.encode() for option in options])
        log = _text(nvrtc.nvrtcGetProgramLogSize, nvrtc.nvrtcGetProgramLog, program)
        if status == nvrtc.nvrtcResult.NVRTC_ERROR_OUT_OF_MEMORY:
            raise MemoryError(f"NVRTC has not enough host memory: {log}")
        if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
            return Compilation(ok=False, log=log or f"NVRTC gave {status.name} and no log")
        ptx = _text(nvrtc.nvrtcGetPTXSize, nvrtc.nvrtcGetPTX, program)
        return Compilation(
            ok=True,
            log=log,
            # With -lineinfo NVRTC prefixes the source's name with the current folder, which submissions should not see.
            ptx=ptx.replace(f'"{os.path.join(os.getcwd(), PROGRAM_NAME)}"', f'"{PROGRAM_NAME}"'),
            cubin=_content(nvrtc.nvrtcGetCUBINSize, nvrtc.nvrtcGetCUBIN, program),
            symbols={n: _checked(nvrtc.nvrtcGetLoweredName(program, n.encode()))[0].decode() for n in names},
        )
    finally:
        nvrtc.nvrtcDestroyProgram(program)


def _checked(answer: tuple[Any, ...]) -> tuple[Any, ...]:
    status, *values = answer
    if status != nvrtc.nvrtcResult.NVRTC_SUCCESS:
        raise InfrastructureFault(f"NVRTC gave {status.name} outside a compilation")
    return tuple(values)


def _content(size_of: Any, copy: Any, program: Any) -> bytes:
    (size,) = _checked(size_of(program))
    content = bytes(size)
    _checked(copy(program, content))
    return content


def _text(size_of: Any, copy: Any, program: Any) -> str:
    return _content(size_of, copy, program).rstrip(b"\0").decode(errors="replace")
