"""A submission's folder is emptied from outside, whatever is in it."""

from pathlib import Path

from sandbox.isolation.scratch_dir import empty


def test_a_folder_is_emptied_and_stays(tmp_path: Path) -> None:
    folder = tmp_path / "runner"
    (folder / "closed" / "inner").mkdir(parents=True)
    (folder / "closed" / "inner" / "file").write_text("x")
    (folder / "closed").chmod(0o500)
    (folder / "link").symlink_to(tmp_path)
    (folder / "file").write_text("x")
    empty(folder)
    assert list(folder.iterdir()) == [] and tmp_path.is_dir()
