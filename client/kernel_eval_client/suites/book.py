"""What a suite has found out so far, a line of JSON for each candidate, so that a run that was broken off goes on."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from kernel_eval_client.errors import CallerError
from kernel_eval_client.result import AnswerError, Result
from kernel_eval_client.submission import Submission


def key_of(submission: Submission) -> str:
    """The same for the same request, whatever it is called: a changed source or option is another."""
    return hashlib.sha256(submission.path.encode() + submission.body()).hexdigest()


class Book:
    """Lines are appended at once; of those under one key the last counts. A last line that was cut off is left out."""

    def __init__(self, path: Path, *, again: bool = False) -> None:
        self.path = path
        self.results: dict[str, Result] = {}
        if not again and path.exists():
            self._read()
        try:
            self._file: IO[str] = path.open("w" if again else "a", encoding="utf-8")
        except OSError as error:
            raise CallerError(f"{path} cannot be written: {error}") from error

    def write(self, key: str, problem: str, candidate: str, found: Result | dict[str, Any]) -> None:
        """A result, or in its stead why there is none: that one is tried again next time."""
        line: dict[str, Any] = {"key": key, "problem": problem, "candidate": candidate}
        if isinstance(found, Result):
            self.results[key] = found
            line["result"] = found.raw
        else:
            line["error"] = found
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def __enter__(self) -> Book:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def _read(self) -> None:
        try:
            text = self.path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CallerError(f"{self.path} cannot be read: {error}") from error
        lines = text.splitlines()
        if text and not text.endswith("\n"):
            lines.pop()
            with self.path.open("a", encoding="utf-8") as file:
                file.write("\n")  # So that the next line is one of its own; the broken one is passed over below.
        for number, line in enumerate(lines, 1):
            try:
                wire = json.loads(line)
                if "result" in wire:
                    self.results[wire["key"]] = Result.from_dict(wire["result"])
            except (ValueError, TypeError, KeyError, AnswerError) as error:
                if _is_cut(line):
                    continue
                raise CallerError(
                    f"{self.path}, line {number}: {error}; name another file with --results, or begin anew with --again"
                ) from error


def _is_cut(line: str) -> bool:
    """A line that an earlier run was writing when it ended."""
    return line.startswith('{"key": "') and not line.endswith("}")
