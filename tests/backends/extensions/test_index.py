"""The record of built extensions: found again by the same call, wherever their folder lies."""

from __future__ import annotations

import _testcapi
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import pytest

from backends.extensions.index import BuiltExtensions
from domain.paths import ROOT

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


KEY = """
import os, sys
from pathlib import Path
from backends.extensions.index import BuiltExtensions
from domain.paths import ROOT

call = {"name": f"made_{os.getpid()}", "cpp_sources": "int f();", "is_python_module": sys.argv[2] == "module"}
print(BuiltExtensions(Path(sys.argv[1])).key("load_inline", call))
"""


@pytest.mark.parametrize(("kind", "different"), [("module", 1), ("library", 2)])
def test_a_module_that_is_named_after_its_process_is_found_by_another(kind: str, different: int, job: Path) -> None:
    """The operators of a plain library have its name, so that another process asks for others."""
    command = [sys.executable, "-c", KEY, str(job / "ext"), kind]
    keys = {subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout for _ in range(2)}
    assert len(keys) == different


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
