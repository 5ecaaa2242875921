"""The line that a failed build is told by, and the advice about it. The texts are those of nvcc 13 and g++ 12."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from backends.base import Target
from backends.source.build_errors import advice, first_error
from backends.source.error_report import fault
from backends.source.module_loader import import_source
from domain.result import Status
from tests.backends.extensions.test_jit_build import pure_cuda, with_nvcc, without_gpu
from tests.backends.loading import kernel, loaded, refusal

LINES = {
    "nvcc's driver": "nvcc fatal   : Unsupported gpu architecture 'sm_70'",
    "an unknown option": "nvcc fatal   : Unknown option '--no-such-flag'",
    "nvcc's front end": 'ext/e/cuda.cu(4): error: identifier "unknown" is undefined',
    "a numbered error": "kernel.cu(3): error #20: identifier is undefined",
    "g++": "ext/e/main.cpp:4:41: error: 'go' was not declared in this scope",
    "g++'s driver": "c++: error: unrecognized command-line option '-fno-such-thing'",
    "a header": "ext/e/cuda.cu:3:10: fatal error: my_header.h: No such file or directory",
    "the assembler": "ptxas error   : Entry function '_Z1kPi' uses too much shared data (0x27100 bytes, 0xc000 max)",
    "the assembler at a line": "ptxas /tmp/t.ptx, line 25; fatal   : Parsing error near '%': syntax error",
    "NVRTC's assembler": "ptxas application ptx input, line 34; error   : Not a name of any known instruction: 'no'",
    "a missing definition": "main.cpp:(.text+0x5): undefined reference to `absent()'",
    "two definitions": "/usr/bin/ld: cuda.cuda.o: in function `launch()': multiple definition of `launch()'",
    "a missing library": "/usr/bin/ld: cannot find -lnosuchlib: No such file or directory",
    "ninja": "ninja: error: 'absent.cu', needed by 'absent.cuda.o', missing and no known rule to make it",
    "a missing compiler": "/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found",
}


@pytest.mark.parametrize("line", LINES.values(), ids=LINES)
def test_the_first_line_that_names_an_error_is_found(line: str) -> None:
    log = f"""[1/2] nvcc -DNAME=1 -Werror -c cuda.cu
FAILED: [code=1] cuda.cuda.o
cuda.cu(2): warning #177-D: variable "error" was declared but never referenced
  {line}
