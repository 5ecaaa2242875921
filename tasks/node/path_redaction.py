"""What a caller is not told: where things lie on this machine."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from domain.paths import ROOT
from domain.settings import settings

_PATH = re.compile(r"/[^\s'\":]*")
_PLACE = re.compile(r".*/(?:(?:site|dist)-packages|bench-\w+/job-\w+/\w+)/")
"""Where packages lie; where a build that is kept was made, maybe on a node whose STATE_DIR is another."""


def without_machine_paths(text: str, folder: Path) -> str:
    """The text with the folders of job, service, project and Python cut down to what a reader can use."""
    text = text.replace(f"{folder}/", "").replace(str(folder), ".")
    # Each path is looked at once: a search for places would begin at each of a stranger's slashes.
    text = _PATH.sub(_within_its_place, text)
    text = text.replace(f"{settings().state_dir}/", "").replace(f"{ROOT}/", "")
    for prefix in sorted({sys.prefix, sys.base_prefix, sys.exec_prefix}, key=len, reverse=True):
        text = text.replace(f"{prefix}/", "")
    return text


def _within_its_place(path: re.Match[str]) -> str:
    place = _PLACE.match(path[0])
    return path[0][place.end() :] if place is not None else path[0]
