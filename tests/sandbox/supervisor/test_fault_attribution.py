"""A compiler that the machine stopped is no kernel's fault, and a submission's words are no proof of it."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from backends.extensions import toolchain
from domain.fault import InfrastructureFault, KernelFault, Unproven, may_pass_again
from domain.kernel import Kernel, KernelType
from domain.result import Status
from sandbox.isolation import oom_kills, scratch_dir
from sandbox.supervisor import machine_faults
from sandbox.supervisor.machine_faults import machine_line
from sandbox.supervisor.session import Session
from tests.sandbox.build_request import build_request
from tests.sandbox.killed_compilers import compilers_killed
from tests.tasks.example_jobs import until

BUILDS = """
from torch.utils.cpp_extension import load_inline
code = '#include <torch/extension.h>\\ntorch::Tensor go(torch::Tensor x) { return x + 1; }'
built = load_inline("killed_one", code, functions=["go"])
def kernel_fn(x):
    return built.go(x)
"""
STOPPED = [
    "c++: fatal error: Killed signal terminated program cc1plus",
    "collect2: fatal error: ld terminated with signal 9 [Killed]",
    "nvcc error   : 'cicc' died due to signal 9 (Kill signal)",
    "FAILED: [code=137] main.o ",
    "sh: line 1:  4711 Killed                  c++ -c main.cpp",
    "cc1plus was killed by signal 9",
    "clang: error: unable to execute command: Killed",
    "subprocess.CalledProcessError: Command '['ninja', '-v']' died with <Signals.SIGKILL: 9>.",
    "subprocess.CalledProcessError: Command '['ninja', '-v']' returned non-zero exit status 137.",
    "triton.runtime.errors.PTXASError: PTXAS error: `ptxas` failed with error code -9",
    "/tmp/ccAbCd.s: fatal error: when writing output to : No space left on device",
    "Fatal error: can't write 12 bytes to section .text of main.o: 'No space left on device'",
    "/usr/bin/ld: final link failed: Disk quota exceeded",
    "OSError: [Errno 28] No space left on device: 'main.cpp'",
    "cc1plus: out of memory allocating 65536 bytes after a total of 1 bytes",
    "c++: fatal error: cannot execute 'cc1plus': vfork: Cannot allocate memory",
    "terminate called after throwing an instance of 'std::bad_alloc'",
    "RuntimeError: Error building extension 'x': ninja: fatal: write(): No space left on device",
]
FORGED = [
    '    raise RuntimeError("No space left on device")',
    "RuntimeError: No space left on device",
    "ValueError: c++: fatal error: Killed signal terminated program cc1plus",
    "main.cpp:3:2: error: #error Killed",
    "    3 | #error Killed",
    "main.cpp:4:9: note: '#pragma message: Cannot allocate memory'",
    'kernel.cu(3): error: identifier "Killed" is undefined',
    "main.cpp:7:1: error: static assertion failed: std::bad_alloc",
    "/usr/bin/ld: main.o:(.text+0x5): undefined reference to `No space left on device'",
    "In file included from Killed",
]


@pytest.mark.parametrize("line", STOPPED)
def test_what_compilers_and_the_system_say_of_a_machine_that_stopped_them_is_known(line: str) -> None:
    assert machine_line(f"importing the source\n{line}\nninja: build stopped: subcommand failed.") is not None
    assert may_pass_again(line)


@pytest.mark.parametrize("line", FORGED)
def test_a_source_that_contains_such_words_does_not_compile_and_that_is_its_fault(line: str) -> None:
    assert machine_line(f"importing the source\n{line}\nninja: build stopped: subcommand failed.") is None


@pytest.mark.parametrize(
    "text",
    [
        "internal compiler error: Segmentation fault",
        "nvcc error   : 'cicc' died due to signal 11 (Invalid memory reference)",
        "RuntimeError: can't start new thread",
        "c++: fatal error: cannot fork: Resource temporarily unavailable",
        "`ptxas` failed with error code 139",
        *STOPPED,
    ],
)
def test_what_may_pass_the_next_time_is_told_apart(text: str) -> None:
    assert may_pass_again(text)
    assert not may_pass_again("main.cpp:3:2: error: 'y' was not declared in this scope")


def test_a_compiler_that_reports_words_of_its_source_is_believed_to_do_so(tmp_path: Path) -> None:
    source = tmp_path / "main.cpp"
    source.write_text(
        '#pragma message "No space left on device"\n#error Killed\nint Killed = Cannot allocate memory;\n'
    )
    done = subprocess.run(["c++", "-c", source], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0 and "Killed" in done.stderr and "No space left" in done.stderr
    assert machine_line(done.stderr) is None


def test_a_compiler_driver_that_fails_itself_is_no_fault_of_the_source(tmp_path: Path) -> None:
    folder = toolchain.prepare(tmp_path / "toolchains")
    if folder is None:
        pytest.skip("needs a C++ compiler")
    (folder / "toolchain.json").write_text("{")
    (tmp_path / "main.cpp").touch()
    command = [folder / "bin" / "c++", "-c", "main.cpp", "-o", "main.o"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    line = machine_line(f"importing the source\n{done.stderr}\nninja: build stopped: subcommand failed.")
    assert line is not None and "JSONDecodeError" in line
    assert may_pass_again(line)


@pytest.mark.parametrize("counted", [False, True], ids=["by somebody", "for want of memory"])
def test_a_compiler_that_is_killed_from_outside_is_no_compile_error(
    session: Callable[..., Session], counted: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "vmstat"
    file.write_text("oom_kill 2\n")
    monkeypatch.setattr(oom_kills, "MACHINE", file)
    opened = session(seconds=120.0)
    opened.runner.send(build_request(opened, Kernel(BUILDS, KernelType.TORCH)))
    with compilers_killed(opened.runner.pid) as ended:
        until(lambda: bool(ended), 120)
        if counted:
            file.write_text("oom_kill 3\n")
        with pytest.raises(KernelFault if counted else Unproven) as caught:
            opened.runner.receive()
    if counted:
        assert isinstance(caught.value, KernelFault) and caught.value.status is Status.OUT_OF_MEMORY


def test_memory_kills_meanwhile_are_told_with_a_compile_error_so_that_it_is_not_kept(
    session: Callable[..., Session], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "vmstat"
    file.write_text("oom_kill 2\n")
    monkeypatch.setattr(oom_kills, "MACHINE", file)
    opened = session()
    opened.runner.send(build_request(opened, Kernel("import time\ntime.sleep(1)\nx_", KernelType.TORCH)))
    file.write_text("oom_kill 3\n")
    with pytest.raises(KernelFault) as caught:
        opened.runner.receive()
    assert caught.value.status is Status.COMPILE_ERROR and "for want of memory meanwhile" in caught.value.message
    assert may_pass_again(caught.value.message)


SAYS_SO = 'raise RuntimeError("No space left on device: Killed, Cannot allocate memory")'
WRITES = "import os; held = open('much', 'wb', buffering=0); held.write(os.urandom(1 << 22)); os.fsync(held)"


def test_a_source_that_says_so_itself_gets_its_compile_error(session: Callable[..., Session]) -> None:
    with pytest.raises(KernelFault) as caught:
        session().build(Kernel(SAYS_SO, KernelType.TORCH))
    assert caught.value.status is Status.COMPILE_ERROR


@pytest.mark.parametrize(
    "source", ["undefined_name", "raise SystemExit(3)", "import os\nos._exit(3)", "import os\nos.abort()"]
)
def test_where_the_disk_is_full_no_failure_is_the_kernels(
    source: str, session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_faults, "LEAST_FREE_BYTES", 1 << 62)
    with pytest.raises(InfrastructureFault, match="disk of STATE_DIR is full"):
        session().build(Kernel(source, KernelType.TORCH))


def test_a_timeout_on_a_full_disk_is_not_the_kernels(
    session: Callable[..., Session], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_faults, "LEAST_FREE_BYTES", 1 << 62)
    with pytest.raises(InfrastructureFault, match="disk of STATE_DIR is full"):
        session(seconds=1.0).build(Kernel("while True: pass", KernelType.TORCH))


@pytest.mark.parametrize("source", [WRITES, WRITES + "; os.unlink('much')"], ids=["with a name", "without"])
def test_a_submission_that_fills_the_disk_is_out_of_memory(
    session: Callable[..., Session], source: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine_faults, "LEAST_FREE_BYTES", 1 << 62)
    monkeypatch.setattr(machine_faults, "FILLED_BYTES", 1 << 20)
    assert scratch_dir.MAX_BYTES > machine_faults.FILLED_BYTES
    with pytest.raises(KernelFault, match="filled the disk") as caught:
        session().build(Kernel(f"{source}\nundefined_name", KernelType.TORCH))
    assert caught.value.status is Status.OUT_OF_MEMORY
