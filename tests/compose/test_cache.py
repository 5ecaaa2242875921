"""What one trial of docker-compose.yml keeps for the next is used only where it is what would be made."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from tests.compose import cache
from tests.compose.project import ROOT

ENGINE = b"Docker version 20.10.24"


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    for name in cache.SOURCES:
        (folder / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    return folder


def test_the_key_of_a_clone_elsewhere_is_the_same(project: Path) -> None:
    assert cache.images_key(project, ENGINE) == cache.images_key(ROOT, ENGINE)


@pytest.mark.parametrize("name", cache.SOURCES)
def test_the_key_changes_with_a_file_that_decides_what_is_installed(project: Path, name: str) -> None:
    with (project / name).open("a", encoding="utf-8") as file:
        file.write("# another version\n")
    assert cache.images_key(project, ENGINE) != cache.images_key(ROOT, ENGINE)


def test_the_key_changes_with_the_engine() -> None:
    assert cache.images_key(ROOT, ENGINE) != cache.images_key(ROOT, b"Docker version 28.2.2")


@pytest.mark.parametrize("name", ["RELEASE", "MIRROR", "PACKAGES"])
def test_both_keys_change_with_the_base(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    before = cache.base_key(), cache.images_key(ROOT, ENGINE)
    monkeypatch.setattr(cache.base, name, "another")
    after = cache.base_key(), cache.images_key(ROOT, ENGINE)
    assert before[0] != after[0] and before[1] != after[1]


def test_images_are_kept_for_the_same_key_alone(tmp_path: Path) -> None:
    image = cache.images(tmp_path, "one") / "image"
    image.touch()
    assert (cache.images(tmp_path, "one") / "image").exists()
    assert not (cache.images(tmp_path, "two") / "image").exists()


def test_images_of_a_trial_that_failed_are_not_used_again(tmp_path: Path) -> None:
    (cache.images(tmp_path, "one") / "image").touch()
    cache.clear(tmp_path)
    assert not (cache.images(tmp_path, "one") / "image").exists()


def test_a_base_of_another_key_is_removed(tmp_path: Path) -> None:
    stale, current = tmp_path / "base-0123456789abcdef.tar", cache.archive(tmp_path)
    stale.touch()
    current.touch()
    assert cache.archive(tmp_path) == current and current.exists()
    assert not stale.exists()


def test_one_trial_at_a_time_has_the_folder(tmp_path: Path) -> None:
    with cache.locked(tmp_path / "new") as first, cache.locked(tmp_path / "new") as second:
        assert first and not second
    with cache.locked(tmp_path / "new") as again:
        assert again
