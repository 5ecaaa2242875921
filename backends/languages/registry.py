"""The languages inside Python that the service knows, one line each."""

from __future__ import annotations

import importlib.metadata
import traceback
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

from backends.languages import cuda_tile, cute_dsl, gluon, helion, tilelang
from backends.languages.language import Language
from domain.fault import OPERATORS_PART

LANGUAGES: tuple[Language, ...] = (
    gluon.LANGUAGE,
    helion.LANGUAGE,
    tilelang.LANGUAGE,
    cute_dsl.LANGUAGE,
    cuda_tile.LANGUAGE,
)

PACKAGES = tuple(language.package for language in LANGUAGES if not language.inside_triton)
"""Distributions that a worker may have besides its own."""
CACHES = tuple(dict.fromkeys(folder for language in LANGUAGES for folder in language.caches.values()))
"""Folders of their caches below a job's folder."""


def imported(source: str) -> list[Language]:
    """The languages that the source imports, by its text alone."""
    return [language for language in LANGUAGES if language.is_imported(source)]


def is_installed(language: Language) -> bool:
    return _version(language) is not None


def launches_triton(source: str) -> bool:
    """Whether the source imports a language whose kernels Triton compiles and launches."""
    return any(language.codes is None for language in imported(source))


def versions(source: str) -> dict[str, str]:
    """The version of each language that the source imports and that is installed."""
    return {language.name: version for language in imported(source) if (version := _version(language))}


def cache_variables(folder: Path) -> dict[str, str]:
    """The environment by which every language keeps its caches in that folder."""
    return {name: str(folder / place) for language in LANGUAGES for name, place in language.caches.items()}


def before_import(source: str) -> None:
    """Readies the languages that the source imports, in the process that imports it next."""
    for language in imported(source):
        if language.before_import is not None and is_installed(language):
            language.before_import()


def operators_part(error: BaseException) -> str | None:
    """The package that the operator has to add, where the exception means that a language is not installed."""
    if isinstance(error, ImportError):
        return next((_how_to_add(language) for language in LANGUAGES if language.is_missing(error)), None)
    texts = [text for text in error.args if isinstance(text, str)]
    parts = ((sign, part) for language in LANGUAGES for sign, part in language.tools.items())
    return next((part for sign, part in parts if any(sign in text for text in texts)), None)


def _how_to_add(language: Language) -> str:
    if language.inside_triton:
        return f"this worker's Triton has no {language.title}: {OPERATORS_PART} installs a newer {language.package}"
    group = language.name
    return (
        f"this worker has no {language.title} (package {language.package}): {OPERATORS_PART} adds it with "
        f"`LANGUAGES={group} docker compose build`, or with `pip install -c constraints.txt --group {group}`"
    )


def refused(error: BaseException) -> bool:
    """Whether a language's compiler refused the source by this exception."""
    return _is_own(error) or _left_a_compiler(error)


def may_lack_the_gpu(error: BaseException) -> bool:
    """Whether a missing GPU may be why a compiler refused the source: not where a name, an index or a type is wrong."""
    if isinstance(error, AttributeError):
        return _left_a_compiler(error) and not isinstance(error.obj, ModuleType)
    of_a_type = isinstance(error, TypeError) and "NoneType" not in str(error)  # None may be what a GPU would tell.
    certain = _is_own(error) or of_a_type or isinstance(error, NameError | IndexError)
    return not certain and _left_a_compiler(error) and not _left_a_compiler(error, without_gpu=True)


def _is_own(error: BaseException) -> bool:
    prefixes = tuple(prefix for language in LANGUAGES for prefix in language.refusals)
    return any(f"{kind.__module__}.{kind.__qualname__}".startswith(prefixes) for kind in type(error).__mro__)


def _left_a_compiler(error: BaseException, *, without_gpu: bool = False) -> bool:
    named = (language.compilers_without_gpu if without_gpu else language.compilers for language in LANGUAGES)
    compilers = tuple(name for names in named for name in names)
    frames = (frame.f_code for frame, _ in traceback.walk_tb(error.__traceback__))
    return any(f"{code.co_filename}:{code.co_name}".endswith(compilers) for code in frames)


def no_device_signs() -> Iterator[str]:
    """Parts of the languages' messages for a machine without a GPU."""
    return (sign for language in LANGUAGES for sign in language.no_device)


def _version(language: Language) -> str | None:
    try:
        return importlib.metadata.version(language.package)
    except importlib.metadata.PackageNotFoundError:
        return None
