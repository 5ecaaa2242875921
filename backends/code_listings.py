"""Lists the texts of a kernel's code from the files that its build and its calls left. Runs in a builder.

It compiles nothing: PTX and Triton's stages are files, and machine code is disassembled.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from backends.binary.disassembler import NoText, disassemble, extract_cubins
from backends.cuda import backend
from backends.extensions import jit_build
from backends.extensions.compiler_driver import PTX
from backends.languages.language import CodeFiles
from backends.languages.registry import LANGUAGES
from backends.triton import cache
from domain.listing import Form

MAX_CODES = 16
"""Maximum number of kernels, variants and extensions of one folder that are listed."""
MAX_CHARS = 1 << 20
"""Maximum characters of one text; a longer one is marked as truncated."""


@dataclass(frozen=True)
class CodeText:
    """One text: its kernel (and variant), its form, and whether it was truncated."""

    kernel: str
    form: Form
    text: str
    truncated: bool
    variant: str | None = None


@dataclass(frozen=True)
class MissingText:
    """A form that a kernel's code should have, and why it is unavailable."""

    kernel: str
    form: Form
    reason: str


def listings(folder: Path, forms: Iterable[Form]) -> list[CodeText | MissingText]:
    """The requested forms of all code in the folder; forms that a kind of code never has are skipped."""
    requested = list(forms)
    return [
        listing
        for number, code in enumerate(_codes(folder))
        if number < MAX_CODES
        for form in requested
        if (listing := _listing(code, form, folder)) is not None
    ]


def _codes(folder: Path) -> Iterator[CodeFiles]:
    yield from _raw(folder)
    yield from _extensions(folder)
    yield from _of_triton(folder)
    for language in LANGUAGES:
        if language.codes is not None:
            yield from language.codes(folder)


def _raw(folder: Path) -> Iterator[CodeFiles]:
    if (folder / backend.CUBIN).is_file():
        with suppress(NoText, OSError, ValueError, KeyError, TypeError, RecursionError):
            name = str(json.loads(_read(folder / backend.PLAN, cache.MAX_NOTE_BYTES))["name"])
            yield CodeFiles(name, {Form.PTX: [folder / backend.PTX]}, [folder / backend.CUBIN])


def _extensions(folder: Path) -> Iterator[CodeFiles]:
    for place in sorted((folder / jit_build.FOLDER).glob("*/")):
        device_code = sorted(place.glob(f"*{PTX}"))
        if any(place.glob("*.cuda.o")):  # torch names the objects of sources with device code like this.
            for library in sorted(place.glob("*.so")):
                yield CodeFiles(place.name, {Form.PTX: device_code} if device_code else {}, library=library)


def _of_triton(folder: Path) -> Iterator[CodeFiles]:
    for compilation in cache.list_compilations(folder):
        texts = {form: [compilation.file(f".{form}")] for form in (Form.PTX, Form.LLIR, Form.TTGIR, Form.TTIR)}
        variant = f"num_warps={compilation.num_warps}, num_stages={compilation.num_stages}"
        yield CodeFiles(compilation.name, texts, [compilation.file(".cubin")], variant=variant)


def _listing(code: CodeFiles, form: Form, folder: Path) -> CodeText | MissingText | None:
    try:
        text = _sass(code, folder) if form is Form.SASS else _text(code, form)
    except NoText as error:
        return MissingText(code.kernel, form, str(error))
    except OSError as error:
        return MissingText(code.kernel, form, f"its file cannot be read: {error.strerror}")
    if text is None:
        return None
    if len(text) <= MAX_CHARS:
        return CodeText(code.kernel, form, text, truncated=False, variant=code.variant)
    cut = text.rfind("\n", 0, MAX_CHARS) + 1 or MAX_CHARS
    return CodeText(code.kernel, form, text[:cut], truncated=True, variant=code.variant)


def _text(code: CodeFiles, form: Form) -> str | None:
    if form in code.texts:
        return "\n".join(_read(path, MAX_CHARS + 1) for path in code.texts[form])
    if form is Form.PTX and code.library is not None:
        raise NoText("no PTX was stored: nvcc compiled it in one step; request sass")
    return None


def _sass(code: CodeFiles, folder: Path) -> str:
    with tempfile.TemporaryDirectory(dir=folder, prefix="sass-") as scratch:
        cubins = code.cubins if code.library is None else extract_cubins(code.library, Path(scratch))
        if not cubins:
            raise NoText("its library holds no machine code for a GPU")
        return "\n".join(disassemble(cubin, Path(scratch), MAX_CHARS + 1) for cubin in cubins)


def _read(path: Path, limit: int) -> str:
    if not path.is_file():
        raise NoText("its file is not there")
    with path.open(encoding="utf-8", errors="replace") as file:
        return file.read(limit)
