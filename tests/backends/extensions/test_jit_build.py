"""Extensions that a source builds with load_inline: in the builder, loaded in the runner, errors told."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from backends.base import NO_REFERENCE, Artifact, Executable, Target
from backends.extensions import jit_build
from backends.languages.registry import cache_variables
from backends.registry import backend
from domain.fault import KernelFault
from domain.kernel import Kernel
from domain.paths import ROOT
from domain.result import Status
from tests.backends.loading import CPU, SEED, kernel, refusal

BUILDER = """
import json, pathlib, sys
from backends.base import Target, Task
from backends.registry import backend
from domain.fault import KernelFault
from domain.kernel import Kernel
wire, folder, device, arch, *told = json.load(sys.stdin)
kernel = Kernel.from_wire(wire)
try:
    artifact = backend(kernel.kernel_type).build(kernel, pathlib.Path(folder), Target(device, arch), Task(*told))
    answer = {"artifact": [artifact.facts, artifact.deferred, artifact.log, artifact.example]}
except KernelFault as fault:
    answer = {"fault": [fault.status.value, fault.message, fault.log, fault.compiled]}
sys.stdout.flush()
print()
print(json.dumps(answer))
"""

without_gpu = pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
with_nvcc = pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc")

H200 = Target("cuda:0", "sm_90")


def in_builder(
    given: Kernel, folder: Path, target: Target = CPU, example: Any = None, *, gradients: bool = False
) -> Artifact:
    """Built in a process of its own that sees no GPU, as the service does."""
    done = subprocess.run(
        [sys.executable, "-c", BUILDER],
        input=json.dumps([given.to_wire(), str(folder), target.device, target.arch, example, gradients]),
        env={
            **os.environ,
            "CUDA_VISIBLE_DEVICES": "",
            "PYTORCH_NVML_BASED_CUDA_CHECK": "1",
            "PATH": os.defpath,
            "TRITON_CACHE_DIR": str(folder / "triton"),
            **cache_variables(folder),
        },
        capture_output=True,
        text=True,
        check=True,
        cwd=ROOT,
    )
    answer: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    if "fault" in answer:
        status, message, log, compiled = answer["fault"]
        raise KernelFault(Status(status), message, log, compiled=compiled)
    return Artifact(*answer["artifact"])


def in_runner(given: Kernel, folder: Path, artifact: Artifact, target: Target = CPU) -> Executable:
    return backend(given.kernel_type).load(given, folder, target, artifact, NO_REFERENCE, SEED)


PYTHON_MODULE = """
#include <Python.h>
PyObject* function(PyObject*, PyObject* argument);
PyMethodDef methods[] = { {"function", function, METH_O, nullptr}, {} };
PyModuleDef definition = { PyModuleDef_HEAD_INIT, "extension", nullptr, -1, methods };
#define INIT_OF(name) PyInit_##name
#define INIT(name) INIT_OF(name)
PyMODINIT_FUNC INIT(TORCH_EXTENSION_NAME)() { return PyModule_Create(&definition); }
"""
"""An extension's own binding code: torch's headers take a minute to compile, Python's a moment."""


def lean(expression: str, verbose: bool = False, name: str = "lean") -> Kernel:
    """A source whose C++ extension has a function of `x`, without a header of torch's."""
    return kernel(
        f'''
from torch.utils.cpp_extension import load_inline

lean = load_inline(
    name="{name}", no_implicit_headers=True, verbose={verbose},
    cpp_sources="""
{PYTHON_MODULE}
PyObject* function(PyObject*, PyObject* argument) {{
    long x = PyLong_AsLong(argument);
    return PyLong_FromLong({expression});
}}
""")

class ModelNew(nn.Module):
    def forward(self, x):
        return x + lean.function(1)
''',
        "torch_cuda",
    )


def test_built_in_the_builder_and_only_loaded_in_the_runner(tmp_path: Path) -> None:
    given = lean("x + 1", verbose=True, name="only_loaded")
    artifact = in_builder(given, tmp_path)
    assert artifact.facts["extensions"] == ["only_loaded"]
    assert "ninja" in artifact.log or "c++" in artifact.log
    library = tmp_path / "ext" / "only_loaded" / "only_loaded.so"
    before = library.stat().st_mtime_ns
    executable = in_runner(given, tmp_path, artifact)
    assert executable.entry == "class ModelNew"
    assert executable.call([torch.ones(2)]).tolist() == [3.0, 3.0]
    assert library.stat().st_mtime_ns == before


