"""Which lines of a source an error text means."""

from __future__ import annotations

from kernel_eval_client.explain import ErrorLine, error_lines, excerpt

NVRTC = """the source does not compile
kernel.cu(3): warning #177-D: variable "y" was declared but never referenced
kernel.cu(7): error: identifier "a" is undefined
kernel.cu(5): error: expected a ";"
kernel.cu(7): error: identifier "b" is undefined
/usr/include/cuda.h(12): error: not ours
"""
CHAINED = """calling kernel k: InterpreterError: NameError("name 'bb' is not defined")
Traceback (most recent call last):
  File "triton/runtime/interpreter.py", line 1349, in __call__
    self.fn(**args)
  File "kernel.py", line 2, in outer
    inner()
  File "kernel.py", line 5, in k
    tl.store(x_ptr, bb)
NameError: name 'bb' is not defined

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "kernel.py", line 9, in run
triton.runtime.errors.InterpreterError: NameError("name 'bb' is not defined")
"""


def test_every_error_of_a_compiler_once_and_in_order() -> None:
    assert error_lines(NVRTC) == [
        ErrorLine(5, 'error: expected a ";"'),
        ErrorLine(7, 'error: identifier "a" is undefined'),
    ]


def test_the_innermost_line_of_the_first_traceback() -> None:
    assert error_lines(CHAINED) == [ErrorLine(5, "NameError: name 'bb' is not defined")]


def test_nothing_is_made_up() -> None:
    assert error_lines("the kernel's process crashed: SIGSEGV (Segmentation fault)") == []
    assert excerpt("one line", ErrorLine(9, "beyond")) == []


def test_a_line_with_its_neighbours() -> None:
    assert excerpt("a\nb\nc\nd\ne\n", ErrorLine(2, "")) == [
        "     1 | a",
        ">    2 | b",
        "     3 | c",
        "     4 | d",
    ]
