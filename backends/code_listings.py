"""The texts of a kernel's code, out of what its build and its calls have left in its folder. Runs in a builder.

Nothing is compiled for this: PTX and Triton's stages are files, machine code is disassembled.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from backends.binary.disassembler import NoText, disassembled, extracted
from backends.cuda import backend
from backends.extensions import jit_build
from backends.extensions.compiler_driver import PTX
from backends.triton import cache
from domain.listing import Form

MAX_CODES = 16
"""Kernels, variants and extensions of one folder that are told of."""
MAX_CHARS = 1 << 20
"""Of one text; the rest is left out, and said to be."""


@dataclass(frozen=True)
class Found:
    """One text: of which kernel (of which of its variants), in which form, and whether its end was left out."""

    kernel: str
    form: Form
    text: str
    truncated: bool
    variant: str | None = None


@dataclass(frozen=True)
class Lacking:
    """A form that a kernel's code should have, and why it cannot be had."""

    kernel: str
    form: Form
    reason: str


@dataclass(frozen=True)
class _Code:
    """One kernel's, or one extension's: texts that are there, and machine code, by itself or in a library."""

    kernel: str
    texts: dict[Form, list[Path]] = field(default_factory=dict)
    cubins: list[Path] = field(default_factory=list)
    library: Path | None = None
    variant: str | None = None


def listings(folder: Path, forms: Iterable[Form]) -> list[Found | Lacking]:
    """Each of those forms of all code in the folder. Of a form that nothing there can have there is nothing."""
    wanted = list(forms)
    return [
        told
        for number, code in enumerate(_codes(folder))
        if number < MAX_CODES
        for form in wanted
        if (told := _listing(code, form, folder)) is not None
    ]


def _codes(folder: Path) -> Iterator[_Code]:
    yield from _raw(folder)
    yield from _extensions(folder)
    yield from _of_triton(folder)


def _raw(folder: Path) -> Iterator[_Code]:
    if (folder / backend.CUBIN).is_file():
        with suppress(NoText, OSError, ValueError, KeyError, TypeError, RecursionError):
            name = str(json.loads(_read(folder / backend.PLAN, cache.MAX_NOTE_BYTES))["name"])
            yield _Code(name, {Form.PTX: [folder / backend.PTX]}, [folder / backend.CUBIN])


def _extensions(folder: Path) -> Iterator[_Code]:
    for place in sorted((folder / jit_build.FOLDER).glob("*/")):
        device_code = sorted(place.glob(f"*{PTX}"))
        if any(place.glob("*.cuda.o")):  # As torch names the objects of sources with device code.
            for library in sorted(place.glob("*.so")):
                yield _Code(place.name, {Form.PTX: device_code} if device_code else {}, library=library)


def _of_triton(folder: Path) -> Iterator[_Code]:
    for one in cache.compiled(folder):
        texts = {form: [one.file(f".{form}")] for form in (Form.PTX, Form.LLIR, Form.TTGIR, Form.TTIR)}
        variant = f"num_warps={one.num_warps}, num_stages={one.num_stages}"
        yield _Code(one.name, texts, [one.file(".cubin")], variant=variant)


def _listing(code: _Code, form: Form, folder: Path) -> Found | Lacking | None:
    try:
        text = _sass(code, folder) if form is Form.SASS else _text(code, form)
    except NoText as error:
        return Lacking(code.kernel, form, str(error))
    except OSError as error:
        return Lacking(code.kernel, form, f"its file cannot be read: {error.strerror}")
    if text is None:
        return None
    if len(text) <= MAX_CHARS:
        return Found(code.kernel, form, text, truncated=False, variant=code.variant)
    cut = text.rfind("\n", 0, MAX_CHARS) + 1 or MAX_CHARS
    return Found(code.kernel, form, text[:cut], truncated=True, variant=code.variant)


def _text(code: _Code, form: Form) -> str | None:
    if form in code.texts:
        return "\n".join(_read(path, MAX_CHARS + 1) for path in code.texts[form])
    if form is Form.PTX and code.library is not None:
        raise NoText(
            "its PTX was not kept: it was compiled the stock way (`build.headers` says why), in one step; ask for sass"
        )
    return None


def _sass(code: _Code, folder: Path) -> str:
    with tempfile.TemporaryDirectory(dir=folder, prefix="sass-") as scratch:
        cubins = code.cubins if code.library is None else extracted(code.library, Path(scratch))
        if not cubins:
            raise NoText("its library holds no machine code for a GPU")
        return "\n".join(disassembled(cubin, Path(scratch), MAX_CHARS + 1) for cubin in cubins)


def _read(path: Path, limit: int) -> str:
    if not path.is_file():
        raise NoText("its file is not there")
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(limit)
