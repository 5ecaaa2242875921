"""Programs of seccomp filters: their instructions, rules that they are made of, and their installation.

A program is a sequence of classic BPF instructions of eight bytes. `entrance` begins it, rules for system calls follow,
and `install_program` ends it: a call without a rule is allowed. The first of two rules for one call counts.
"""

from __future__ import annotations

import ctypes
import errno
import struct
from collections.abc import Iterable, Sequence

from sandbox.isolation.syscalls import MACHINE, number, prctl

ARCHITECTURES = {"x86_64": 0xC000003E, "aarch64": 0xC00000B7}  # AUDIT_ARCH_*
_X32 = 0x40000000

LOAD, IF_EQUAL, IF_AT_LEAST, IF_ANY_BIT, AND, RETURN = 0x20, 0x15, 0x35, 0x45, 0x54, 0x06
_NUMBER_AT, _ARCHITECTURE_AT, _ARGUMENTS_AT = 0, 4, 16
ALLOW, KILL, _ERRNO = 0x7FFF0000, 0x80000000, 0x00050000

ALL_BITS = 0xFFFFFFFF

_MODE_FILTER = 2
PR_SET_SECCOMP = 22

Condition = tuple[list[bytes], int, Sequence[int]]
"""Instructions that load a word, a test, and values of which one must pass."""


def entrance() -> bytes:
    """Ends a process of another architecture; leaves the call's number loaded."""
    start = instruction(LOAD, _ARCHITECTURE_AT)
    start += instruction(IF_EQUAL, ARCHITECTURES[MACHINE], 1, 0) + instruction(RETURN, KILL)
    start += instruction(LOAD, _NUMBER_AT)
    if MACHINE == "x86_64":
        start += instruction(IF_AT_LEAST, _X32, 0, 1) + instruction(RETURN, KILL)
    return start


def rule(name: str, body: list[bytes]) -> bytes:
    """`body`, which ends in a return, for that call; nothing if this machine has no such call."""
    here = number(name)
    return b"" if here is None else instruction(IF_EQUAL, here, 0, len(body)) + b"".join(body)


def only(argument: int, values: Iterable[int]) -> list[bytes]:
    """Allows the call where that argument has one of the values; otherwise EPERM."""
    operands = list(values)
    tests = [instruction(IF_EQUAL, value, len(operands) - place, 0) for place, value in enumerate(operands)]
    return [load(argument), *tests, fail(errno.EPERM), instruction(RETURN, ALLOW)]


def unless(argument: int, values: Iterable[int]) -> list[bytes]:
    """EPERM where that argument has one of the values; otherwise allows the call."""
    return [*guard(([load(argument)], IF_EQUAL, list(values))), instruction(RETURN, ALLOW)]


def guard(*conditions: Condition, code: int = errno.EPERM) -> list[bytes]:
    """Refuses if all conditions hold; otherwise continues with the next instruction."""
    program = [fail(code)]
    for loaded, test, values in reversed(conditions):
        last = len(values) - 1
        tests = [
            instruction(test, value & ALL_BITS, last - place, len(program) if place == last else 0)
            for place, value in enumerate(values)
        ]
        program = [*loaded, *tests, *program]
    return program


def load(argument: int) -> bytes:
    """Loads the lower half of an argument: all but addresses are below 2**32, and both machines are little-endian."""
    return instruction(LOAD, _ARGUMENTS_AT + 8 * argument)


def load_upper(argument: int) -> bytes:
    return instruction(LOAD, _ARGUMENTS_AT + 8 * argument + 4)


def fail(code: int) -> bytes:
    """Ends the call with that errno; 0 pretends success."""
    return instruction(RETURN, _ERRNO | code)


def instruction(code: int, operand: int, if_true: int = 0, if_false: int = 0) -> bytes:
    """One instruction; `if_true` and `if_false` are how many instructions a test skips."""
    return struct.pack("HBBI", code, if_true, if_false, operand)


def install_program(rules: bytes) -> None:
    """Installs the filter for this thread and its children. Needs no_new_privs or CAP_SYS_ADMIN. Raises OSError."""
    program = rules + instruction(RETURN, ALLOW)
    code = ctypes.create_string_buffer(program, len(program))
    header = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(code)))
    prctl(PR_SET_SECCOMP, _MODE_FILTER, ctypes.addressof(header))
