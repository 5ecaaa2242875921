"""Reads a function's parameter types with the compiler's help, so that typedefs, templates and namespaces need no
parser.

The builder appends a snippet whose template code describes `decltype(&kernel)` in a table of words. The compiler writes
the table into the PTX text, where `read_table` reads it; that of a host function is in its library
(`read_library`). Where the snippet cannot be used (an overloaded kernel), `read_entry` reads what the PTX itself
declares: sizes and floating-point types, but no pointers or half types.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from pathlib import Path

from domain.wire import Wire

_TABLE = "__ke_signature"
_MARK = 0x4B45
_WORDS_EACH = 2
_HOST_MARK = bytes.fromhex("6b65f1a78c2d4e90b3d50f6e17c8a294")
"""Begins a host function's table in the library, which has no other name for it."""

SNIPPET_NAME = "kernel signature"
CALL = "__ke_call"
"""The library's function that calls the host function: arguments in words in, null or an error's text out."""
_BEGIN = f'\n#line 1 "{SNIPPET_NAME}"'
_TYPES, _KERNEL, _HOST_FUNCTION = (
    "\n" + Path(__file__).with_name("signature_snippets").joinpath(f"{name}.cuh").read_text(encoding="utf-8")
    for name in ("types", "kernel", "host_function")
)

_KINDS = {
    "p": "pointer", "v": "void", "b": "bool", "i": "int", "u": "uint", "c": "int", "f": "float", "s": "struct",
    "h": "half", "g": "bfloat16", "4": "float8_e4m3fn", "5": "float8_e5m2", "t": "stream",
}  # fmt: skip
_INTEGERS = {1: "char", 2: "short", 4: "int", 8: "long long"}
_NAMES = {
    "half": "__half",
    "bfloat16": "__nv_bfloat16",
    "float8_e4m3fn": "__nv_fp8_e4m3",
    "float8_e5m2": "__nv_fp8_e5m2",
    "stream": "cudaStream_t",
}


@dataclass(frozen=True)
class Parameter(Wire):
    """One parameter's type. `size` is in bytes, and `target` is a pointer's target type.

    `kind` is a value of `_KINDS`; where only PTX was available, "word" (integer or pointer) or "bytes".
    """

    kind: str
    size: int
    target: Parameter | None = None
    const: bool = False

    @property
    def spelling(self) -> str:
        """The type in C++, as far as it is known."""
        match self.kind:
            case "pointer":
                inner = self.target.spelling if self.target else "?"
                return f"{'const ' if self.const else ''}{inner}*"
            case "int" | "uint":
                return ("unsigned " if self.kind == "uint" else "") + _INTEGERS.get(self.size, f"int{self.size * 8}")
            case "float":
                return "float" if self.size == 4 else "double"
            case "struct":
                return f"struct of {self.size} bytes" if self.size else "struct"
            case "word" | "bytes":
                return f"{self.size}-byte value"
        return _NAMES.get(self.kind, self.kind)


def spell(parameters: list[Parameter]) -> str:
    """The parameter list as text: `(const float*, float*, int)`."""
    return f"({', '.join(parameter.spelling for parameter in parameters)})"


def snippet(kernel: str) -> str:
    """The text to append to the source, so that the PTX contains the parameter types of that kernel."""
    text = (_BEGIN + _TYPES + _KERNEL).replace("KERNEL", kernel)
    return text.replace("TABLE", _TABLE).replace("MARK", f"{_MARK:#x}u")


def host_snippet(function: str) -> str:
    """The text to append to a source with host code, so that its library holds `CALL` and the parameter types."""
    mark = ", ".join(f"{int.from_bytes(_HOST_MARK[at : at + 4], 'little'):#x}u" for at in range(0, 16, 4))
    text = (_BEGIN + _TYPES + _HOST_FUNCTION).replace("KERNEL", function)
    return text.replace("TABLE", _TABLE).replace("MARK", mark).replace("CALL", CALL)


def read_table(ptx: str) -> list[Parameter] | None:
    """The parameters from the snippet's table; None when the PTX holds no such table."""
    table = re.search(rf"\b{_TABLE}\[(\d+)\] = \{{([^}}]*)\}}", ptx)
    if table is None:
        return None
    # PTX omits trailing zero bytes.
    content = bytes(int(byte) for byte in table[2].split(",")).ljust(int(table[1]), b"\0")
    words = [int.from_bytes(content[i : i + 4], "little") for i in range(0, len(content), 4)]
    if len(words) < 2 or words[0] != _MARK or words[-1] != _MARK or len(words) % _WORDS_EACH:
        return None
    return _parameters(words[1:-1])


def read_library(library: bytes) -> list[Parameter]:
    """The parameters of a library's host function. Raises ValueError for a library without `host_snippet`."""
    start = library.index(_HOST_MARK) + len(_HOST_MARK)
    (count,) = struct.unpack_from("<I", library, start)
    return _parameters(list(struct.unpack_from(f"<{count}I", library, start + 4)))


def _parameters(words: list[int]) -> list[Parameter]:
    """The parameters by two words each: first every type, then every pointer's target."""
    half = len(words) // 2
    return [_parameter(type_word, target) for type_word, target in zip(words[:half], words[half:], strict=True)]


def without_table(ptx: str) -> str:
    """The PTX without the snippet's table: the submission's own code."""
    return re.sub(rf"^[^\n]*\b{_TABLE}\[[^\n]*\n", "", ptx, flags=re.MULTILINE)


def _parameter(type_word: int, target: int) -> Parameter:
    kind, size, _ = _word(type_word)
    if kind != "pointer":
        return Parameter(kind, size)
    target_kind, target_size, const = _word(target)
    return Parameter(kind, size, Parameter(target_kind, target_size), const)


def _word(word: int) -> tuple[str, int, bool]:
    """Kind, size and constness from bits 0–7, 9–31 and 8."""
    return _KINDS[chr(word & 0xFF)], word >> 9, bool(word & 256)


def constants(ptx: str) -> dict[str, int]:
    """The `__constant__` variables outside of namespaces, with their sizes in bytes."""
    declared = re.findall(r"\.const\s+\.align\s+\d+\s+\.[a-z](\d+)\s+([A-Za-z]\w*)(?:\[(\d+)\])?", ptx)
    return {name: int(bits) // 8 * int(count or 1) for bits, name, count in declared}


def entries(ptx: str) -> list[str]:
    """The kernels' names in the machine code."""
    return re.findall(r"\.entry\s+([\w$.]+)\s*\(", ptx)


def read_entry(ptx: str, symbol: str) -> list[Parameter]:
    """The parameters of that kernel as its PTX declares them."""
    declaration = re.search(rf"\.entry\s+{re.escape(symbol)}\s*\(([^)]*)\)", ptx)
    declared = re.findall(
        r"\.param\s+(?:\.align\s+\d+\s+)?\.([a-z])(\d+)[^,\[]*(?:\[(\d+)\])?", declaration[1] if declaration else ""
    )
    return [_declared(letter, int(bits) // 8, int(count or 1)) for letter, bits, count in declared]


def _declared(letter: str, size: int, count: int) -> Parameter:
    if letter == "f":
        return Parameter("float", size)
    return Parameter("bytes" if letter == "b" and size == 1 else "word", size * count)
