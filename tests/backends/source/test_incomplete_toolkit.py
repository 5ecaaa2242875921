"""What a worker's compilers lack is the operator's part; what a source asks for by mistake is the source's fault."""

from __future__ import annotations

import sysconfig
from pathlib import Path

import pytest
import torch
from torch.utils import cpp_extension

from backends.base import Target
from backends.source.error_report import BUILD_FAILED, fault
from backends.source.incomplete_toolkit import missing_part
from domain.fault import KernelFault, may_pass_again
from domain.result import Lack, Status
from tests.backends.extensions.test_jit_build import with_nvcc

LACKS = {
    "a header of CUDA's": ("/tmp/a/k.cu:3:10: fatal error: cuda_fp8.h: No such file or directory", "cuda_fp8.h is"),
    "a library's": ("main.cpp:1:10: fatal error: cublas_v2.h: No such file or directory", "cublas_v2.h is missing"),
    "a header that a package of the toolkit's includes": (
        "HOME/lib/site-packages/nvidia/cu13/include/a.h:1:10: fatal error: nothing.h: No such file or directory",
        "nothing.h is missing",
    ),
    "a header that the toolkit includes": (
        "HOME/cuda-13.0/include/crt/a.h:1:10: fatal error: nothing.h: No such file or directory",
        "nothing.h is missing",
    ),
    "torch's CUDA part": (
        "k.cu:3:10: fatal error: ATen/cuda/CUDAConfig.h: No such file or directory",
        "torch has no CUDA part",
    ),
    "CUTLASS": ("k.cu:3:10: fatal error: cutlass/cutlass.h: No such file or directory", "the package nvidia-cutlass"),
    "a library to link": ("/bin/ld: cannot find -lcufft: No such file or directory", "libcufft is missing"),
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
        "does not fit",
    ),
    "a new toolkit": ("nvcc fatal   : Unsupported gpu architecture 'compute_103a'", "does not know its GPU"),
}
TORCHS = cpp_extension.include_paths()[0]
LIBRARY_FILES = (
    *("lib/site-packages/nvidia/cu13/include/a.h", "cuda-13.0/include/crt/a.h"),
    "lib/site-packages/pybind11/include/eigen.h",
    "envs/cuda12/lib/site-packages/torch/include/a.h",
)


