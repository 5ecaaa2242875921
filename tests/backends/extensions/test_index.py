"""The record of built extensions: found again by the same call, wherever their folder lies."""

from __future__ import annotations

import _testcapi
import shutil
from pathlib import Path
from types import ModuleType

import pytest

from backends.extensions.index import BuiltExtensions

CALL = {"name": "_testcapi", "cpp_sources": ["int f();"], "functions": ["f"]}


@pytest.fixture
def job(tmp_path: Path) -> Path:
    """A job's folder with an extension module that was built in it."""
    folder = tmp_path / "job"
    (folder / "ext" / "made").mkdir(parents=True)
    shutil.copyfile(_testcapi.__file__, folder / "ext" / "made" / "_testcapi.so")
    return folder


def noted(job: Path, key: str | None) -> None:
    extension = ModuleType("calls itself something else")
    extension.__file__ = str(job / "ext" / "made" / "_testcapi.so")
    BuiltExtensions(job / "ext").add(key, extension)


def test_the_same_call_loads_it_where_it_is_now(job: Path, tmp_path: Path) -> None:
    key = BuiltExtensions(job / "ext").key("load_inline", CALL)
    noted(job, key)
    moved = job.rename(tmp_path / "moved")
    there = BuiltExtensions(moved / "ext")
    assert there.key("load_inline", CALL) == key
    extension = there.load(key)
    assert extension is not None
    assert extension.__name__ == "_testcapi"
    assert extension.__file__ == str(moved / "ext" / "made" / "_testcapi.so")


LIBRARY = {"is_python_module": False}
NAMES_OPERATORS = {"cpp_sources": "TORCH_LIBRARY(TORCH_EXTENSION_NAME, m) {}"}
BESIDE = {"sources": ["a.cpp"]}
MACRO = {"cpp_sources": "#include HEADER"}
OWN_FOLDER = {"extra_include_paths": ["."]}
OWN_OPTION = {"extra_cflags": ["-include", "tile.h"]}
JOINED_OPTION = {"extra_cuda_cflags": ["-Xcompiler=-include,tile.h"]}
BINDS = {"cpp_sources": "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {} TORCH_LIBRARY(own, m) {}"}
HEADERS = {"cuda_sources": '#include <cuda_fp16.h>\n#include "cuda_runtime.h"', "extra_include_paths": ["/usr/include"]}


@pytest.mark.parametrize("more", [{}, BINDS, HEADERS, {"build_directory": "chosen"}])
def test_a_module_is_found_under_another_name(
    more: dict[str, object], job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(job)
    there = BuiltExtensions(job / "ext")
    noted(job, there.key("load_inline", CALL | more))
    extension = there.load(there.key("load_inline", CALL | more | {"name": "made_17"}))
    assert extension is not None and extension.__file__ == str(job / "ext" / "made" / "_testcapi.so")


@pytest.mark.parametrize("more", [LIBRARY, NAMES_OPERATORS, BESIDE, MACRO, OWN_FOLDER, OWN_OPTION, JOINED_OPTION])
def test_a_name_counts_where_more_than_the_text_makes_the_code(
    more: dict[str, object], job: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(job)
    (job / "a.cpp").write_text('#include "tile.h"')  # Which may be another by the next call.
    there = BuiltExtensions(job / "ext")
    assert there.key("load", CALL | more) != there.key("load", CALL | more | {"name": "made_17"})


def test_a_name_counts_where_the_source_says_where_headers_are(job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CPATH", str(job / "headers"))  # Whose files it may write anew before the next call.
    there = BuiltExtensions(job / "ext")
    assert there.key("load_inline", CALL) != there.key("load_inline", CALL | {"name": "made_17"})


def test_the_same_text_in_a_temporary_file_is_found(job: Path) -> None:
    there = BuiltExtensions(job / "ext")
    for folder in ("one", "two"):
        (job / folder).mkdir()
        (job / folder / f"{folder}.cpp").write_text("int f();")
    one, two = ({"name": each, "sources": [str(job / each / f"{each}.cpp")]} for each in ("one", "two"))
    assert there.key("load", one) == there.key("load", two)
    (job / "two" / "two.cpp").write_text("int g();")
    assert there.key("load", one) != there.key("load", two)


def test_another_call_builds(job: Path) -> None:
    there = BuiltExtensions(job / "ext")
    noted(job, there.key("load_inline", CALL))
    assert there.load(there.key("load_inline", CALL | {"extra_cflags": ["-O3"]})) is None
    assert there.load(there.key("load", CALL)) is None


def test_files_count_by_what_is_in_them_and_not_by_where_they_are(job: Path, tmp_path: Path) -> None:
    source = job / "a.cpp"
    source.write_text("int f();")
    first = BuiltExtensions(job / "ext").key("load", {"name": "a", "sources": [str(source)]})
    moved = job.rename(tmp_path / "moved")
    assert BuiltExtensions(moved / "ext").key("load", {"name": "a", "sources": [str(moved / "a.cpp")]}) == first
    (moved / "a.cpp").write_text("int g();")
    assert BuiltExtensions(moved / "ext").key("load", {"name": "a", "sources": [str(moved / "a.cpp")]}) != first


@pytest.mark.parametrize("more", [{"build_directory": "/tmp/x"}, {"is_standalone": True}, {"sources": ["none.cpp"]}])
def test_calls_that_are_torchs_own_affair(more: dict[str, object], tmp_path: Path) -> None:
    assert BuiltExtensions(tmp_path).key("load", CALL | more) is None


def test_what_is_built_in_a_folder_of_its_own_choice_moves_with_the_job(job: Path, tmp_path: Path) -> None:
    chosen = job / "chosen"
    (job / "ext" / "made").rename(chosen)
    call = CALL | {"build_directory": str(chosen)}
    key = BuiltExtensions(job / "ext").key("load_inline", call)
    extension = ModuleType("_testcapi")
    extension.__file__ = str(chosen / "_testcapi.so")
    BuiltExtensions(job / "ext").add(key, extension)
    moved = job.rename(tmp_path / "moved")
    there = BuiltExtensions(moved / "ext")
    assert there.key("load_inline", CALL | {"build_directory": str(moved / "chosen")}) == key
    found = there.load(key)
    assert found is not None and Path(str(found.__file__)).samefile(moved / "chosen" / "_testcapi.so")


def test_what_is_gone_is_built_again(job: Path) -> None:
    key = BuiltExtensions(job / "ext").key("load_inline", CALL)
    noted(job, key)
    shutil.rmtree(job / "ext" / "made")
    there = BuiltExtensions(job / "ext")
    assert key is not None and key not in there.files() and there.load(key) is None
