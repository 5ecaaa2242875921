"""Removes paths of this machine from texts for clients."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from domain.paths import ROOT
from domain.settings import settings

_PATH = re.compile(r"/[^\s'\":]*")
_FOLDER = re.compile(r".*/(?:(?:site|dist)-packages|worker-\w+/job-\w+/\w+)/")
"""Folders that are removed: those of packages, and those of cached builds, which may come from another node."""


def without_machine_paths(text: str, folder: Path) -> str:
    """The text with the folders of job, service, project and Python removed, so that relative paths remain."""
    text = text.replace(f"{folder}/", "").replace(str(folder), ".")
    # Each path is matched once: an untrusted text may contain any number of slashes.
    text = _PATH.sub(_strip_folder, text)
    text = text.replace(f"{settings().state_dir}/", "").replace(f"{ROOT}/", "")
    for prefix in sorted({sys.prefix, sys.base_prefix, sys.exec_prefix}, key=len, reverse=True):
        text = text.replace(f"{prefix}/", "")
    return text


def _strip_folder(path: re.Match[str]) -> str:
    folder = _FOLDER.match(path[0])
    return path[0][folder.end() :] if folder is not None else path[0]
