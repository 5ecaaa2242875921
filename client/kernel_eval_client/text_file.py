"""Reads a file's text, or raises with the reason why it cannot."""

from __future__ import annotations

from pathlib import Path

from kernel_eval_client.errors import CallerError


def read_text(path: Path) -> str:
    """The file's text without a byte order mark. Raises CallerError for a file that cannot be read."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except IsADirectoryError as error:
        raise CallerError(f"{path} is a folder; `kernel-eval batch {path}` judges what is in it") from error
    except OSError as error:
        raise CallerError(f"{path} cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise CallerError(f"{path} cannot be read: byte {error.start} is not UTF-8; save it as UTF-8") from error
