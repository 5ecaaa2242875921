"""hashes/ against constraints.txt and the groups of pyproject.toml, and deploy/install-packages by a real pip."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from backends.languages import registry
from domain.paths import ROOT

LANGUAGES = [language.name for language in registry.LANGUAGES if not language.inside_triton]
GROUPS = {
    "api": ["api", "telemetry"],
    "flower": ["flower"],
    "worker": ["worker", "telemetry"],
    **{language: [language] for language in LANGUAGES},
}
"""The dependency groups that each file has."""

_ENTRY = re.compile(r"^(\S.*?) \\\n((?:    --hash=sha256:[0-9a-f]{64}(?: \\)?\n)+)", re.MULTILINE)


def entries(name: str) -> dict[str, Requirement]:
    """The packages of a file; each is of one version and has hashes, and nothing else is in the file."""
    text = (ROOT / "hashes" / f"{name}.txt").read_text(encoding="utf-8")
    assert _ENTRY.sub("", text) == ""
    found = [Requirement(entry) for entry, _ in _ENTRY.findall(text)]
    assert all(re.fullmatch(r"==[\w.]+", str(each.specifier)) for each in found)
    return {canonicalize_name(each.name): each for each in found}


def constraints() -> dict[str, str]:
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    return {
        canonicalize_name(name): version
        for name, _, version in (line.partition("==") for line in lines if line[0] != "#")
    }


@pytest.mark.parametrize("name", [*GROUPS, "pip"])
def test_versions_are_those_of_the_constraints(name: str) -> None:
    known, found = constraints(), entries(name)
    assert found
    assert [each for each, entry in found.items() if each in known and str(entry.specifier) != f"=={known[each]}"] == []
    # Of the CUDA libraries the tested set, made without CUDA, has a few only.
    assert [each for each in found if each not in known and not each.startswith(("nvidia-", "cuda-"))] == []


@pytest.mark.parametrize("name", GROUPS)
def test_all_that_a_group_needs_is_there(name: str) -> None:
    groups = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["dependency-groups"]
    left = [Requirement(each) for group in GROUPS[name] for each in groups[group]]
    found, seen = entries(name), set()
    while left:
        needed = left.pop()
        if needed.marker is not None and not needed.marker.evaluate({"extra": ""}):
            continue
        package = canonicalize_name(needed.name)
        assert package in found and needed.specifier.contains(str(found[package].specifier)[2:], prereleases=True), (
            needed
        )
        if package not in seen:
            seen.add(package)
            try:
                left += map(Requirement, requires(package) or ())
            except PackageNotFoundError:
                continue  # Of another image than this environment is made for.
    assert len(seen) > 10 or name in LANGUAGES


@pytest.mark.parametrize("name", LANGUAGES)
def test_a_language_changes_no_package_of_the_worker(name: str) -> None:
    worker, language = entries("worker"), entries(name)
    assert not set(language) <= set(worker)
    assert [
        each for each in worker.keys() & language.keys() if worker[each].specifier != language[each].specifier
    ] == []


class Image:
    """A folder as the Dockerfiles have it: a package of our own in place of the others, and a pip to install with."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")], check=True)
        wheel = folder / "sample-1.0-py3-none-any.whl"
        with zipfile.ZipFile(wheel, "w") as archive:
            archive.writestr("sample.py", "")
            archive.writestr("sample-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: sample\nVersion: 1.0\n")
            archive.writestr(
                "sample-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
            )
            archive.writestr("sample-1.0.dist-info/RECORD", "")
        self.digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
        (folder / "hashes").mkdir()
        (folder / "constraints.txt").write_text("sample==1.0\n")
        (folder / "pyproject.toml").write_text('[dependency-groups]\napi = ["sample"]\nmore = ["sample"]\n')
        self.expect(self.digest)

    def expect(self, digest: str) -> None:
        (self.folder / "hashes" / "api.txt").write_text(f"sample==1.0 --hash=sha256:{digest}\n")
        (self.folder / "hashes" / "pip.txt").write_text("")

    def install(self, hashes: str) -> subprocess.CompletedProcess[str]:
        environment = {
            "PATH": os.environ["PATH"],
            "PIP": f"{sys.executable} -m pip --python {self.folder}/venv/bin/python",
            "PIP_ARGS": f"--no-index --find-links {self.folder}",
            "PIP_CONFIG_FILE": os.devnull,
            "HASHES": hashes,
        }
        command = ["sh", str(ROOT / "deploy" / "install-packages"), "api", "more"]
        return subprocess.run(
            command,
            cwd=self.folder,
            env=environment,
            capture_output=True,
            text=True,
            check=False,
        )

    @property
    def has_it(self) -> bool:
        return any(self.folder.glob("venv/lib/*/site-packages/sample.py"))


@pytest.fixture
def image(tmp_path: Path) -> Image:
    return Image(tmp_path)


def test_the_file_that_is_named_is_installed(image: Image) -> None:
    done = image.install("on")
    assert done.returncode == 0 and image.has_it, done.stderr


def test_another_file_of_the_same_version_is_not(image: Image) -> None:
    image.expect("0" * 64)
    done = image.install("on")
    assert done.returncode == 1 and not image.has_it
    assert image.digest in done.stderr and "HASHES=off" in done.stderr


@pytest.mark.parametrize("hashes", ["", "no", "On"])
def test_neither_on_nor_off_is_refused(image: Image, hashes: str) -> None:
    done = image.install(hashes)
    assert done.returncode == 1 and not image.has_it and "HASHES is on or off" in done.stderr
