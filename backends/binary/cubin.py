"""Reads a kernel's resources from its machine code: registers, local memory, static shared memory, thread limits,
parameters.

The input is a cubin, the ELF file that the CUDA compilers write. NVIDIA does not document the notes in `.nv.info`;
their numbers are those that `cuobjdump -elf` prints, and a test compares them with the assembler's report
(tests/backends/binary/test_cubin.py). The bytes come from a submission's process, so any defect raises ValueError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace

MAX_SECTIONS = 4096
MAX_KERNELS = 64

_MAGIC = b"\x7fELF\x02\x01"
_FRAME_SIZE, _REGISTERS = 0x11, 0x2F
_MAX_THREADS, _REQUIRED_THREADS = 0x05, 0x10
_PARAMETER, _PARAMETER_OF_LARGE_LIST = 0x17, 0x45
_NUMBERS_FOLLOW = 0x04
_CODE, _NOTES, _SHARED = ".text.", ".nv.info", ".nv.shared."
_RESERVED = ".nv.shared.reserved.0"
RESERVED_SHARED_BYTES = 1024
"""Bytes of a block's shared memory that the system takes from compute capability 8.0 on (CUDA C++ Programming Guide).
From 9.0 on the section's size includes them, which a section for reserved memory indicates."""


@dataclass(frozen=True)
class KernelResources:
    """One kernel's resources: registers and bytes of local memory (stack and spills) a thread, bytes of static shared
    memory a block. `max_threads` is the maximum a block from `__launch_bounds__` (None without it).
    `parameter_bytes` is each parameter's size by its position: the bytes that a launch reads."""

    name: str
    registers: int = 0
    local_bytes: int = 0
    static_shared_bytes: int = 0
    max_threads: int | None = None
    parameter_bytes: Mapping[int, int] = field(default_factory=dict)


@dataclass(frozen=True)
class _Section:
    name: str
    content: bytes
    size: int


def kernels(cubin: bytes, limit: int = MAX_KERNELS) -> list[KernelResources]:
    """The first kernels of one cubin, by name. Raises ValueError for any other file."""
    try:
        return _kernels(cubin)[:limit]
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise ValueError(f"not a cubin: {error}") from error


def _kernels(cubin: bytes) -> list[KernelResources]:
    if cubin[:6] != _MAGIC:
        raise ValueError("not a cubin: no 64-bit ELF file")
    sections, symbols = _sections(cubin)
    counted = any(section.name == _RESERVED for section in sections)
    resources = {
        section.name.removeprefix(_CODE): KernelResources(section.name.removeprefix(_CODE))
        for section in sections
        if section.name.startswith(_CODE)
    }
    noted: set[str] = set()
    for section in sections:
        if section.name.startswith(_SHARED) and (name := section.name.removeprefix(_SHARED)) in resources:
            shared = section.size - (RESERVED_SHARED_BYTES if counted else 0)
            resources[name] = replace(resources[name], static_shared_bytes=max(shared, 0))
        elif section.name == _NOTES:
            for note, numbers in _notes(section.content):
                if note in (_FRAME_SIZE, _REGISTERS) and (name := symbols(numbers[0])) in resources:
                    resources[name] = _with(resources[name], note, numbers[1])
        elif section.name.startswith(f"{_NOTES}.") and (name := section.name.removeprefix(f"{_NOTES}.")) in resources:
            noted.add(name)
            resources[name] = _with_limits(resources[name], section.content)
    # Functions that are called and not inlined have code too, but only kernels have notes of their own.
    return sorted((resources[name] for name in noted), key=lambda kernel: kernel.name)


def _with(one: KernelResources, note: int, number: int) -> KernelResources:
    return replace(one, registers=number) if note == _REGISTERS else replace(one, local_bytes=number)


def _with_limits(one: KernelResources, notes: bytes) -> KernelResources:
    max_threads, sizes = one.max_threads, dict[int, int]()
    for note, numbers in _notes(notes):
        if note in (_MAX_THREADS, _REQUIRED_THREADS):
            max_threads = numbers[0] * numbers[1] * numbers[2]
        elif note in (_PARAMETER, _PARAMETER_OF_LARGE_LIST):
            sizes[numbers[1] & 0xFFFF] = numbers[2] >> (18 if note == _PARAMETER else 0)
    return replace(one, max_threads=max_threads, parameter_bytes=sizes)


def _sections(cubin: bytes) -> tuple[list[_Section], _Symbols]:
    (start,) = struct.unpack_from("<Q", cubin, 0x28)
    entry_size, count, names_at = struct.unpack_from("<HHH", cubin, 0x3A)
    if count > MAX_SECTIONS:
        raise ValueError(f"not a cubin: {count} sections")
    # name, type, flags, address, offset, size, link
    headers = [struct.unpack_from("<IIQQQQI", cubin, start + entry_size * index) for index in range(count)]
    names = _content(cubin, headers[names_at])
    sections = [_Section(_string(names, header[0]), _content(cubin, header), header[5]) for header in headers]
    table = next((index for index, section in enumerate(sections) if section.name == ".symtab"), None)
    if table is None:
        raise ValueError("not a cubin: no symbols")
    return sections, _Symbols(sections[table].content, sections[headers[table][6]].content)


def _content(cubin: bytes, header: tuple[int, ...]) -> bytes:
    without_bytes = header[1] == 8
    return b"" if without_bytes else cubin[header[4] : header[4] + header[5]]


class _Symbols:
    SIZE = 24

    def __init__(self, table: bytes, names: bytes) -> None:
        self._table = table
        self._names = names

    def __call__(self, number: int) -> str:
        (at,) = struct.unpack_from("<I", self._table, self.SIZE * number)
        return _string(self._names, at)


def _string(strings: bytes, at: int) -> str:
    return strings[at : strings.index(b"\0", at)].decode()


def _notes(content: bytes) -> Iterator[tuple[int, tuple[int, ...]]]:
    """The notes that carry 32-bit numbers, with their numbers."""
    at = 0
    while at + 4 <= len(content):
        form, note, size = struct.unpack_from("<BBH", content, at)
        at += 4
        if form == _NUMBERS_FOLLOW:
            yield note, struct.unpack_from(f"<{size // 4}I", content, at)
            at += size
