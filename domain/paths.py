"""Where the project lies on this machine."""

from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The folder that has the packages, `main.py` and `pyproject.toml`."""


def code_of(packages: Iterable[str]) -> bytes:
    """The content of all files of these packages of ours, for a digest: equal where their code is."""
    files = (path for package in packages for path in sorted((ROOT / package).rglob("*")) if path.is_file())
    return b"\0".join(path.read_bytes() for path in files if path.parent.name != "__pycache__")
