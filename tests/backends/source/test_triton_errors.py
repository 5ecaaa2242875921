"""What Triton's compiler raises is told from other errors, and what it writes to stderr leaves stderr as it was."""

from __future__ import annotations

import subprocess
import sys

import pytest
from triton.runtime.errors import PTXASError

from backends.source.triton_errors import explained, is_rejection
from backends.triton.launch import compile_fault
from domain.paths import ROOT
from sandbox.supervisor.machine_faults import machine_line

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


def test_an_exception_without_a_text_is_no_rejection() -> None:
    class Unreadable:
        def __str__(self) -> str:
            raise ValueError("there is no text")

    assert not is_rejection(RuntimeError(Unreadable()))


def test_a_ptxas_that_the_machine_killed_is_not_blamed_on_the_kernel() -> None:
    killed = PTXASError("`ptxas` failed with error code -9\n`ptxas` stderr:\n\nRepro command: ptxas -v\n")
    fault = compile_fault("scale", killed)
    assert machine_line(fault.log) == "PTXASError: PTXAS error: `ptxas` failed with error code -9"
