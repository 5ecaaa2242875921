"""Where the project lies on this machine."""

from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
"""The folder that has the packages, `main.py` and `pyproject.toml`."""
