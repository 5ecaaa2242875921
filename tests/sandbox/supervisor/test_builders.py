"""What a source may do to a compiler ends as a verdict, and a compiler tells nothing of the host."""

from __future__ import annotations

import dataclasses
import shutil
import time
from collections.abc import Callable

import psutil
import pytest

from domain.contract import IOContract
from domain.fault import KernelFault
from domain.kernel import Kernel, KernelType
from domain.result import Status
from sandbox.isolation import scratch_dir
from sandbox.supervisor.session import Session

IO = IOContract.from_wire(
    {
        "args": [{"name": "x", "type": "tensor", "role": "output", "tensor_spec": {"shape": [8]}}],
        "launch": {"grid": {"x": 1}, "block": {"x": 8}},
    }
)
NVCC = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
with_nvcc = pytest.mark.skipif(not shutil.which(NVCC), reason="no nvcc")


def cuda(before: str, **metadata: object) -> Kernel:
    source = f'{before}\nextern "C" __global__ void k(float* x) {{ x[threadIdx.x] = 1; }}'
    return Kernel(source, KernelType.CUDA, IO, metadata)


def by_hand(command: list[str], source: str) -> Kernel:
    """A source that runs a compiler itself, and fails where that does."""
    called = f"subprocess.run({command!r}, input={source!r}, text=True, check=True)"
    return Kernel(f"import subprocess\n{called}\ndef kernel_fn(x):\n    return x\n", KernelType.TORCH)


def fault_of(session: Session, kernel: Kernel) -> KernelFault:
    with pytest.raises(KernelFault) as caught:
        session.build(kernel)
    return caught.value


def told(session: Session, fault: KernelFault) -> str:
    session.runner.kill()
    return fault.message + fault.log + session.runner.output.text()


@pytest.mark.parametrize(
    "bomb",
    [
        "#include __FILE__",
        "#define A(x) x x x x x x x x x x\n#define B(x) A(A(A(A(A(A(A(x)))))))\nB(B(int a;))",
        "template <class T> struct S { S<S<T>> s; };\nS<int> s;",
        "template <int N> struct T { static const int v = T<N + 1>::v; };\nint x = T<0>::v;",
    ],
    ids=["includes itself", "macros", "types of types", "templates without end"],
)
def test_a_bomb_ends_as_a_verdict(session: Callable[..., Session], bomb: str) -> None:
    fault = fault_of(session(4.0), cuda(bomb))
    assert fault.status in (Status.COMPILE_ERROR, Status.TIMEOUT, Status.OUT_OF_MEMORY), fault.message


@pytest.mark.parametrize("path", ["/etc/passwd", "/etc/shadow", "/proc/1/environ", "/root/.bashrc"])
def test_a_file_of_the_host_cannot_be_included(session: Callable[..., Session], path: str) -> None:
    opened = session()
    fault = fault_of(opened, cuda(f'#include "{path}"'))
    assert fault.status is Status.COMPILE_ERROR
    assert "root:" not in told(opened, fault)


@pytest.mark.parametrize(
    "option", ["-I/etc", "--pre-include=/etc/passwd", "-include=/etc/passwd", "@/etc/passwd", "-o"]
)
def test_an_option_that_names_files_is_refused(session: Callable[..., Session], option: str) -> None:
    opened = session()
    fault = fault_of(opened, cuda("", compiler_options=[option]))
    assert fault.status is Status.COMPILE_ERROR and "not allowed" in fault.message
    assert "root:" not in told(opened, fault)


@with_nvcc
@pytest.mark.parametrize("line", ['#include "/etc/passwd"', r'asm(".incbin \"/etc/passwd\"");'])
def test_host_code_of_cuda_takes_in_no_file_of_the_host(session: Callable[..., Session], line: str) -> None:
    opened = session(60.0)
    fault = fault_of(
        opened, Kernel(f"{line}\nvoid solve(float* x) {{}}", KernelType.CUDA, IO, {"entry_point": "solve"})
    )
    assert fault.status is Status.COMPILE_ERROR
    text = told(opened, fault)
    assert "root:" not in text and "/etc/passwd" in text, text


@pytest.mark.parametrize("compiler", [["g++", "-x", "c++"], pytest.param([NVCC, "-x", "cu"], marks=with_nvcc)])
def test_a_compiler_that_a_source_runs_reads_no_file_of_the_host(
    session: Callable[..., Session], compiler: list[str]
) -> None:
    opened = session(60.0)
    fault = fault_of(opened, by_hand([*compiler, "-c", "-o", "out.o", "-"], '#include "/etc/passwd"\n'))
    assert fault.status is Status.COMPILE_ERROR
    text = told(opened, fault)
    assert "root:" not in text and "Permission denied" in text, text


def test_what_a_compiler_writes_is_bounded(session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scratch_dir, "MAX_BYTES", 64 << 20)
    assembly = 'asm(".data\\n.fill 10737418240, 1, 7\\n");'
    fault = fault_of(session(60.0), by_hand(["g++", "-x", "c++", "-c", "-o", "out.o", "-"], assembly))
    # By the limit on one file, on the folder, or on memory: whichever it meets first.
    assert fault.status in (Status.OUT_OF_MEMORY, Status.COMPILE_ERROR), fault.message


def test_a_compiler_that_hangs_goes_with_its_builder(session: Callable[..., Session]) -> None:
    opened = session(2.0)
    compile_pipe = by_hand(["g++", "-DNEVER_ENDS", "-c", "pipe.cpp"], "")
    kernel = dataclasses.replace(
        compile_pipe, source_code=f"import os; os.mkfifo('pipe.cpp')\n{compile_pipe.source_code}"
    )
    fault = fault_of(opened, kernel)
    assert fault.status is Status.TIMEOUT, fault.message
    opened.runner.kill()
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and (left := _compilers()):
        time.sleep(0.01)
    assert not left


def _compilers() -> list[psutil.Process]:
    return [process for process in psutil.process_iter(["cmdline"]) if "-DNEVER_ENDS" in str(process.info)]
