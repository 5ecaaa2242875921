"""Replacements for torch's umbrella headers: the declarations that nearly every extension uses, without all operators.

They are generated once for an installed torch, from its own headers. `backends.extensions.include_scan` adds the other
headers that a source needs.
"""

from __future__ import annotations

import re
from pathlib import Path

OWN = "kernel_eval"
NAMED = "kernel_eval_named.h"
"""A header generated for each source, in a folder of its own, with the headers that the source needs. The replacements
include it."""

UMBRELLAS = ("torch/extension.h", "torch/torch.h", "torch/all.h", "torch/types.h", "ATen/ATen.h", "ATen/Functions.h")
LISTS = f"{OWN}/lists.h"
"""Lists of tensors as operators take them, followed by the interpreter's values and types."""

TYPES = "torch/csrc/api/include/torch/types.h"
FACTORIES = "torch/csrc/autograd/generated/variable_factories.h"

GUARD = "ATen/DeviceGuard.h"
CONTEXT = f"{OWN}/context.h"
"""torch's own `ATen/Context.h`, followed by the hooks of every kind of device."""
_CONTEXT = "ATen/Context.h"
_INCLUDE = re.compile(r"^#include <([^>]+)>\n", re.MULTILINE)
_OF_CONTEXT = re.compile(r"ATen/(?:detail/\w+Hooks\w*|CPUGeneratorImpl|DeviceAccelerator|\w+Backend)\.h")

_LISTS = "#include <ATen/core/IListRef.h>\n"
_DEVICE_OF_LISTS = re.compile(r"^inline [^\n]+ device_of\(ITensorListRef t\) \{$.*?^\}\n", re.MULTILINE | re.DOTALL)

# cmath comes first: without it, abs(float) would resolve to the C library's abs for integers.
_STANDARD = (
    "algorithm array cmath cstdint cstdio cstdlib cstring functional iostream limits map memory mutex numeric optional "
    "sstream stdexcept string tuple type_traits unordered_map utility vector"
)
_CORE = (
    "ATen/core/Tensor.h",
    "ATen/Context.h",
    "ATen/DeviceGuard.h",
    "ATen/Dispatch.h",
    "ATen/ScalarOps.h",
    "ATen/TensorOperators.h",
    "ATen/TracerMode.h",
    "ATen/core/Generator.h",
    "ATen/core/LegacyTypeDispatch.h",
    "ATen/core/grad_mode.h",
    "c10/core/InferenceMode.h",
    "c10/util/Logging.h",
    "c10/util/irange.h",
)
_PYTHON = ("torch/csrc/utils/pybind.h", "torch/csrc/Exceptions.h")

_PER_OPERATOR = "#ifndef AT_PER_OPERATOR_HEADERS\n#define AT_PER_OPERATOR_HEADERS\n#endif\n"

# Like torch::autograd::make_variable, without the header of the autograd engine.
_MAKE_VARIABLE = """namespace torch::kernel_eval {
inline at::Tensor make_variable(at::Tensor data, bool requires_grad = false) {
  if (!data.defined()) return at::Tensor();
  if (data.getIntrusivePtr().use_count() != 1 || !data.getIntrusivePtr()->unique_version()) {
    data = at::Tensor(data.getIntrusivePtr()->shallow_copy_and_detach(0, true));
  }
  auto own = data.unsafeReleaseIntrusivePtr();
  own->set_allow_tensor_metadata_change(true);
  own->set_autograd_meta(nullptr);
  at::Tensor variable(std::move(own));
  if (requires_grad) variable.set_requires_grad(true);
  return variable;
}
}
"""


def write(folder: Path, torch_include: Path) -> None:
    """Writes the replacement headers below `folder`. Raises OSError if the installed torch lacks their originals."""
    types = (torch_include / TYPES).read_text(encoding="utf-8")
    own = folder / OWN
    (own / "factories").mkdir(parents=True)
    _write(own / "core.h", _core(torch_include))
    _write(own / "python.h", "".join(f"#include <{name}>\n" for name in _PYTHON))
    for name, text in _factories((torch_include / FACTORIES).read_text(encoding="utf-8")).items():
        _write(own / "factories" / f"{name}.h", text)
    # torch's own aliases (kFloat32, nullopt, …), in any version.
    aliases = re.sub(r"^\s*#\s*(?:include|pragma)\b.*$", "", types, flags=re.MULTILINE)
    _write(own / "types.h", f"#include <{OWN}/core.h>\n{aliases}\n#include <{NAMED}>\n")
    _write_guard(folder, (torch_include / GUARD).read_text(encoding="utf-8"))
    _write_context(folder, (torch_include / _CONTEXT).read_text(encoding="utf-8"))
    for umbrella in UMBRELLAS:
        _write(folder / umbrella, f"#include <{OWN}/types.h>\n")


def _write_guard(folder: Path, torchs: str) -> None:
    """Writes torch's guard header without lists, which make up a third of these headers' cost. Every operator includes
    it.

    A torch whose header looks different keeps it, and every source then includes the lists.
    """
    guard, count = _DEVICE_OF_LISTS.subn("", torchs)
    overload = _DEVICE_OF_LISTS.search(torchs)
    if overload is None or count != 1 or _LISTS not in guard:
        _write(folder / LISTS, _LISTS)
        return
    _write(folder / GUARD, guard.replace(_LISTS, ""))
    _write(folder / LISTS, f"#include <{GUARD}>\n{_LISTS}namespace at {{\n{overload[0]}}}\n")


def _write_context(folder: Path, torchs: str) -> None:
    """Writes a context header with only some of its includes, and without its own content. Every operator includes
    it."""
    names = [name for name in _INCLUDE.findall(torchs) if not _OF_CONTEXT.fullmatch(name)]
    _write(folder / _CONTEXT, "".join(f"#include <{name}>\n" for name in names))
    _write(folder / CONTEXT, torchs)


def _core(torch_include: Path) -> str:
    torchs = [name for name in _CORE if (torch_include / name).is_file()]
    standard = "".join(f"#include <{name}>\n" for name in _STANDARD.split())
    includes = "".join(f"#include <{name}>\n" for name in torchs)
    deleter = "namespace torch { using Deleter = std::function<void(void*)>; using at::MemoryFormat; }\n"
    return f"{_PER_OPERATOR}{standard}{includes}{_MAKE_VARIABLE}{deleter}"


def _factories(generated: str) -> dict[str, str]:
    """Generates one header, with every overload, for each of `torch::empty` and its like, which wrap `at::empty`'s
    result."""
    overloads: dict[str, list[str]] = {}
    for match in re.finditer(r"^inline at::Tensor (\w+)\(.*?^}$", generated, re.MULTILINE | re.DOTALL):
        overloads.setdefault(match[1], []).append(
            match[0].replace("autograd::make_variable(", "kernel_eval::make_variable(")
        )
    container = "#include <torch/csrc/api/include/torch/detail/TensorDataContainer.h>\n"
    return {
        name: f"#include <ATen/ops/{name}.h>\n{container if name == 'tensor' else ''}"
        + "namespace torch {\n"
        + "\n".join(blocks)
        + "\n}\n"
        for name, blocks in overloads.items()
    }


def _write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    guard = re.sub(r"\W", "_", f"KERNEL_EVAL_{path.parent.name}_{path.name}").upper()
    path.write_text(f"#ifndef {guard}\n#define {guard}\n{text}#endif\n", encoding="utf-8")
