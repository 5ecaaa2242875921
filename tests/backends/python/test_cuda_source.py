"""Kernel type `cuda` with a host function: built by nvcc as a library, called with the contract's arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from backends.cuda.signature import Parameter, read_library
from backends.python.cuda_source import HostFunction
from domain.contract import IOContract
from domain.fault import KernelFault
from domain.result import Status
from tests.backends.contracts import contract, scalar, tensor
from tests.backends.extensions.test_jit_build import H200, in_builder, with_nvcc
from tests.backends.loading import kernel, refusal

SCALE = """
#include <stdexcept>
#include <cuda_fp16.h>
__global__ void empty() {}
namespace { int helper(int n) { return n; } }
extern "C" void solve(const float* x, double* y, unsigned long long n, float factor, __half half, bool throws) {
    if (throws) throw std::runtime_error("no such size");
    __half twice = half * __half(2.f);
    for (unsigned long long i = 0; i < helper(n); i++) y[i] = (x ? x[i] : 0) * factor + (float)twice;
}
"""
X, Y = tensor("x", 3), tensor("y", 3, dtype="float64", role="output")


def arguments(factor: float = 2.5, half: float = 1.5, throws: bool = False) -> list[dict[str, Any]]:
    return [X, Y, scalar("n", 3), scalar("factor", factor), scalar("half", half), scalar("throws", throws)]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library of SCALE, built as a worker without a GPU builds it."""
    folder = tmp_path_factory.mktemp("host")
    given = kernel(SCALE, "cuda", contract(*arguments()), entry_point="solve")
    with pytest.raises(KernelFault) as caught:
        in_builder(given, folder)
    assert caught.value.status is Status.UNSUPPORTED and caught.value.compiled
    assert "compiled but not run" in caught.value.message
    return folder / "ext" / "solve" / "solve.so"


def loaded(library: Path, *args: dict[str, Any]) -> HostFunction:
    parameters = read_library(library.read_bytes())
    return HostFunction("solve", parameters, IOContract.from_wire(contract(*args)), str(library))


def call(function: HostFunction, *args: Any) -> None:
    """Without a driver, CUDA's runtime leaves the same error after every call."""
    if torch.cuda.is_available():
        function(*args)
    else:
        with pytest.raises(RuntimeError, match=r"solve\(\) left cudaErrorInsufficientDriver: CUDA driver version"):
            function(*args)


@with_nvcc
def test_the_contracts_pointers_and_scalars_arrive_in_order(library: Path) -> None:
    function = loaded(library, *arguments())
    x, y = torch.arange(3.0), torch.zeros(3, dtype=torch.float64)
    call(function, x, y, 3, 2.5, 1.5, False)
    assert y.tolist() == [3.0, 5.5, 8.0]
    call(function, x, y, 2, 10.0, 0.0, False)
    assert y.tolist() == [0.0, 10.0, 8.0]
    without_input = loaded(library, {"name": "x", "type": "none"}, *arguments()[1:])
    call(without_input, None, y, 3, 2.5, 1.5, False)
    assert y.tolist() == [3.0, 3.0, 3.0]


@with_nvcc
def test_what_it_throws_is_told(library: Path) -> None:
    function = loaded(library, *arguments())
    x, y = torch.arange(3.0), torch.zeros(3, dtype=torch.float64)
    with pytest.raises(RuntimeError, match=r"solve\(\) threw no such size"):
        function(x, y, 3, 2.5, 1.5, True)


@with_nvcc
def test_the_contract_is_held_against_the_parameters(library: Path) -> None:
    with pytest.raises(KernelFault, match="takes 6 arguments and the contract gives 2") as caught:
        loaded(library, X, Y)
    assert caught.value.status is Status.CONTRACT_MISMATCH and "float, __half, bool)" in caught.value.message
    with pytest.raises(KernelFault, match="argument 2 'n' is a tensor"):
        loaded(library, X, Y, tensor("n", 1), *arguments()[3:])
    with pytest.raises(KernelFault, match="does not fit"):
        loaded(library, *arguments(half=1e6))
    assert loaded(library, tensor("x", 3, dtype="int32"), *arguments()[1:]).notes