@pytest.fixture
def nothing_but_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A toolkit that consists of its compiler."""
    home = tmp_path / "toolkit"
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "nvcc").touch()
    for file in LIBRARY_FILES:
        (home / file).parent.mkdir(parents=True)
        (home / file).write_text("#include <nothing.h>\n")
    monkeypatch.setenv("CUDA_HOME", str(home))
    return home


@pytest.mark.parametrize(("line", "says"), LACKS.values(), ids=LACKS)
def test_what_the_worker_lacks_is_the_operators_part(line: str, says: str, nothing_but_nvcc: Path) -> None:
    if "torch" in says and torch.version.cuda is not None:
        pytest.skip("this torch has its CUDA part")
    line = line.replace("HOME", str(nothing_but_nvcc))
    part = missing_part(f"[1/2] nvcc -c k.cu\n{line}\nninja: build stopped\n", "sm_90")
    assert part is not None and says in part


@pytest.mark.parametrize(
    "line",
    [
        "k.cu:3:10: fatal error: my_header.h: No such file or directory",
        "k.cu:3:10: fatal error: cuda_helpers.h: No such file or directory",
        "k.cu:3:10: fatal error: cublas_utils.h: No such file or directory",
        "k.cu:3:10: fatal error: nccl_helpers.h: No such file or directory",
        "HOME/lib/site-packages/pybind11/include/eigen.h:1:10: fatal error: nothing.h: No such file or directory",
        "HOME/envs/cuda12/lib/site-packages/torch/include/a.h:1:10: fatal error: nothing.h: No such file or directory",
        f"/usr/{'long' * 100}:1:10: fatal error: nothing.h: No such file or directory",
        "/usr/bin/ld: cannot find -lmine: No such file or directory",
        "k.cu:3:2: error: #error unsupported GNU version!",
        'k.cu(3): error: identifier "cuda_fp8.h: No such file" is undefined',
    ],
)
def test_what_the_source_asks_for_is_its_own(line: str, nothing_but_nvcc: Path) -> None:
    assert missing_part(f"{line.replace('HOME', str(nothing_but_nvcc))}\n", "sm_90") is None


def test_headers_of_python_are_the_operators_part(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    line = f"{TORCHS}/torch/csrc/python_headers.h:1:10: fatal error: Python.h: No such file or directory\n"
    assert missing_part(line, "sm_90") is None
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    assert "Python.h is missing" in (missing_part(line, "sm_90") or "")


def test_a_header_that_users_of_a_package_bring_is_the_sources() -> None:
    """Torch brings pybind11, whose part for Eigen wants that of whoever includes it."""
    includer = Path(TORCHS, "pybind11", "eigen", "matrix.h")
    assert "#include <Eigen/Core>" in includer.read_text()
    assert missing_part(f"{includer}:30:10: fatal error: Eigen/Core: No such file or directory\n", "sm_90") is None


@pytest.mark.parametrize("header", ["cuda/mine.cuh", "cub/mine.cuh", "cuda_fp16.h", "thrust/no_such_header.h"])
def test_a_header_that_a_whole_toolkit_lacks_is_the_sources(header: str, nothing_but_nvcc: Path) -> None:
    line = f"k.cu:3:10: fatal error: {header}: No such file or directory\n"
    assert missing_part(line, "sm_90") is not None
    for place in ("include/cccl/cub", "include/cccl/thrust", "include/cccl/cuda", "include/cuda_fp16.h"):
        (nothing_but_nvcc / place).mkdir(parents=True)
    assert missing_part(line, "sm_90") is None


@with_nvcc
@pytest.mark.parametrize(
    "line",
    [
        "sh: 1: nvcc: not found",
        "FileNotFoundError: [Errno 2] No such file or directory: '/usr/local/cuda/bin/nvcc'",
        "g++: fatal error: cannot execute 'cc1plus': execvp: No such file",
        "nvcc fatal   : Cannot find compiler 'g++' in PATH",
        "/usr/local/cuda/include/crt/host_config.h:143:2: error: #error -- unsupported GNU version!",
        "nvcc fatal   : Unsupported gpu architecture 'sm_10'",
        "nvcc fatal   : Failed to preprocess host compiler properties.",
        "nvcc fatal   : Compiler 'g++-9' in PATH not found",
        "/usr/include/stdio.h:1:10: fatal error: nothing.h: No such file or directory",
        "/usr/include/stdio.h:1:10: fatal error: bits/types.h: No such file or directory",
        "/usr/include/stdio.h:1:10: fatal error: License: No such file or directory",
        f"{TORCHS}/torch/csrc/python_headers.h:1:10: fatal error: Python.h: No such file or directory",
    ],
)
def test_what_is_not_missing_is_the_sources_choice_or_a_text_that_its_static_assert_prints(line: str) -> None:
    text = f'k.cu(3): error: static assertion failed with "\n{line}\n"\n  static_assert(false, TEXT);\n'
    assert missing_part(text, "sm_90") is None


@pytest.mark.parametrize("text", [f"{BUILD_FAILED} 'e'\n/bin/sh: 1: nvcc: not found", "'tileiras' compiler not found"])
@pytest.mark.parametrize("raises", ["raise RuntimeError({!r})", "exec('raise RuntimeError(text)', {{'text': {!r}}})"])
def test_a_source_cannot_say_that_the_toolkit_is_incomplete(text: str, raises: str, tmp_path: Path) -> None:
    source = tmp_path / "kernel.py"
    source.write_text(raises.format(text) + "\n")
    with pytest.raises(RuntimeError) as caught:
        exec(compile(source.read_text(), str(source), "exec"))
    told = fault(caught.value, "importing", tmp_path, Target("cuda:0", "sm_90"), Status.COMPILE_ERROR)
    assert told.status is Status.COMPILE_ERROR


def test_nor_by_an_exception_of_the_service(tmp_path: Path) -> None:
    source = tmp_path / "kernel.py"
    source.write_text("raise its_own\n")
    its_own = KernelFault(Status.UNSUPPORTED, "nvcc is missing", lacks=Lack.PART)
    with pytest.raises(KernelFault) as caught:
        exec(compile(source.read_text(), str(source), "exec"), {"its_own": its_own})
    told = fault(caught.value, "importing", tmp_path, Target("cuda:0", "sm_90"), Status.COMPILE_ERROR)
    assert told.status is Status.COMPILE_ERROR and told.lacks is None


@pytest.mark.usefixtures("nothing_but_nvcc")
def test_what_the_operator_mends_is_built_again(tmp_path: Path) -> None:
    error = RuntimeError(f"{BUILD_FAILED} 'e': [1/2] nvcc\n/bin/sh: 1: /usr/local/cuda/bin/nvcc: not found")
    told = fault(error, "importing", tmp_path, Target("cuda:0", "sm_90"), Status.COMPILE_ERROR)
    assert told.status is Status.UNSUPPORTED and may_pass_again(told.message)


@pytest.mark.usefixtures("nothing_but_nvcc")
def test_a_build_that_lacks_a_header_is_unsupported(tmp_path: Path) -> None:
    line = "k.cu:9:10: fatal error: nv/target: No such file or directory"
    told = fault(
        RuntimeError(f"{BUILD_FAILED} 'e': [1/2] nvcc\n{line}"), "calling f", tmp_path, Target("cuda:0", "sm_90")
    )
    assert told.status is Status.UNSUPPORTED
    assert "nv/target is missing" in told.message and "WORKER_BASE" in told.message
    assert "put what it gives" not in told.message


def test_the_toolkit_that_the_operator_names_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    told = missing_part(f"[Errno 2] No such file or directory: '{tmp_path}/bin/nvcc'", "sm_90")
    assert told is not None and f"{tmp_path}/bin/nvcc is missing" in told