@pytest.mark.parametrize("verbose", [False, True])
def test_a_compile_error_carries_the_compilers_text(verbose: bool, tmp_path: Path) -> None:
    with pytest.raises(KernelFault) as caught:
        in_builder(lean("x + nothing", verbose), tmp_path)
    fault = caught.value
    assert fault.status is Status.COMPILE_ERROR
    assert "Error building extension 'lean'" in fault.message
    assert "ext/lean/main.cpp:" in fault.message
    assert "was not declared in this scope" in fault.message
    assert "PyLong_FromLong(x + nothing)" in fault.log
    assert "kernel.py" in fault.log
    assert str(tmp_path) not in fault.message


@pytest.mark.slow
@without_gpu
def test_torchs_umbrella_header_on_the_cpu(tmp_path: Path) -> None:
    given = kernel(
        """
from torch.utils.cpp_extension import load_inline
source = "torch::Tensor twice(torch::Tensor x) { return x * 2; }"
ext = load_inline("umbrella", source, functions=["twice"])
class ModelNew(nn.Module):
    def forward(self, x): return ext.twice(x)
""",
        "torch_cuda",
    )
    assert in_runner(given, tmp_path, in_builder(given, tmp_path)).call([torch.ones(1)]).tolist() == [2.0]


PURE_CUDA = f'''
from torch.utils.cpp_extension import load_inline

ext = load_inline(
    name="pure", no_implicit_headers=True,
    cpp_sources="""
{PYTHON_MODULE}
void launch();
PyObject* function(PyObject*, PyObject* argument) {{ launch(); return Py_NewRef(argument); }}
""",
    cuda_sources="""
#include <cuda_runtime.h>
INCLUDE
__global__ void nothing(int* p) {{ BODY }}
void launch() {{ nothing<<<1, 1>>>(nullptr); }}
""")
launch = ext.function

class ModelNew(nn.Module):
    def forward(self, x):
        launch(1)
        return x
'''


def pure_cuda(body: str = "", include: str = "") -> Kernel:
    """A source with one CUDA kernel of that body, without a header of torch's."""
    return kernel(PURE_CUDA.replace("INCLUDE", include).replace("BODY", body), "torch_cuda")


@without_gpu
@with_nvcc
def test_cuda_is_compiled_where_it_cannot_run(tmp_path: Path) -> None:
    fault = refusal(pure_cuda("*p = 1;"), tmp_path)
    assert fault.status is Status.UNSUPPORTED
    assert fault.compiled
    assert "compiled but not run: this worker has no GPU" in fault.message


@without_gpu
@with_nvcc
@pytest.mark.parametrize("own", ["", 'extra_cuda_cflags=["-G"],', 'extra_cuda_cflags=["-lineinfo", "-O2"],'])
def test_device_code_has_its_lines(own: str, tmp_path: Path) -> None:
    given = pure_cuda("*p = 1;")
    given = dataclasses.replace(given, source_code=given.source_code.replace('name="pure",', f'name="pure", {own}'))
    assert refusal(given, tmp_path).compiled
    commands = (tmp_path / "ext" / "pure" / "build.ninja").read_text()
    assert commands.count("-lineinfo") == (0 if "-G" in own else 1)
    if "-G" not in own:  # What that makes is packed.
        assert b".debug_line" in (tmp_path / "ext" / "pure" / "cuda.cuda.o").read_bytes()


@without_gpu
@with_nvcc
def test_cuda_errors_are_found_where_it_cannot_run(tmp_path: Path) -> None:
    fault = refusal(pure_cuda("*p = unknown;"), tmp_path)
    assert fault.status is Status.COMPILE_ERROR
    assert 'identifier "unknown" is undefined' in fault.message


@without_gpu
@with_nvcc
@pytest.mark.skipif(torch.version.cuda is not None, reason="a torch with CUDA has these headers")
@pytest.mark.parametrize("include", ["#include <cublas_v2.h>", "#include <ATen/cuda/CUDAConfig.h>"])
def test_cuda_that_needs_what_this_torch_lacks(include: str, tmp_path: Path) -> None:
    fault = refusal(pure_cuda(include=include), tmp_path)
    assert fault.status is Status.UNSUPPORTED
    assert not fault.compiled
    assert f"{include.partition('<')[2].rstrip('>')} is missing)" in fault.message


@without_gpu
@with_nvcc
def test_a_header_that_nobody_has_is_the_sources_fault(tmp_path: Path) -> None:
    fault = refusal(pure_cuda(include="#include <my_header.h>"), tmp_path)
    assert fault.status is Status.COMPILE_ERROR
    assert "my_header.h" in fault.message


