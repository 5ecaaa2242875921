"""Where the processes' lines go: a file for each, one file for all, and the console."""

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
KEPT_LINES = 20
NAME_WIDTH = 6


class LogBook:
    """Writes lines as they come; remembers the last of each process for the message about its death."""

    def __init__(self, folder: Path, console: Terminal | None, form: str = CONSOLE) -> None:
        """The files have JSON, or like the console readable lines, by `form` (LOG_FORMAT)."""
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self._console = console
        self._json = form == JSON
        self._files: dict[str, RotatingFileHandler] = {}
        self._last: dict[str, list[str]] = {}

    def line(self, name: str, text: str, *, quiet: bool = False) -> None:
        """One line of that process; a quiet one goes to the process's own file only."""
        line = LogLine.read(name, text)
        shown = line.readable
        self._last[name] = [*self._last.get(name, []), shown][-KEPT_LINES:]
        self._write(name, line.json if self._json else shown)
        if quiet:
            return
        self._write(ALL, line.json if self._json else f"{name:<{NAME_WIDTH}} | {shown}")
        if self._console is not None:
            label = Text(f"{name:<{NAME_WIDTH}} ", style="cyan")
            try:
                self._console.print(label.append_text(Text(shown, style="default")), soft_wrap=True)
            except (OSError, SystemExit):
                # The terminal is closed, or `tee` has gone with the same Ctrl-C (rich makes a SystemExit of that): no
                # reason to give up running jobs. The files have it all.
                self._console = None

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
