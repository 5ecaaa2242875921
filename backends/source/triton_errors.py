"""Recognises what Triton's compiler raises, and adds to it what the compiler writes to stderr about the source."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from backends.source.build_errors import MAX_CHARS, first_error
from backends.source.module_loader import FILE_NAME

_STAGES = (
    ("triton/runtime/jit.py", "cache_key"),
    ("triton/compiler/compiler.py", "compile"),
    ("triton/backends/nvidia/compiler.py", ""),
)
"""Files and functions of Triton that read and compile a source: whatever they raise is about it or its options."""
_LATE = frozenset({"PTXASError", "OutOfResources"})
"""Errors of Triton's runtime about compiled code: ptxas refused it, or it needs more than a block can have."""
_OF_THE_WORKER = ("Cannot find ", "0 active drivers")
"""Begin Triton's messages about a program, and about a GPU, that the worker lacks."""
_POSITION = re.compile(r"at (\d+):\d+:")
_DIAGNOSTIC = re.compile(
    r"^(?P<file>[^\s:][^:\n]*):(?P<line>\d+):\d+: error: (?P<reason>.*)(?:\n[ \t]*(?P<code>\S.*))?", re.MULTILINE
)
_MAX_BYTES = 1 << 16
"""Bytes of the compiler's output that are searched: the whole program may follow its first error."""
_ONE_AT_A_TIME = threading.RLock()
"""stderr belongs to all threads: two that redirected it in turn would restore each other's."""


def is_rejection(error: BaseException) -> bool:
    """Whether Triton rejected the source. It compiles at the first launch, so such errors may come during a run.

    Errors of many stages have no type of their own.
    """
    for kind in type(error).__mro__:
        if kind.__module__.startswith("triton.compiler") and kind.__name__.endswith("Error"):
            return True
        if kind.__module__ == "triton.runtime.errors" and kind.__name__ in _LATE:
            return True
    # Only a plain text is read: that of a submission's exception may fail.
    text = error.args[0] if type(error) is RuntimeError and error.args else None
    if isinstance(error, (MemoryError, OSError)) or (type(text) is str and text.startswith(_OF_THE_WORKER)):
        return False
    frames = traceback.extract_tb(error.__traceback__)
    return any(
        frame.filename.endswith(file) and frame.name.startswith(function)
        for frame in frames
        for file, function in _STAGES
    )


def reason_of(text: str) -> str:
    """The line of Triton's text that says what is wrong.

    Where the text begins with a position it is the last one; where it quotes ptxas, the first error of that.
    """
    first, _, rest = text.strip().partition("\n")
    return (rest.rpartition("\n")[2] if _POSITION.match(text) else first_error(rest) or first)[:MAX_CHARS]


def kernel_line(text: str) -> str:
    """The line that Triton's text is about, in brackets; empty where it names none.

    The text begins with the position and the lines before it, and ends with the reason.
    """
    if (position := _POSITION.match(text)) is None:
        return ""
    lines = text.rstrip().splitlines()[1:-1]
    quoted = next((line.strip() for line in reversed(lines) if line.strip(" ^")), "")
    return f" (line {position[1]} of the kernel: `{quoted[:MAX_CHARS]}`)"


def explained(compile_it: Callable[[], Any]) -> Any:
    """What `compile_it` returns. A RuntimeError of Triton's compiler gets the first error that it writes to stderr.

    The exception itself says only that a pass failed. Another attempt is needed to read stderr: one whose stderr is
    redirected would lose what a compiler writes that then aborts the process.
    """
    try:
        return compile_it()
    except RuntimeError as error:
        if is_rejection(error) and (found := _DIAGNOSTIC.search(_written_to_stderr(compile_it))):
            error.args = (_sentence(found),)
        raise


def _written_to_stderr(compile_it: Callable[[], Any]) -> str:
    with _ONE_AT_A_TIME, tempfile.TemporaryFile() as output:
        before = os.dup(2)
        os.dup2(output.fileno(), 2)
        try:
            with contextlib.suppress(Exception):
                compile_it()
        finally:
            os.dup2(before, 2)
            os.close(before)
        output.seek(0)
        return output.read(_MAX_BYTES).decode(errors="replace")


def _sentence(found: re.Match[str]) -> str:
    if Path(found["file"]).name != FILE_NAME:
        return found["reason"]
    return f"{found['reason']} (line {found['line']} of the source: `{(found['code'] or '').strip()[:MAX_CHARS]}`)"