@without_gpu
@with_nvcc
def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    source = (
        "from torch.utils.cpp_extension import load\next = load('absent', ['absent.cu'])\ndef kernel_fn(x): return x"
    )
    fault = refusal(kernel(source, "torch_cuda"), tmp_path)
    assert fault.status is Status.COMPILE_ERROR
    assert "absent.cu" in fault.message


@without_gpu
def test_cuda_without_a_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(jit_build, "cuda_home", lambda: None)
    fault = refusal(pure_cuda(), tmp_path)
    assert fault.status is Status.UNSUPPORTED
    assert not fault.compiled
    assert "nvcc" in fault.message


@without_gpu
@with_nvcc
def test_cuda_that_is_built_by_the_constructor(tmp_path: Path) -> None:
    source = pure_cuda().source_code.replace("ext = load", "def build(): return load")
    source = source.replace("launch = ext.function", "")
    source += "\n    def __init__(self):\n        super().__init__()\n        self.ext = build()\n"
    fault = refusal(kernel(source, "torch_cuda"), tmp_path)
    assert fault.status is Status.UNSUPPORTED
    assert fault.compiled


@pytest.mark.parametrize(
    ("arch", "listed"), [("sm_90", "9.0"), ("sm_90a", "9.0a"), ("sm_100", "10.0"), ("sm_86", "8.6")]
)
def test_architectures(arch: str, listed: str) -> None:
    assert jit_build.torch_arch(arch) == listed


@without_gpu
@with_nvcc
def test_an_instruction_of_the_architecture_alone_compiles(tmp_path: Path) -> None:
    assert refusal(pure_cuda('asm volatile("wgmma.fence.sync.aligned;");'), tmp_path).compiled


def test_a_source_that_insists_on_a_gpu_is_built_by_the_runner(tmp_path: Path) -> None:
    source = "torch.cuda.get_device_name(0)\ndef kernel_fn(x): return x"
    artifact = in_builder(kernel(source, "torch_cuda"), tmp_path, H200)
    assert artifact.deferred is not None
    assert "GPU" in artifact.deferred


VECTOR_ADD = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

cuda_source = """
#include <torch/extension.h>
#include <c10/cuda/CUDAStream.h>

__global__ void add(const float* a, const float* b, float* out, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) out[i] = a[i] + b[i] PLUS;
}

torch::Tensor add_cuda(torch::Tensor a, torch::Tensor b) {
    auto out = torch::empty_like(a);
    int n = a.numel();
    add<<<(n + 255) / 256, 256, 0, c10::cuda::getCurrentCUDAStream()>>>(
        a.data_ptr<float>(), b.data_ptr<float>(), out.data_ptr<float>(), n);
    return out;
}
"""
cpp_source = "torch::Tensor add_cuda(torch::Tensor a, torch::Tensor b);"
ext = load_inline(name="vector_add", cpp_sources=cpp_source, cuda_sources=cuda_source, functions=["add_cuda"])

class ModelNew(nn.Module):
    def forward(self, a, b):
        return ext.add_cuda(a, b)

def get_inputs():
    return [torch.randn(1000).cuda(), torch.randn(1000)]
'''


@pytest.mark.gpu
def test_cuda_built_in_the_builder_runs_on_the_gpu(tmp_path: Path) -> None:
    given = kernel(VECTOR_ADD.replace("PLUS", ""), "torch_cuda")
    artifact = in_builder(given, tmp_path, H200)
    assert artifact.deferred is None
    library = tmp_path / "ext" / "vector_add" / "vector_add.so"
    before = library.stat().st_mtime_ns
    executable = in_runner(given, tmp_path, artifact, H200)
    assert library.stat().st_mtime_ns == before
    inputs = executable.own_inputs(1)
    assert inputs is not None
    torch.testing.assert_close(executable.call(inputs), inputs[0] + inputs[1])


@pytest.mark.gpu
def test_cuda_that_does_not_compile(tmp_path: Path) -> None:
    with pytest.raises(KernelFault) as caught:
        in_builder(kernel(VECTOR_ADD.replace("PLUS", "+ unknown"), "torch_cuda"), tmp_path, H200)
    assert caught.value.status is Status.COMPILE_ERROR
    assert 'identifier "unknown" is undefined' in caught.value.message


@pytest.mark.gpu
def test_cuda_in_a_source_that_insists_on_a_gpu(tmp_path: Path) -> None:
    given = kernel(
        "capability = torch.cuda.get_device_capability()\ndef kernel_fn(x): return x.cuda() * 2", "torch_cuda"
    )
    artifact = in_builder(given, tmp_path, H200)
    assert artifact.deferred is not None
    assert in_runner(given, tmp_path, artifact, H200).call([torch.ones(1)]).tolist() == [2.0]
