"""What Triton's compiler writes to stderr reaches its error, and stderr stays where it was."""

from __future__ import annotations

import subprocess
import sys

import pytest

from backends.source.triton_errors import explained, is_rejection
from domain.paths import ROOT

COMPILER = """
import os, threading
from backends.source.triton_errors import explained

scope = {}
exec(compile("def compile(fail): fail()", "triton/compiler/compiler.py", "exec"), scope)

def reject():
    os.write(2, b"submission.py:3:1: error: it is wrong")
    raise RuntimeError("a pass failed")

def abort():
    os.write(2, b"LLVM ERROR: Cannot select")
    os.abort()

def compiled(fail):
    try:
        explained(lambda: scope["compile"](fail))
    except RuntimeError as error:
        print(error)
"""


def test_no_thread_takes_stderr_from_another_and_a_compiler_that_aborts_keeps_its_last_words() -> None:
    several = "threads = [threading.Thread(target=compiled, args=(reject,)) for _ in range(8)]\n"
    several += "for each in threads:\n    each.start()\nfor each in threads:\n    each.join()\n"
    code = f"{COMPILER}\n{several}\ncompiled(abort)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert done.stderr.endswith("LLVM ERROR: Cannot select")


def test_only_what_the_compiler_raises_is_tried_again() -> None:
    calls = []

    def fail() -> None:
        calls.append(None)
        raise RuntimeError("no driver")

    with pytest.raises(RuntimeError, match="no driver") as caught:
        explained(fail)
    assert len(calls) == 1 and not is_rejection(caught.value)
