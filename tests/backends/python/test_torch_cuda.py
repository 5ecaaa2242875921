"""Kernel type `torch_cuda` as a C++ file: its functions are found or named, and called like a module's."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from domain.result import Status
from tests.backends.extensions.test_jit_build import in_builder, in_runner, with_nvcc, without_gpu
from tests.backends.loading import kernel, refusal, tensor

OWN_MODULE = """
#include <torch/csrc/utils/pybind.h>
// m.def("commented_out", &times);
at::Tensor times(at::Tensor x, double s) { return x; }
PYBIND11_MODULE(its_own_name, m) { m.def("scaled", [](double x, double s) { return x * s; }, "Scales",
                                         pybind11::arg("x"), pybind11::arg("s") = 3.0); }
"""
LIBRARY = """
#include <ATen/ATen.h>
#include <torch/library.h>
static at::Tensor helper(const at::Tensor& x) { return x * 2; }
at::Tensor plus(const at::Tensor& x, double s) { return helper(x) + s; }
TORCH_LIBRARY(of_a_test, m) { m.def("plus(Tensor x, float s=1.0) -> Tensor"); }
TORCH_LIBRARY_IMPL(of_a_test, CPU, m) { m.impl("plus", &plus); }
"""
HALVES = """
#include <Python.h>
#include <cuda_fp16.h>
#include <mma.h>
__global__ void filled(half* y, float x) {
    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, half> sum;
    nvcuda::wmma::fill_fragment(sum, 0.0);
    *y = *y * half(x) + sum.x[0];
}
#if 0
PYBIND11_MODULE(its_own_name, m) { m.def("filled", &filled); }
#endif
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "its_own_name", nullptr, -1, nullptr};
PyMODINIT_FUNC PyInit_its_own_name() { return PyModule_Create(&definition); }
"""
"""What nvcc compiles of half types, and torch's options switch off; bound without headers that take a minute."""
BOUND_BY_MACRO = """
#include <torch/csrc/utils/pybind.h>
#define NAMED(word) #word
#define BIND(function) m.def(NAMED(function), &function);
int64_t twice(at::Tensor x) { return x.dim() * 2; }
int64_t thrice(at::Tensor x) { return x.dim() * 3; }
"""
TENSORS = """
#include <torch/extension.h>
int blocks(int n) { return n / 2; }
void doubled(torch::Tensor x, torch::Tensor out) { at::mul_out(out, x, 2); }
"""


def test_an_operator_of_its_own_library_is_called(tmp_path: Path) -> None:
    given = kernel(LIBRARY, "torch_cuda")
    artifact = in_builder(given, tmp_path)
    assert artifact.facts["entry"] == "function plus"
    executable = in_runner(given, tmp_path, artifact)
    assert executable.call([torch.ones(2), 5.0]).tolist() == [7.0, 7.0]
    assert executable.call([torch.ones(2)]).tolist() == [3.0, 3.0] and not executable.compiled


def test_its_own_python_module_keeps_its_name(tmp_path: Path) -> None:
    given = kernel(OWN_MODULE, "torch_cuda")
    artifact = in_builder(given, tmp_path)
    assert artifact.facts["entry"] == "function scaled"
    assert in_runner(given, tmp_path, artifact).call([4.0]) == 12.0


def test_the_function_that_a_macro_binds_is_called(tmp_path: Path) -> None:
    given = kernel(f"{BOUND_BY_MACRO}\nPYBIND11_MODULE(by_macro, m) {{ BIND(thrice) }}", "torch_cuda")
    artifact = in_builder(given, tmp_path)
    assert artifact.facts["entry"] == "function thrice"
    assert in_runner(given, tmp_path, artifact).call([torch.ones(2, 2)]) == 6


@without_gpu
@with_nvcc
def test_a_published_file_has_nvccs_own_half_types(tmp_path: Path) -> None:
    found = refusal(kernel(HALVES, "torch_cuda", entry_point="filled"), tmp_path)
    assert found.compiled, found.message


@pytest.mark.slow  # A second binding takes as long again.
def test_an_operator_beside_an_empty_python_module_is_called(tmp_path: Path) -> None:
    both = LIBRARY.replace("of_a_test", "beside_a_module") + (
        "#include <torch/csrc/utils/pybind.h>\nPYBIND11_MODULE(beside_it, m) {}"
    )
    given = kernel(both, "torch_cuda")
    executable = in_runner(given, tmp_path, in_builder(given, tmp_path))
    assert executable.call([torch.ones(2), 5.0]).tolist() == [7.0, 7.0]


@pytest.mark.slow  # Torch's whole header takes most of a minute.
def test_functions_over_tensors_are_bound(tmp_path: Path) -> None:
    io: dict[str, Any] = {"args": [tensor("x", 2), tensor("out", 2, role="output")]}
    given = kernel(TENSORS, "torch_cuda", io)
    x, out = torch.ones(2), torch.zeros(2)
    assert in_runner(given, tmp_path, in_builder(given, tmp_path)).call([x, out]) is None
    assert out.tolist() == [2.0, 2.0]


@pytest.mark.parametrize(
    ("source", "metadata", "says"),
    [
        ("#include <torch/extension.h>\nint f(int x) { return x; }", {}, "has no function over torch::Tensor"),
        (f"{TENSORS} torch::Tensor more(torch::Tensor x) {{ return x; }}", {}, "several functions (doubled, more)"),
        (
            "#include <a.h>\nPYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { ALL(m) }",
            {},
            "binds functions by macros: name the",
        ),
        (f"{BOUND_BY_MACRO}\nPYBIND11_MODULE(two, m) {{ BIND(twice) BIND(thrice) }}", {}, "functions (twice, thrice)"),
        (TENSORS, {"functions": ["doubled", "blocks"]}, "several functions (doubled, blocks)"),
        ("#include <torch/extension.h>\nvoid f();", {"compiler_options": ["-I/etc"], "functions": ["f"]}, "-I/etc"),
    ],
)
def test_what_to_call_has_to_be_known(tmp_path: Path, source: str, metadata: dict[str, Any], says: str) -> None:
    fault = refusal(kernel(source, "torch_cuda", **metadata), tmp_path)
    assert fault.status is Status.COMPILE_ERROR and says in fault.message


def test_a_comment_that_begins_like_an_include_is_still_python(tmp_path: Path) -> None:
    artifact = in_builder(kernel("#include <a.h>\ndef kernel_fn(x):\n    return x", "torch_cuda"), tmp_path)
    assert artifact.facts["entry"] == "function kernel_fn"


def test_python_that_does_not_parse_is_still_python(tmp_path: Path) -> None:
    source = "import torch\nCUDA = '''\n#include <torch/extension.h>\n__global__ void k() {}\n'''\ndef kernel_fn(x:\n"
    fault = refusal(kernel(source, "torch_cuda"), tmp_path)
    assert fault.status is Status.COMPILE_ERROR and "SyntaxError" in fault.message and "line 6" in fault.message
