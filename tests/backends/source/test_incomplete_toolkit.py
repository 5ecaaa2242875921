"""What a worker's compilers lack is the operator's part; what a source asks for by mistake is the source's fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.base import Target
from backends.source.error_report import BUILD_FAILED, fault
from backends.source.incomplete_toolkit import missing_part
from domain.result import Status

LACKS = {
    "a header of CUDA's": ("/tmp/a/k.cu:3:10: fatal error: cuda_fp8.h: No such file or directory", "cuda_fp8.h is"),
    "a library's": ("main.cpp:1:10: fatal error: cublas_v2.h: No such file or directory", "cublas_v2.h is missing"),
    "a header that a package includes": (
        "/env/lib/python3.11/site-packages/tilelang/src/tl_templates/cuda/common.h:5:10: fatal error: nothing.h: "
        "No such file or directory",
        "nothing.h is missing",
    ),
    "a header that the toolkit includes": (
        "/usr/local/cuda-13.0/include/crt/a.h:5:10: fatal error: b.h: No such file or directory",
        "b.h is missing",
    ),
    "torch's CUDA part": (
        "k.cu:3:10: fatal error: ATen/cuda/CUDAConfig.h: No such file or directory",
        "torch has no CUDA part",
    ),
    "CUTLASS": ("k.cu:3:10: fatal error: cutlass/cutlass.h: No such file or directory", "the package nvidia-cutlass"),
    "a library to link": ("/bin/ld: cannot find -lcuda: No such file or directory", "libcuda is missing"),
    "nvcc": ("/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found", "/usr/local/cuda/bin/nvcc is missing"),
    "nvcc as an exception": (
        "FileNotFoundError: [Errno 2] No such file or directory: '/usr/local/cuda/bin/nvcc'",
        "/usr/local/cuda/bin/nvcc is missing",
    ),
    "a step of nvcc's": ("sh: 1: cicc: not found", "cicc is missing"),
    "a step of g++'s": ("g++: fatal error: cannot execute 'cc1plus': execvp: No such file", "cc1plus is missing"),
    "nvcc's host compiler": ("nvcc fatal   : Cannot find compiler 'g++' in PATH", "g++ is missing"),
    "a fit compiler": (
        "/usr/local/cuda/include/crt/host_config.h:143:2: error: #error -- unsupported GNU version! gcc versions later",
        "does not go with",
    ),
    "a new toolkit": ("nvcc fatal   : Unsupported gpu architecture 'compute_103a'", "too old for its GPU"),
}


@pytest.mark.parametrize(("line", "says"), LACKS.values(), ids=LACKS)
def test_what_the_worker_lacks_is_the_operators_part(line: str, says: str) -> None:
    part = missing_part(f"[1/2] nvcc -c k.cu\n{line}\nninja: build stopped\n", "import tilelang")
    assert part is not None and says in part


@pytest.mark.parametrize(
    ("line", "source"),
    [
        ("k.cu:3:10: fatal error: my_header.h: No such file or directory", ""),
        ("k.cu:3:10: fatal error: cuda_helpers.h: No such file or directory", ""),
        ("/usr/bin/ld: cannot find -lmine: No such file or directory", ""),
        ("nvcc fatal   : Unsupported gpu architecture 'sm_10'", "extra_cuda_cflags=['-arch=sm_10']"),
        ('k.cu(3): error: identifier "cuda_fp8.h: No such file" is undefined', ""),
    ],
)
def test_what_the_source_asks_for_is_its_own(line: str, source: str) -> None:
    assert missing_part(f"{line}\n", source) is None


def test_a_build_that_lacks_a_header_is_unsupported(tmp_path: Path) -> None:
    line = "/usr/local/cuda/include/cuda_fp16.h:9:10: fatal error: nv/target: No such file or directory"
    told = fault(
        RuntimeError(f"{BUILD_FAILED} 'e': [1/2] nvcc\n{line}"), "calling f", tmp_path, Target("cuda:0", "sm_90")
    )
    assert told.status is Status.UNSUPPORTED
    assert "nv/target is missing" in told.message and "WORKER_BASE" in told.message
    assert "put what it gives" not in told.message
