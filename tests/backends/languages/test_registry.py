"""The languages that the service knows: how a source shows one, and what is said where one is missing."""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

import pytest

from backends.dry_run.child import CACHE_FOLDERS
from backends.languages.language import Language
from backends.languages.registry import LANGUAGES, cache_variables, imported, is_installed, operators_part
from domain.kernel import KernelType
from domain.paths import ROOT
from domain.result import Status
from tests.backends.loading import kernel, loaded, refusal

FOLDER = ROOT / "backends" / "languages"
MAX_LINES = 150
OPTIONAL = [language for language in LANGUAGES if not language.inside_triton]


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.name)
def test_a_language_is_one_short_module(language: Language) -> None:
    assert len((FOLDER / f"{language.name}.py").read_text(encoding="utf-8").splitlines()) < MAX_LINES
    modules = {path.stem for path in FOLDER.glob("[!_]*.py")} - {"language", "registry"}
    assert modules == {each.name for each in LANGUAGES}


@pytest.mark.parametrize("language", OPTIONAL, ids=lambda language: language.name)
def test_it_has_a_dependency_group_for_its_package(language: Language) -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    assert any(needed.startswith(language.package) for needed in groups[language.name])
    assert f"{language.package}==" in (ROOT / "constraints.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("import helion", ["helion"]),
        ("import torch, helion.language as hl", ["helion"]),
        ("    from helion import language", ["helion"]),
        ("from triton.experimental import gluon", ["gluon"]),
        ("from triton.experimental.gluon import language as gl", ["gluon"]),
        ("import tilelang.language as T", ["tilelang"]),
        ("import cutlass.cute as cute", ["cute_dsl"]),
        ("from cuda import tile as ct", ["cuda_tile"]),
        ("import cuda.tile as ct", ["cuda_tile"]),
        ("import triton", []),
        ("import cuda.tiles", []),
        ("from helions import x", []),
        ("# import helion would do", []),
        ("helion = 1", []),
    ],
)
def test_an_import_shows_the_language(line: str, names: list[str]) -> None:
    assert [language.name for language in imported(f"import torch\n{line}\n")] == names


@pytest.mark.parametrize("language", OPTIONAL, ids=lambda language: language.name)
@pytest.mark.parametrize("kernel_type", ["torch", "triton"])
def test_a_language_that_is_not_installed_is_unsupported(language: Language, kernel_type: str, tmp_path: Path) -> None:
    if is_installed(language):
        pytest.skip(f"{language.package} is installed")
    fault = refusal(kernel(f"import {language.module} as dsl\n", kernel_type), tmp_path)
    assert fault.status is Status.UNSUPPORTED and not fault.compiled
    assert f"No module named '{language.module}'" in fault.message
    assert f"LANGUAGES={language.name} docker compose build" in fault.message and language.package in fault.message


@pytest.mark.parametrize("language", LANGUAGES, ids=lambda language: language.name)
def test_a_missing_module_names_its_language_alone(language: Language, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, language.module, None)  # Python says then that there is none.
    part = operators_part(ModuleNotFoundError(f"No module named {language.module!r}", name=language.module))
    assert part is not None and language.title in part
    below = f"{language.module}.nothing"
    assert operators_part(ModuleNotFoundError(f"No module named {below!r}", name=below)) is None


def test_a_module_that_is_there_is_not_missing_because_a_source_says_so() -> None:
    assert operators_part(ModuleNotFoundError("No module named 'triton'", name="triton")) is None


def test_from_a_package_with_other_parts_too() -> None:
    part = operators_part(ImportError("cannot import name 'tile' from 'cuda' (unknown location)", name="cuda"))
    assert part is not None and "LANGUAGES=cuda_tile" in part


def test_a_missing_compiler_is_the_operators_part() -> None:
    part = operators_part(FileNotFoundError("'tileiras' compiler not found, make sure it is available"))
    assert part is not None and "13.2" in part
    assert operators_part(RuntimeError("something else")) is None


def test_a_compiler_that_does_not_know_the_gpu_is_the_operators_part() -> None:
    told = "tileiras: for the --gpu-name option: Cannot find option named 'sm_90'!"
    part = operators_part(RuntimeError(5, told, "--gpu-name sm_90 -O3"))
    assert part is not None and "newer" in part


def test_a_source_that_does_without_the_language_runs(tmp_path: Path) -> None:
    source = """
    try:
        import helion_that_is_not_there
    except ImportError:
        pass
    def kernel_fn(x):
        return x
    """
    assert loaded(kernel(source), tmp_path).entry == "function kernel_fn"


def test_another_missing_module_is_the_sources_fault(tmp_path: Path) -> None:
    assert refusal(kernel("import helion_that_is_not_there\n"), tmp_path).status is Status.COMPILE_ERROR


def test_the_caches_come_with_the_build(tmp_path: Path) -> None:
    for place in cache_variables(tmp_path).values():
        assert Path(place).parent == tmp_path and Path(place).name in CACHE_FOLDERS


def test_kernel_types_of_languages_have_a_module() -> None:
    types = {KernelType.GLUON, KernelType.HELION, KernelType.TILELANG, KernelType.CUTE_DSL}
    assert types < {language.name for language in LANGUAGES}
