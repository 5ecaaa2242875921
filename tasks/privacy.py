"""What a caller is not told: where things lie on this machine."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from domain.settings import settings

ROOT = Path(__file__).resolve().parent.parent


def without_machine_paths(text: str, folder: Path) -> str:
    """The text with the folders of job, service, project and Python cut down to what a reader can use."""
    text = text.replace(f"{folder}/", "").replace(str(folder), ".")
    text = re.sub(r"/[^\s'\":]*/(?:site|dist)-packages/", "", text)
    text = text.replace(f"{settings().state_dir}/", "").replace(f"{ROOT}/", "")
    for prefix in sorted({sys.prefix, sys.base_prefix, sys.exec_prefix}, key=len, reverse=True):
        text = text.replace(f"{prefix}/", "")
    return text
