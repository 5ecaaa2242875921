"""A build in another folder than the one that it was made in."""

from __future__ import annotations

from pathlib import Path

from sandbox.scratch import entries

MAX_BYTES = 1 << 20


def relocate(folder: Path, built_in: Path | str) -> None:
    """Triton's cache names its files by where they were when they were made. Links are not followed."""
    for entry in list(entries(folder)):
        if not (entry.name.startswith("__grp__") and entry.name.endswith(".json")):
            continue
        if entry.is_file(follow_symlinks=False) and entry.stat(follow_symlinks=False).st_size <= MAX_BYTES:
            path = Path(entry.path)
            text = path.read_bytes().replace(f"{built_in}/".encode(), f"{folder}/".encode())
            path.write_bytes(text)
