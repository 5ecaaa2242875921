"""Writes the processes' lines to a file for each, one file for all, and the console."""

from __future__ import annotations

import logging
from logging.handlers import RotatingFileHandler
from pathlib import Path

from rich.text import Text

from domain.settings import CONSOLE, JSON
from stack.log_line import LogLine
from stack.terminal import Terminal

ALL = "cuda_eval_server"
"""`tail -f logs/cuda_eval_server.log` shows the API and every worker."""

MAX_BYTES = 32 << 20
BACKUPS = 2
LAST_LINES = 20
NAME_WIDTH = 6


class LogBook:
    """Writes lines as they come; keeps the last lines of each process to explain its death."""

    def __init__(self, folder: Path, console: Terminal | None, form: str = CONSOLE) -> None:
        """`form` (LOG_FORMAT) selects JSON or readable lines for the files."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._console = console
        self._json = form == JSON
        self._files: dict[str, RotatingFileHandler] = {}
        self._last: dict[str, list[str]] = {}

    def line(self, name: str, text: str, *, quiet: bool = False) -> None:
        """Writes one line of a process; a quiet line goes only to the process's own file."""
        line = LogLine.read(name, text)
        readable = line.readable
        self._last[name] = [*self._last.get(name, []), readable][-LAST_LINES:]
        self._write(name, line.json if self._json else readable)
        if quiet:
            return
        self._write(ALL, line.json if self._json else f"{name:<{NAME_WIDTH}} | {readable}")
        if self._console is not None:
            label = Text(f"{name:<{NAME_WIDTH}} ", style="cyan")
            self._console.print(label.append_text(Text(readable, style="default")), soft_wrap=True)

    def last_lines(self, name: str) -> str:
        return "\n".join(self._last.get(name, []))

    def close(self) -> None:
        for file in self._files.values():
            file.close()
        self._files.clear()

    def _write(self, name: str, text: str) -> None:
        if name not in self._files:
            path = self.folder / f"{name}.log"
            self._files[name] = RotatingFileHandler(path, maxBytes=MAX_BYTES, backupCount=BACKUPS, encoding="utf-8")
        self._files[name].emit(logging.makeLogRecord({"msg": text}))
