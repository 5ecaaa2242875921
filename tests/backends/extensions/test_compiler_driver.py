"""Extensions through the toolchain: lean where that does, the stock compiler's word where it does not."""

from __future__ import annotations

import json
import shutil
import stat
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest
from torch.utils import cpp_extension

from backends.extensions import toolchain
from backends.extensions.compiler_driver import NOTE, PTX, RESOURCES

INCLUDES = [*cpp_extension.include_paths(), sysconfig.get_path("include", scheme="posix_prefix")]
DEFINES = ["-DTORCH_EXTENSION_NAME=x", "-DTORCH_API_INCLUDE_EXTENSION_H"]
FLAGS = [*DEFINES, *(part for path in INCLUDES for part in ("-isystem", path)), "-fPIC", "-std=c++20"]

with_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")


@pytest.fixture(scope="module")
def compilers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = toolchain.prepare(tmp_path_factory.mktemp("toolchains"))
    assert folder is not None
    return folder


def compiled(compilers: Path, text: str, folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    source = folder / "main.cpp"
    source.write_text(text)
    command = [str(compilers / "bin" / "c++"), *FLAGS, *more, "-c", str(source), "-o", str(folder / "main.o")]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def note(folder: Path) -> str:
    return (folder / f"main.o{NOTE}").read_text()


@pytest.mark.slow
def test_a_module_is_compiled_lean(compilers: Path, tmp_path: Path) -> None:
    text = "#include <torch/extension.h>\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {}\n"
    done = compiled(compilers, text, tmp_path, "-O3")
    assert (done.returncode, done.stderr) == (0, "")
    assert note(tmp_path) == "lean"


@pytest.mark.slow
def test_a_usual_source_is_compiled_lean(compilers: Path, tmp_path: Path) -> None:
    text = "#include <torch/extension.h>\ntorch::Tensor f(torch::Tensor x) { return torch::zeros_like(x) + x.sum(); }\n"
    done = compiled(compilers, text, tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert note(tmp_path) == "lean"
    assert (tmp_path / "main.o").exists()


LISTS = """#include <torch/extension.h>
using namespace torch::indexing;
std::vector<at::Tensor> f(at::Tensor x, at::Tensor mask, std::vector<at::Tensor> many) {
  const at::OptionalDeviceGuard guard(at::device_of(at::ITensorListRef(many)));
  auto y = torch::cat({x, torch::stack(many).sum(0)});
  y.index_put_({mask}, 0.0);
  c10::List<std::optional<at::Tensor>> at_mask;
  at_mask.push_back(mask);
  at::_foreach_add_(many, 1.0);
  auto parts = at::broadcast_tensors({y, x});
  parts.push_back(at::index(x, at_mask));
  parts.push_back(y.index({Slice(0, 2), None}).contiguous());
  for (auto& part : y.split(2)) parts.push_back(part);
  return parts;
}
"""


GRADIENTS = """#include <torch/extension.h>
using namespace torch::autograd;
struct Doubled : Function<Doubled> {
  static at::Tensor forward(AutogradContext* context, at::Tensor x) {
    context->save_for_backward({x});
    return x + x;
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    return {gradients[0] * 2 + context->get_saved_variables()[0] * 0};
  }
};
at::Tensor f(at::Tensor x) { return Doubled::apply(x); }
"""


@pytest.mark.slow
@pytest.mark.parametrize("text", [LISTS, GRADIENTS], ids=["lists of tensors", "gradients"])
def test_what_needs_more_of_torch_is_compiled_lean(text: str, compilers: Path, tmp_path: Path) -> None:
    done = compiled(compilers, text, tmp_path, "-fsyntax-only")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert note(tmp_path) == "lean"


def test_errors_are_the_stock_compilers(compilers: Path, tmp_path: Path) -> None:
    # A header that is nowhere ends both at once; the lean headers are in neither's text.
    text = "#include <nowhere.h>\n#include <torch/extension.h>\n"
    done = compiled(compilers, text, tmp_path)
    source = tmp_path / "main.cpp"
    stock = ["c++", *FLAGS, "-c", str(source), "-o", str(tmp_path / "stock.o")]
    expected = subprocess.run(stock, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (expected.returncode, expected.stdout, expected.stderr)
    assert note(tmp_path).startswith("stock (the lean headers do not suffice: ")
    assert "nowhere.h" in note(tmp_path)


def test_what_needs_no_torch_is_left_alone(compilers: Path, tmp_path: Path) -> None:
    assert compiled(compilers, "int f() { return 1; }\n", tmp_path).returncode == 0
    assert note(tmp_path).startswith("stock")
    asked = subprocess.run([compilers / "bin" / "c++", "-v"], capture_output=True, text=True, check=True)
    assert "gcc version" in asked.stderr


def test_the_folder_is_made_once_and_for_reading(compilers: Path) -> None:
    before = (compilers / "bin" / "c++").stat().st_mtime_ns
    assert toolchain.prepare(compilers.parent) == compilers
    assert (compilers / "bin" / "c++").stat().st_mtime_ns == before
    assert [path.name for path in compilers.parent.iterdir()] == [compilers.name]
    assert not stat.S_IMODE((compilers / "bin" / "c++").stat().st_mode) & 0o222


KERNELS = """
static __device__ int counter;
namespace { __global__ void hidden(int* p) { *p = counter; } }
template <class T> __global__ void filled(T* p) { *p = 1; }
void launch(int* p) { hidden<<<1, 1>>>(p); filled<float><<<1, 1>>>(nullptr); }
"""


@with_nvcc
def test_what_the_kernels_need_is_noted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source, target = tmp_path / "kernels.cu", tmp_path / "kernels.o"
    source.write_text(f"#warning look\n{KERNELS}")
    (tmp_path / "toolchain.json").write_text(json.dumps({"nvcc": "nvcc", "torch_include": str(tmp_path)}))
    run = [sys.executable, "-m", "backends.extensions.compiler_driver", "nvcc", str(tmp_path)]
    done = subprocess.run([*run, "-arch=sm_90", "-c", str(source), "-o", str(target)], capture_output=True, text=True)
    assert done.returncode == 0 and "look" in done.stderr and "ptxas" not in done.stderr, done.stderr
    assert "counter" in Path(f"{target}{PTX}").read_text(), "nvcc's own flag for its temporary files keeps the PTX"
    kernels = json.loads(Path(f"{target}{RESOURCES}").read_text())
    assert len(kernels) == 2
    for kernel in kernels:
        assert kernel["arch"] == "sm_90" and kernel["registers"] > 0 and kernel["spill_store_bytes"] == 0