ptxas fatal   : Ptx assembly aborted due to errors
collect2: error: ld returned 1 exit status
main.cpp:9:1: error: another
"""
    assert first_error(log) == line
    assert first_error("collect2: error: ld returned 1 exit status\n") == "collect2: error: ld returned 1 exit status"
    assert first_error("ninja: build stopped: subcommand failed.") is None


ADVICE = {
    "nvcc fatal   : Unsupported gpu architecture 'sm_70'": "remove -arch=sm_70: ",
    "RuntimeError: CUDA error: no kernel image is available for execution on the device": "remove -arch=sm_70: ",
    "CUDA error: invalid device function": "remove -arch=sm_70: ",
    "main.cpp:4:41: error: 'go' was not declared in this scope": "declare go in cpp_sources: ",
    "main.cpp:1:1: error: \u2018__global__\u2019 does not name a type": "CUDA code belongs in cuda_sources",
    'cuda.cu(4): error: no suitable constructor exists to convert from "float" to "__half"': "__float2half",
    LINES["a missing definition"]: "define it, or add its library",
    "ImportError: e.so: undefined symbol: _Z6absentv": "absent: it is declared and called",
    LINES["a header"]: "put what it gives into the source",
    LINES["two definitions"]: "only declare it in the others",
    LINES["a missing library"]: "the worker lacks that library",
}


@pytest.mark.parametrize(("line", "says"), ADVICE.items())
def test_the_advice_says_what_to_do(line: str, says: str) -> None:
    source = 'load_inline("e", cpp, cuda, ["go"], extra_cuda_cflags=["-O3", "-arch=sm_70"])'
    found = advice(line, 'm.def("go", torch::wrap_pybind_function(go), "go");', source)
    assert found is not None and says in found


NVCC_SAYS = {
    "a half from a float": (
        'k.cu(3): error: no instance of function template "nvcuda::wmma::fill_fragment" matches the argument list\n'
        "            argument types are: (nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, 16, __half, void>, "
        "double)",
        "-U__CUDA_NO_HALF_CONVERSIONS__",
    ),
    "a half's operator": (
        'k.cu(2): error: no operator "+=" matches these operands\n            operand types are: half += half',
        "-U__CUDA_NO_HALF_OPERATORS__",
    ),
    "a half's constructor": (
        'k.cu(2): error: no instance of constructor "__half::__half" matches the argument list\n'
        "            argument types are: (float)",
        "__float2half",
    ),
    "data_ptr of CUDA's type": (
        "ImportError: e.so: undefined symbol: _ZNK2at10TensorBase8data_ptrI6__halfEEPT_v",
        "data_ptr<at::Half>()",
    ),
    "another GPU's instruction": (
        "ptxas k.ptx, line 23; error   : Instruction 'wgmma.fence' not supported on .target 'sm_90'",
        "without an option for the architecture",
    ),
    "a float from a half": (
        'k.cu(2): error: no suitable conversion function from "half" (aka "__half") to "float" exists',
        "convert with __half2float",
    ),
    "what CUDA lacks": (
        'k.cu(4): error: no instance of overloaded function "atomicMax" matches the argument list\n'
        "            argument types are: (float *, float)",
        "loop over atomicCAS",
    ),
    "what CUDA 13 removed": ('k.cu(9): error: namespace "cub" has no member "Max"', "cuda::maximum<>"),
    "a shuffle without a mask": ('k.cu(1): error: identifier "__shfl_down" is undefined', "__shfl_down_sync"),
    "a namespace that is not named": ("k.cu(1): error: name must be a namespace name", "<cooperative_groups.h>"),
    "an array whose size is not known": ("k.cu(1): error: expression must have a constant value", "extern __shared__"),
    "shared memory of two types": (
        'k.cu(2): error: declaration is incompatible with previous "s" (declared at line 1)',
        "unsigned char",
    ),
    "too much shared memory": (LINES["the assembler"], "cudaFuncSetAttribute"),
    "torch's header for CUDA": (
        'k.cu(9): error: namespace "at::cuda" has no member "getCurrentCUDAStream"',
        "<ATen/cuda/CUDAContext.h>",
    ),
    "a type's dispatch": (
        'k.cu(8): error: no suitable conversion function from "const at::DeprecatedTypeProperties" exists',
        "x.scalar_type()",
    ),
    "what torch removed": ('k.cu(7): error: identifier "AT_CHECK" is undefined', "TORCH_CHECK"),
    "two bindings": ("ld: k.o: in function `PyInit_e': multiple definition of `PyInit_e'", "leave out `functions`"),
    "CUDA in C++": ("main.cpp:3:5: error: 'threadIdx' was not declared in this scope", "cuda_sources"),
}
"""What nvcc, g++ and the linker say, and words of what their author is told to do."""


@pytest.mark.parametrize(("text", "says"), NVCC_SAYS.values(), ids=NVCC_SAYS)
def test_what_published_sources_get_wrong_has_a_sentence(text: str, says: str) -> None:
    log = f"[1/2] nvcc -c k.cu\n{text}\n1 error detected\n"
    found = advice(first_error(log) or text, log)
    assert found is not None and says in found


def test_the_types_that_explain_an_error_stand_behind_it() -> None:
    error = 'k.cu(2): error: more than one operator "+" matches these operands'
    types = "operand types are: half + float"
    log = f"{error}:\n            built-in operator\n            {types}\n  y[0] = h + 1.0f;\n"
    assert first_error(log) == f"{error}; {types}"


MISLED = {
    "no header has the name": ('k.cu(1): error: namespace "std" has no member "not_there"', None),
    "another function of the source": (
        'k.cu(1): error: no instance of function template "launch" matches the argument list\n'
        "            argument types are: (__half *, int)",
        None,
    ),
    "a type of the source's own": (
        'k.cu(4): error: no operator ">" matches these operands\n            operand types are: Pair > Pair',
        None,
    ),
    "types after the candidates": (
        'k.cu(4): error: no operator "<" matches these operands:\n'
        + '            built-in operator "arithmetic < arithmetic"\n' * 20
        + "            operand types are: __half < __half",
        "-U__CUDA_NO_HALF_OPERATORS__",
    ),
    "torch's own function": (
        "ImportError: e.so: undefined symbol: _ZN2at5ErrorC1ENS_14SourceLocationESs",
        "torch's libraries lack",
    ),
}
"""Errors that resemble others, and whose authors the advice for these would mislead."""


@pytest.mark.parametrize(("text", "says"), MISLED.values(), ids=MISLED)
def test_no_advice_is_better_than_a_wrong_one(text: str, says: str | None) -> None:
    log = f"[1/2] nvcc -c k.cu\n{text}\n\n1 error detected\n"
    found = advice(first_error(log) or text, log)
    assert found is None if says is None else found is not None and says in found


@pytest.mark.parametrize(
    ("error", "source"),
    [
        ("CUDA error: invalid device function", "extra_cuda_cflags=['-O3']"),
        (
            'k.cu(1): error: no suitable constructor exists to convert from "float4" to "__half"',
            'extra_cuda_cflags=["-U__CUDA_NO_HALF_CONVERSIONS__"]',
        ),
    ],
)
def test_what_the_source_does_already_is_not_advised(error: str, source: str) -> None:
    assert advice(error) is not None
    assert advice(error, source=source) is None


@pytest.mark.parametrize("line", [LINES["nvcc's front end"], LINES["an unknown option"], "ValueError: bad shape", ""])
def test_a_line_that_says_all_has_no_advice(line: str) -> None:
    assert advice(line, "a log of it") is None


@pytest.mark.parametrize("option", ["-gencode=arch=compute_70,code=sm_70", "--gpu-architecture=sm_70", "-arch sm_70"])
def test_each_form_of_the_option_is_named(option: str) -> None:
    found = advice("no kernel image is available", source=f"extra_cuda_cflags=['{option}', '-O3']")
    assert found is not None and f"remove {option}: " in found


@without_gpu
@with_nvcc
def test_an_architecture_that_nvcc_refuses_is_in_the_sentence(tmp_path: Path) -> None:
    given = pure_cuda("*p = 1;")
    source = given.source_code.replace('name="pure",', 'name="pure", extra_cuda_cflags=["-arch=sm_10"],')
    failed = refusal(kernel(source, "torch_cuda"), tmp_path)
    assert failed.status is Status.COMPILE_ERROR
    assert "nvcc fatal   : Unsupported gpu architecture 'sm_10' (remove -arch=sm_10: " in failed.message


def test_an_extension_for_another_gpu_names_the_option_at_the_call(tmp_path: Path) -> None:
    (tmp_path / "kernel.py").write_text('FLAGS = ["-gencode=arch=compute_70,code=sm_70"]')
    error = torch.AcceleratorError("CUDA error: no kernel image is available for execution on the device", 209)
    told = fault(error, "calling class ModelNew", tmp_path, Target("cuda:0", "sm_90"))
    assert told.status is Status.RUNTIME_ERROR
    assert "(remove -gencode=arch=compute_70,code=sm_70: " in told.message


def test_inputs_that_are_no_list_are_refused_with_the_form_wanted(tmp_path: Path) -> None:
    given = kernel("def kernel_fn(x): return x\ndef get_inputs():\n    return {torch.randn(4)}\n")
    with pytest.raises(Exception, match=r"get_inputs\(\) returned a set; end it with `return \[\.\.\.\]`, a list"):
        loaded(given, tmp_path).own_inputs(1)


def test_cuda_sent_as_python_says_which_type_takes_it(tmp_path: Path) -> None:
    source = "__global__ void k(float* x) {}\n"
    file = f"#include <cuda_runtime.h>\n{source}"
    assert "CUDA C++ goes with kernel_type cuda" in refusal(kernel(file, "torch_cuda"), tmp_path).message


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (
            "tl.store(x + tl.arange(0, 100), 1.0)",
            "CompilationError: arange's range must be a power of 2 (line 3 of the",
        ),
        ("tl.store(x, y)", "CompilationError: NameError('y is not defined') (line 3 of the kernel: `tl.store(x, y)`)"),
        ("while n > 0: break", "UnsupportedLanguageConstruct: unsupported AST node type: Break (line 3"),
    ],
)
def test_a_kernel_that_triton_refuses_begins_with_the_reason(line: str, says: str, tmp_path: Path) -> None:
    source = f"import triton\nimport triton.language as tl\n\n@triton.jit\ndef k(x, n):\n    n += 1\n    {line}\n"
    module = import_source(source, tmp_path)
    with pytest.raises(Exception) as caught:
        triton.compile(ASTSource(module.k, {"x": "*fp32", "n": "i32"}), target=GPUTarget("cuda", 90, 32))
    told = fault(caught.value, "calling kernel k", tmp_path, Target("cuda:0", "sm_90"))
    assert told.status is Status.COMPILE_ERROR and told.message.startswith(f"calling kernel k: {says}")
