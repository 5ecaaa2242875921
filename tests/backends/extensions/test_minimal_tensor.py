"""The stand-in for the header of `at::Tensor`: everything that torch's has, each method where it is named."""

from __future__ import annotations

import re
import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest
from torch.utils import cpp_extension

from backends.extensions import minimal_headers, minimal_tensor, toolchain
from backends.extensions.compiler_driver import NOTE

TORCHS = toolchain.torch_include()
GUARDED = re.compile(
    r"^#if defined\(KERNEL_EVAL_HOST\) \|\| defined\(KERNEL_EVAL_METHOD_(\w+)\)\n(.*?)^#endif\n", re.M | re.S
)
INCLUDED = re.compile(r"^#include <ATen/ops/(\w+)\.h>\n", re.MULTILINE)
OPERATORS = "ATen/MethodOperators.h"

METHODS = """#include <torch/types.h>
__global__ void twice(float* p) { *p *= 2; }
at::Tensor f(const at::Tensor& x) {
  auto y = x.abs().clamp_min(0.5).contiguous();
  twice<<<1, 1>>>(y.data_ptr<float>());
  return y.mul_(2).to(at::kHalf).transpose(0, 1) + x.sum();
}
"""


@pytest.fixture(scope="module")
def lean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lean")
    minimal_headers.write(folder, TORCHS)
    minimal_tensor.write(folder, TORCHS)
    return folder


def body(lean: Path) -> str:
    return (lean / minimal_tensor.BODY).read_text(encoding="utf-8")


def test_it_has_all_that_torchs_has(lean: Path) -> None:
    every = GUARDED.sub(lambda found: found[2], body(lean))
    torchs = (TORCHS / minimal_tensor.BODY).read_text(encoding="utf-8")
    assert set(INCLUDED.findall(every)) == set(INCLUDED.findall((TORCHS / OPERATORS).read_text(encoding="utf-8")))
    own = f"#ifndef {minimal_headers.HOST}\n#include <{minimal_tensor.METHODS}>\n#endif\n"
    without = INCLUDED.sub("", every).removeprefix(own).replace("#include <ATen/core/ATen_fwd.h>\n", "")
    assert without == torchs.replace(minimal_tensor.OPERATORS, "")


def test_what_torchs_own_headers_call_is_always_there(lean: Path) -> None:
    guarded = {found[1] for found in GUARDED.finditer(body(lean))}
    assert len(guarded) > 300
    assert {"abs", "softmax", "masked_fill_", "squeeze"} <= guarded
    assert not guarded & {"add", "mul_", "fill_", "neg", "is_contiguous", "contiguous", "index", "index_put_", "select"}


def test_a_header_that_looks_otherwise_stays_as_torch_has_it(tmp_path: Path) -> None:
    other = tmp_path / "include"
    (other / "ATen").mkdir(parents=True)
    (other / "ATen" / "ops").symlink_to(TORCHS / "ATen" / "ops")
    for name in (minimal_tensor.BODY, minimal_tensor.BASE):
        (other / name).parent.mkdir(exist_ok=True)
        text = (TORCHS / name).read_text(encoding="utf-8")
        (other / name).write_text(text.replace("  at::Tensor abs() const;", "  auto abs() const -> at::Tensor;"))
    minimal_tensor.write(tmp_path / "lean", other)
    assert not (tmp_path / "lean").exists()


@pytest.mark.parametrize("missing", ["", "abs"])
@pytest.mark.slow
def test_what_is_named_is_there(lean: Path, tmp_path: Path, missing: str) -> None:
    source = tmp_path / "source.cpp"
    source.write_text("#include <kernel_eval/core.h>\nat::Tensor f(at::Tensor x) { return x.abs().neg() + 1; }\n")
    (tmp_path / minimal_tensor.METHODS).write_text(minimal_tensor.methods({"abs", "neg", "f"} - {missing}))
    command = ["c++", f"-I{tmp_path}", f"-I{lean}", f"-I{TORCHS}", "-std=c++20", "-fsyntax-only", str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) is bool(missing), done.stderr
    assert ("no member named" in done.stderr) is bool(missing)


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")
@pytest.mark.slow
def test_a_device_source_is_compiled_with_it(tmp_path: Path) -> None:
    folder = toolchain.prepare(tmp_path / "toolchains")
    assert folder is not None
    (tmp_path / "k.cu").write_text(METHODS)
    search = [*cpp_extension.include_paths(), sysconfig.get_path("include", scheme="posix_prefix")]
    flags = [*(part for path in search for part in ("-isystem", path)), "-std=c++20", "-arch=sm_90"]
    command = [folder / "bin" / "nvcc", *flags, "-c", tmp_path / "k.cu", "-o", tmp_path / "k.o"]
    subprocess.run(command, check=True)
    assert (tmp_path / f"k.o{NOTE}").read_text() == "lean"
    methods = (tmp_path / "k.o.named" / minimal_tensor.METHODS).read_text()
    assert "METHOD_clamp_min\n" in methods and "METHOD_exp\n" not in methods