@with_nvcc
def test_a_stream_is_handed_in_and_is_no_argument(tmp_path: Path) -> None:
    source = """
    #include <cub/cub.cuh>
    #include <thrust/device_ptr.h>
    __global__ void one(float* y) { *y = 1; }
    namespace mine { void go(float* y, cudaStream_t stream) { one<<<1, 1, 0, stream>>>(y); } }
    """
    given = kernel(source, "cuda", contract(tensor("y", 1, role="output")), entry_point="mine::go")
    assert in_builder(given, tmp_path, H200).facts["parameters"] == "(float*, cudaStream_t)"


@with_nvcc
def test_the_header_that_declares_the_function_is_there_to_include(tmp_path: Path) -> None:
    source = (
        '#include "solve.h"\n__global__ void one(float* y) { *y = 1; }\nvoid solve(float* y) { one<<<1, 1>>>(y); }\n'
    )
    given = kernel(source, "cuda", contract(tensor("y", 1, role="output")), entry_point="solve")
    assert in_builder(given, tmp_path, H200).facts["parameters"] == "(float*)"


@with_nvcc
def test_that_header_hides_no_other_of_its_name(tmp_path: Path) -> None:
    source = """
#include "mma.h"
__global__ void zero(float* y) {
    nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, float> tile;
    nvcuda::wmma::fill_fragment(tile, 0.f);
    nvcuda::wmma::store_matrix_sync(y, tile, 16, nvcuda::wmma::mem_row_major);
}
void mma(float* y) { zero<<<1, 32>>>(y); }
"""
    given = kernel(source, "cuda", contract(tensor("y", 256, role="output")), entry_point="mma")
    assert in_builder(given, tmp_path, H200).facts["parameters"] == "(float*)"


@with_nvcc
def test_an_options_value_is_no_word_of_a_shell(tmp_path: Path) -> None:
    source = """
    #define TEXT(x) TEXT_OF(x)
    #define TEXT_OF(x) #x
    static_assert(SIZE == 8 && sizeof TEXT(WORD) == 6);
    void solve(float* y) {}
    """
    options = ["-DSIZE=(1<<3)", "-DWORD=a;b c"]
    given = kernel(source, "cuda", contract(Y), entry_point="solve", compiler_options=options)
    with pytest.raises(KernelFault) as caught:
        in_builder(given, tmp_path)
    assert caught.value.compiled, caught.value.log


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ("solv", "the source has: helper, solve"),
        ("empty", "it is a kernel: name it in metadata.kernel_name"),
    ],
)
def test_an_entry_that_is_no_function_of_the_host(tmp_path: Path, entry: str, says: str) -> None:
    fault = refusal(kernel(SCALE, "cuda", contract(X), entry_point=entry), tmp_path)
    assert fault.status is Status.COMPILE_ERROR and says in fault.message


@with_nvcc
def test_compile_errors_have_the_sources_lines(tmp_path: Path) -> None:
    given = kernel("\nvoid solve(float* x) { nope(); }", "cuda", contract(X), entry_point="solve")
    with pytest.raises(KernelFault) as caught:
        in_builder(given, tmp_path)
    assert caught.value.status is Status.COMPILE_ERROR and not caught.value.compiled
    assert 'kernel.cu(2): error: identifier "nope" is undefined' in caught.value.message


def test_only_a_host_function_makes_host_code_of_cuda() -> None:
    assert not kernel(SCALE, "cuda").has_host_code
    assert kernel(SCALE, "cuda", entry_point="solve").has_host_code
    assert kernel("", "torch", entry_point="solve").host_function is None


class Library:
    """Notes the first word that a host function gets."""

    def __init__(self) -> None:
        self.given: list[int] = []

    def call(self, words: Any) -> None:
        self.given.append(words[0])


def test_an_argument_that_became_none_with_a_case_is_a_null_pointer() -> None:
    library = Library()
    function = HostFunction("solve", [Parameter("pointer", 8)], IOContract.from_wire(contract(X)), library)
    x = torch.zeros(3)
    function(x)
    function.follow(IOContract.from_wire(contract({"name": "x", "type": "none"})))
    function(None)
    assert library.given == [x.data_ptr(), 0]
