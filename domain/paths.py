"""Where the project lies on this machine."""

from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The folder that has the packages, `main.py` and `pyproject.toml`."""


def code_of(packages: Iterable[str]) -> bytes:
    """Names and contents of all files of these packages of ours, for a digest: equal where their code is."""
    paths = (path for package in packages for path in sorted((ROOT / package).rglob("*")))
    files = (path for path in paths if path.is_file() and path.parent.name != "__pycache__")
    return b"\0".join(str(path.relative_to(ROOT)).encode() + b"\0" + path.read_bytes() for path in files)
