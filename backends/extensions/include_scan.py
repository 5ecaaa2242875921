"""Decides from the names in a C++ or CUDA source which headers it needs in addition to the lean core."""

from __future__ import annotations

import re
from pathlib import Path

from backends.extensions.minimal_headers import CONTEXT, LISTS, OWN, UMBRELLAS

MAX_OWN_HEADERS = 64

_INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*[<"]([^>"\n]+)[>"]', re.MULTILINE)
_COMMENT = re.compile(r"//[^\n]*|/\*.*?\*/", re.DOTALL)
_OF_TORCH = re.compile(r"\btorch\s*::\s*(\w+)")
_OF_ATEN = re.compile(r"\bat\s*::\s*(\w+)")
_CALLED = re.compile(r"(?<![.:>\w])(\w+)\s*\(")
_ANY = re.compile(r"[A-Za-z_]\w*")
_USING_STD = re.compile(r"\busing\s+namespace\s+std\b")
_LIST = re.compile(r"\bI(?:Opt)?TensorListRef\b|\bList<")
_USING = re.compile(r"\busing\s+namespace\s+(?:at|torch)\b")

# Only the whole umbrella header has these, or a header relies on it.
_STOCK = re.compile(
    r"\btorch\s*::\s*(?:nn(?!\s*::\s*functional\b)|optim|data|jit|serialize|save|load|fft|linalg|special|sparse|nested|python|mps|xpu)\b"
    r"|\bbind_module\b|\bat\s*::\s*native\b|\bTORCH_ASSERT_\w+"
)
_STOCK_INCLUDE = re.compile(r"torch/(?:script|nn|optim|data|jit|serialize|python|library|csrc/(?:jit|api))\b")

_FUNCTIONAL = re.compile(r"\btorch\s*::\s*nn\s*::\s*functional\b")
_API = "torch/csrc/api/include/torch"
_OF_FUNCTIONAL = ("nn/functional/*.h", "nn/options/*.h")
"""Header-only functions, which call the operators that they consist of. Modules need the whole umbrella header."""

_WHERE_NAMED = (
    (r"\b(?:py|pybind11|PYBIND11_\w+|PyObject|wrap_pybind_function|THP\w+)\b", f"{OWN}/python.h"),
    (r"\bTHPVariable\w*", "torch/csrc/autograd/python_variable.h"),
    (r"\btorch\s*::\s*autograd\b", "ATen/DeviceAccelerator.h"),  # The next one relies on it.
    (r"\btorch\s*::\s*autograd\b", "torch/csrc/autograd/custom_function.h"),
    (r"\btorch\s*::\s*autograd\s*::\s*(?:grad|backward)\b", "torch/csrc/api/include/torch/autograd.h"),
    (r"\btorch\s*::\s*cuda\b", "torch/csrc/api/include/torch/cuda.h"),
    (r"\bTORCH_LIBRARY\w*", "torch/library.h"),
    (r"\b(?:indexing|TensorIndex|Slice|index(?=\s*\()|index_put_(?=\s*\())\b", "ATen/TensorIndexing.h"),
    (r"\b(?:I(?:Opt)?TensorListRef|IListRef|List|Dict|IValue|ivalue|index_put(?:_|_impl_)?|index(?=\s*\())\b", LISTS),
    (r"\b(?:Optional|Multi)?StreamGuard\b", "c10/core/StreamGuard.h"),
    (r"\b(?:c10|at|torch)\s*::\s*Event\b", "c10/core/Event.h"),
    (r"\b(?:parallel_for|parallel_reduce|get_num_threads)\b", "ATen/Parallel.h"),
    (r"\b(?:TensorArg|CheckedFrom|checkAllSame\w+|checkSame\w+|checkDim|checkContiguous)\b", "ATen/TensorUtils.h"),
    (r"\b(?:IValue|ivalue)\b", "ATen/core/ivalue.h"),
    (r"\bTensorGeometry\b", "ATen/TensorGeometry.h"),
    (r"ATen/Context\.h|\b(?:Context|globalContext|getNumGPUs|manual_seed|NoTF32Guard|\w+GeneratorImpl)\b", CONTEXT),
    (r"\b(?:at|torch)\s*::\s*(?:(?:has|is|get)[A-Z]\w*|init|CPU|CUDA|\w+Backend|Float32\w+|detail)\b", CONTEXT),
    (r"\b(?:infer_size|expand_inplace|expand_outplace|expand_size)\b", "ATen/ExpandUtils.h"),
    (r"(?<!<)<<(?!<)", "ATen/Formatting.h"),
    (r"\bVariable\b", "torch/csrc/autograd/variable.h"),
)
_STANDARD = {
    "atomic": "atomic",
    "bitset": "bitset",
    "chrono": "chrono",
    "complex": "complex",
    "condition_variable": "condition_variable",
    "deque": "deque",
    "exception": "exception",
    "forward_list": "forward_list",
    "fstream|ifstream|ofstream": "fstream",
    "future|async": "future",
    "setw|setprecision|setfill": "iomanip",
    "list": "list",
    "queue|priority_queue": "queue",
    r"mt19937\w*|\w+_distribution|random_device|default_random_engine": "random",
    r"regex\w*": "regex",
    r"set|multiset": "set",
    "stack": "stack",
    "thread|this_thread": "thread",
    r"unordered_set|unordered_multiset": "unordered_set",
    r"variant|visit|monostate": "variant",
}


def includes_for(source: Path, folders: list[Path], lean: Path, torch_include: Path) -> list[str] | None:
    """The headers that this source needs in addition to the core; None where the lean headers do not suit it.

    They do not suit a source without torch's umbrella header, or one that needs all of it. `folders` are the -I of its
    compilation, whose headers are scanned too. `lean` is the folder of the replacements.
    """
    text, included = _with_own_headers(source, [source.parent, *folders])
    if not any(name in UMBRELLAS for name in included):
        return None
    if _STOCK.search(text) or any(_STOCK_INCLUDE.match(name) for name in included):
        return None
    text += _functional(text, torch_include)
    needed = [header for pattern, header in _WHERE_NAMED if re.search(pattern, text)]
    needed = [name for name in needed if (lean / name).is_file() or (torch_include / name).is_file()]
    std = "" if _USING_STD.search(text) else r"std\s*::\s*"
    needed += [header for pattern, header in _STANDARD.items() if re.search(rf"\b{std}(?:{pattern})\b", text)]
    operators = _operators(text, lean, torch_include)
    if LISTS not in needed and any(_take_lists(torch_include / name) for name in operators):
        needed.append(LISTS)
    last = [f"{_API}/nn/functional.h"] if _FUNCTIONAL.search(text) else []
    return [*needed, *operators, *last]


def _functional(text: str, torch_include: Path) -> str:
    """The text of torch's functional headers, where a source calls their functions."""
    if not _FUNCTIONAL.search(text):
        return ""
    headers = [header for pattern in _OF_FUNCTIONAL for header in sorted((torch_include / _API).glob(pattern))]
    return "".join(_COMMENT.sub(" ", header.read_text(encoding="utf-8", errors="replace")) for header in headers)


def _take_lists(header: Path) -> bool:
    """Whether an operator takes a list that its header only declares."""
    return header.is_file() and _LIST.search(header.read_text(encoding="utf-8")) is not None


def _operators(text: str, lean: Path, torch_include: Path) -> list[str]:
    """The headers of all operators in the text. An unqualified call counts too, because of argument-dependent
    lookup."""
    wrapped = set(_OF_TORCH.findall(text))
    names = wrapped | set(_OF_ATEN.findall(text)) | set(_CALLED.findall(text))
    if _USING.search(text):
        names = wrapped = set(_ANY.findall(text))
    # The headers of relu and add declare relu_ and add_out.
    names |= {name.removesuffix("_").removesuffix("_out") for name in names}
    headers = [f"ATen/ops/{name}.h" for name in sorted(names)]
    headers += [f"{OWN}/factories/{name}.h" for name in sorted(wrapped)]
    return [name for name in headers if (lean / name).is_file() or (torch_include / name).is_file()]


def _with_own_headers(source: Path, folders: list[Path]) -> tuple[str, list[str]]:
    """The text of a source together with its own headers, and the names of all its includes."""
    text, pending, visited = "", [source], {source}
    included: list[str] = []
    while pending:
        path = pending.pop()
        code = _COMMENT.sub(" ", path.read_text(encoding="utf-8", errors="replace"))
        names = _INCLUDE.findall(code)
        text, included = text + code, included + names
        own = [folder / name for name in names for folder in [path.parent, *folders]]
        for header in own:
            if header not in visited and len(visited) <= MAX_OWN_HEADERS and header.is_file():
                visited.add(header)
                pending.append(header)
    return text, included
