"""The results of a suite's run as JSON lines, one for each candidate: an interrupted run continues from them."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import IO, Any

from kernel_eval_client.errors import CallerError
from kernel_eval_client.result import ResponseError, Result
from kernel_eval_client.submission import Submission


def request_key(submission: Submission) -> str:
    """A hash (sha256, in hex) of the request: a changed source or option changes it, a label does not."""
    return hashlib.sha256(submission.path.encode() + replace(submission, label=None).body()).hexdigest()


class ResultLog:
    """The file of results, and `results` by their key. A later line replaces an earlier one with the same key.

    The constructor reads the file and skips a truncated last line; `again` empties the file instead. It raises
    CallerError for a file that it cannot read or write.
    """

    def __init__(self, path: Path, *, again: bool = False) -> None:
        self.path = path
        self.results: dict[str, Result] = {}
        if not again and path.exists():
            self._read()
        try:
            self._file: IO[str] = path.open("w" if again else "a", encoding="utf-8")
        except OSError as error:
            raise CallerError(f"{path} cannot be written: {error}") from error

    def write(self, key: str, problem: str, candidate: str, outcome: Result | dict[str, Any]) -> None:
        """Appends a result, or the error in its place, at once. The next run repeats a candidate with an error."""
        line: dict[str, Any] = {"key": key, "problem": problem, "candidate": candidate}
        if isinstance(outcome, Result):
            self.results[key] = outcome
            line["result"] = outcome.raw
        else:
            line["error"] = outcome
        self._file.write(json.dumps(line) + "\n")
        self._file.flush()

    def __enter__(self) -> ResultLog:
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
                file.write("\n")  # Ends the truncated line; the loop below skips it.
        for number, line in enumerate(lines, 1):
            try:
                wire = json.loads(line)
                if "result" in wire:
                    self.results[wire["key"]] = Result.from_dict(wire["result"])
            except (ValueError, TypeError, KeyError, ResponseError) as error:
                if _is_truncated(line):
                    continue
                raise CallerError(
                    f"{self.path}, line {number}: {error}; name another file with --results, or restart it with --again"
                ) from error


def _is_truncated(line: str) -> bool:
    """Whether an earlier run ended while it wrote this line."""
    return line.startswith('{"key": "') and not line.endswith("}")
