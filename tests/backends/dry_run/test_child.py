"""What a source compiles where it is constructed or called is compiled in the builder, and only loaded later."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from backends.base import Task
from backends.dry_run.child import World, dry_run
from backends.dry_run.example import Example
from backends.extensions.jit_build import Extensions
from domain.fault import KernelFault
from domain.kernel import Kernel
from domain.result import Status
from tests.backends.extensions.test_jit_build import H200, PYTHON_MODULE, in_builder, in_runner
from tests.backends.loading import kernel

IN_CONSTRUCTOR = """
class ModelNew(nn.Module):
    def __init__(self, width, height):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(width, height))
        print("constructed")
        self.extension = load_inline(name="late", no_implicit_headers=True, cpp_sources=SOURCE)
    def forward(self, x):
        return x + self.extension.function(1)
def get_init_inputs():
    return [3, 4]
"""
IN_FUNCTION = """
@functools.lru_cache
def extension():
    return load_inline(name="late", no_implicit_headers=True, cpp_sources=SOURCE)

class ModelNew(nn.Module):
    def forward(self, x):
        return x + extension().function(1)
"""
IN_CALL = """
class ModelNew(nn.Module):
    extension = None
    def forward(self, x, y=None):
        assert x.dim() == 2
        if self.extension is None:
            self.extension = load_inline(name="late", no_implicit_headers=True, cpp_sources=SOURCE)
        return x + self.extension.function(1)
"""
OTHER_NAMES = """
import time, uuid
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.one = load_inline(name=f"late_{uuid.uuid4().hex}", no_implicit_headers=True, cpp_sources=SOURCE)
    def forward(self, x):
        other = SOURCE.replace("+ 1", "+ 10")
        self.other = load_inline(f"late_{time.time_ns()}", other, no_implicit_headers=True)
        return x + self.one.function(1) + self.other.function(1)
"""
TWO = """
class ModelNew(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.one = load_inline(name="late_one", no_implicit_headers=True, cpp_sources=SOURCE)
        self.other = load_inline(name="late", no_implicit_headers=True, cpp_sources=SOURCE + "// the other")
    def forward(self, x):
        return x + self.one.function(0) + self.other.function(0)
def get_init_inputs():
    return [4]
"""
SLOW = """
class ModelNew(nn.Module):
    def forward(self, x):
        y = x
        for _ in range(20):
            y = y.repeat(1 << 12, 1)[: 1 << 12] @ x.new_ones(x.shape[1], x.shape[1])
        if not hasattr(self, "extension"):
            self.extension = load_inline(name="late", no_implicit_headers=True, cpp_sources=SOURCE)
        return x + self.extension.function(1)
def get_inputs():
    return [torch.randn(1 << 17, 1 << 14)]
"""


def late(text: str) -> Kernel:
    source = f'SOURCE = """{PYTHON_MODULE}\nPyObject* function(PyObject*, PyObject* argument) {{\n' + (
        '    return PyLong_FromLong(PyLong_AsLong(argument) + 1);\n}\n"""\n'
    )
    head = "import functools\nfrom torch.utils.cpp_extension import load_inline\n"
    return kernel(head + source + text, "torch_cuda")


@pytest.mark.parametrize(
    ("text", "names"),
    [
        pytest.param(IN_CONSTRUCTOR, ["late"], marks=pytest.mark.slow, id="constructor"),
        pytest.param(IN_FUNCTION, ["late"], id="function"),
        pytest.param(TWO, ["late_one", "late"], id="two"),
        pytest.param(SLOW, ["late"], marks=pytest.mark.slow, id="slow"),
    ],
)
def test_it_is_there_before_the_device_is_held(text: str, names: list[str], tmp_path: Path) -> None:
    given = late(text)
    artifact = in_builder(given, tmp_path, H200)
    assert artifact.facts["extensions"] == names and artifact.deferred is None
    if text is SLOW:  # Whose inputs are larger than this machine's memory.
        return
    executable = in_runner(given, tmp_path, artifact)
    assert executable.call([torch.ones(2, 2)]).tolist() == [[3.0, 3.0], [3.0, 3.0]]
    assert list(executable.compiled) == []


def test_names_that_change_are_there_too_and_none_is_the_other_s(tmp_path: Path) -> None:
    given = late(OTHER_NAMES + "def get_inputs(): return [torch.ones(2, device='cuda')]")
    artifact = in_builder(given, tmp_path, H200)
    assert len(artifact.facts["extensions"]) == 2
    executable = in_runner(given, tmp_path, artifact)
    assert executable.call([torch.ones(2)]).tolist() == executable.call([torch.ones(2)]).tolist() == [14.0, 14.0]
    assert list(executable.compiled) == []


def test_what_is_not_reached_is_compiled_later_and_told(tmp_path: Path) -> None:
    # The number of elements that are not zero is unknown without content.
    given = late(IN_CALL.replace("x.dim() == 2", "len(x.nonzero()) == 4"))
    artifact = in_builder(given, tmp_path, H200)
    assert artifact.facts["extensions"] == artifact.facts["dry_run"]["compiled"] == []
    assert artifact.facts["dry_run"]["ended"] == "stopped" and "nonzero" in artifact.facts["dry_run"]["reason"]
    executable = in_runner(given, tmp_path, artifact)
    assert list(executable.compiled) == []
    assert executable.call([torch.ones(2, 2)]).tolist() == [[3.0, 3.0], [3.0, 3.0]]
    assert list(executable.compiled) == ["late"]


def test_a_reference_s_first_set_is_the_example_of_a_kernel(tmp_path: Path) -> None:
    source = """
    def kernel_fn(x, *, eps=1e-5, mask): return x * mask + eps
    def get_inputs():
        with torch.device("cuda"):
            for n in (4, 6):
                yield {"mask": torch.rand(n), "x": torch.randn(n, n)}
    """
    artifact = in_builder(replace(kernel(source), is_reference=True), tmp_path, H200)
    inputs = Example.from_wire(artifact.example).inputs
    assert inputs is not None and [ref.shape for ref in inputs] == [(4, 4), (4,)]


@pytest.mark.slow
def test_what_does_not_compile_is_a_compile_error_of_the_build(tmp_path: Path) -> None:
    given = late(IN_CALL.replace("cpp_sources=SOURCE", "cpp_sources=SOURCE + 'no C++'"))
    with pytest.raises(KernelFault, match="Error building extension 'late") as caught:
        in_builder(given, tmp_path, H200)
    assert caught.value.status is Status.COMPILE_ERROR and "kernel.py" in caught.value.log


@pytest.mark.slow
@pytest.mark.parametrize(
    "condition", ["x.sum() > 0", "torch.cuda.get_device_properties(0).multi_processor_count > 100"]
)
def test_a_compile_error_on_a_way_that_was_guessed_is_left_to_the_run(condition: str, tmp_path: Path) -> None:
    given = late(IN_CALL.replace("assert x.dim() == 2", f"assert {condition}").replace("=SOURCE", "=SOURCE + 'no C++'"))
    told = in_builder(given, tmp_path, H200).facts["dry_run"]
    assert told["ended"] == "stopped" and "not certain" in told["reason"]


@pytest.mark.parametrize(
    ("text", "is_certain"),
    [
        ("ptxas fatal   : Memory allocation failure", False),
        ("`ptxas` failed with error code -11", False),
        ("ptxas fatal   : Parsing error near '1': syntax error", True),
    ],
)
def test_a_compiler_that_lacks_memory_in_a_dry_run_is_left_to_the_run(
    text: str, is_certain: bool, tmp_path: Path
) -> None:
    def follow(_: World) -> None:
        raise KernelFault(Status.COMPILE_ERROR, "calling f: PTXASError", text)

    run = dry_run(Extensions(tmp_path, H200), Task(memory_bytes=16 << 30), follow)
    assert (run.fault is not None) is is_certain
    assert is_certain or "the run has more" in str(run.reason)


def test_an_error_of_any_kind_is_left_to_the_run_where_memory_is_nearly_used_up(tmp_path: Path) -> None:
    def follow(_: World) -> None:
        raise KernelFault(Status.COMPILE_ERROR, "calling f: CompilationError: TypeError('unsupported callable')")

    status = Path("/proc/self/status").read_text()
    used = next(int(line.split()[1]) << 10 for line in status.splitlines() if line.startswith("VmData:"))
    run = dry_run(Extensions(tmp_path, H200), Task(memory_bytes=used + (8 << 20)), follow)
    assert run.fault is None and "the run has more" in str(run.reason)


@pytest.mark.slow
def test_a_source_that_never_comes_back_is_left(tmp_path: Path) -> None:
    given = late(IN_CALL.replace("assert x.dim() == 2", "while True: pass"))
    assert in_builder(given, tmp_path, H200).facts["extensions"] == []


def test_a_library_that_is_no_module_is_kept_too(tmp_path: Path) -> None:
    text = """
SOURCE = "int f() { return 1; }"
library = load_inline(name="plain", no_implicit_headers=True, is_python_module=False, cpp_sources=SOURCE)
class ModelNew(nn.Module):
    def forward(self, x):
        import ctypes
        return x + ctypes.CDLL(library)._Z1fv()
"""
    given = kernel(f"from torch.utils.cpp_extension import load_inline\n{text}", "torch_cuda")
    built = tmp_path / "built"
    built.mkdir()
    artifact = in_builder(given, built, H200)
    moved = built.rename(tmp_path / "moved")
    executable = in_runner(given, moved, artifact)
    assert list(executable.compiled) == []
    assert executable.call([torch.ones(2)]).tolist() == [2.0, 2.0]


HELD = """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        BEFORE
        self.extension = load_inline(name="late", no_implicit_headers=True, cpp_sources=SOURCE)
    def forward(self, x):
        return x + self.extension.function(1)
"""


@pytest.mark.parametrize(
    "before",
    [
        "import os; os.mkdir(os.path.dirname(os.environ['TORCH_EXTENSIONS_DIR']) + '/made')",
    ],
)
def test_nothing_is_left_of_what_it_does_on_the_way(before: str, tmp_path: Path) -> None:
    given = late(HELD.replace("BEFORE", before))
    there = {path.name for path in tmp_path.iterdir()}
    artifact = in_builder(given, tmp_path, H200)
    assert artifact.facts["extensions"] == ["late"]
    assert {path.name for path in tmp_path.iterdir()} - there <= {"ext", "kernel.py", "__pycache__"}
    executable = in_runner(given, tmp_path, artifact)
    assert executable.call([torch.ones(2)]).tolist() == [3.0, 3.0] and not executable.compiled


@pytest.mark.parametrize(
    "before",
    [
        "import ctypes; ctypes.string_at(0)",
        *(
            pytest.param(line, marks=pytest.mark.slow)
            for line in ("import os; os._exit(1)", "raise SystemExit", "import time; time.sleep(600)")
        ),
    ],
)
def test_whatever_becomes_of_it_on_the_way_is_no_fault_of_the_build(before: str, tmp_path: Path) -> None:
    artifact = in_builder(late(HELD.replace("BEFORE", before)), tmp_path, H200)
    assert artifact.facts["extensions"] == [] and artifact.deferred is None


@pytest.mark.slow
def test_a_source_that_catches_everything_is_ended_after_its_build(tmp_path: Path) -> None:
    text = """
class ModelNew(nn.Module):
    def forward(self, x):
        while True:
            try:
                extension = load_inline(name="late", no_implicit_headers=True, cpp_sources=SOURCE)
                return x + extension.function(1)
            except:
                pass
"""
    given = late(text)
    artifact = in_builder(given, tmp_path, H200)
    assert artifact.facts["extensions"] == ["late"]
    executable = in_runner(given, tmp_path, artifact)
    assert executable.call([torch.ones(1, 1)]).tolist() == [[3.0]] and not executable.compiled


@pytest.mark.slow
def test_a_fallback_for_an_extension_that_does_not_compile_is_built(tmp_path: Path) -> None:
    text = """
class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        try:
            self.extension = load_inline(name="wrong", no_implicit_headers=True, cpp_sources=SOURCE + "no C++")
        except RuntimeError:
            self.extension = load_inline(name="late", no_implicit_headers=True, cpp_sources=SOURCE)
    def forward(self, x):
        return x + self.extension.function(1)
"""
    given = late(text)
    artifact = in_builder(given, tmp_path, H200)
    assert artifact.facts["extensions"] == artifact.facts["dry_run"]["compiled"][0].split()[1:] == ["late"]
    executable = in_runner(given, tmp_path, artifact)
    assert list(executable.compiled) == [], "nor is the other compiled again, to be refused again"
    assert executable.call([torch.ones(2)]).tolist() == [3.0, 3.0]


AGAIN = """
import os, uuid

def built():
    return load_inline(name=f"late_{uuid.uuid4().hex}", no_implicit_headers=True, cpp_sources=SOURCE)

class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        compiler, os.environ["CXX"] = os.environ.get("CXX", "c++"), "FAILING"
        try:
            self.extension = built()
        except RuntimeError:
            os.environ["CXX"] = compiler
            self.extension = built()
    def forward(self, x):
        return x + self.extension.function(1)
"""


def test_what_one_compiler_refuses_another_may_take(tmp_path: Path) -> None:
    failing = tmp_path / "c++"
    failing.write_text('#!/bin/sh\ncase "$*" in *main.cpp*) echo error: no >&2; exit 1;; *) exec c++ "$@";; esac\n')
    failing.chmod(0o755)
    given = late(AGAIN.replace("FAILING", str(failing)))
    artifact = in_builder(given, tmp_path, H200)
    executable = in_runner(given, tmp_path, artifact)
    assert executable.call([torch.ones(2)]).tolist() == [3.0, 3.0] and not executable.compiled


def test_what_is_asked_for_again_is_what_is_loaded(tmp_path: Path) -> None:
    given = late(IN_CALL.replace("if self.extension is None:", "if True:"))
    artifact = in_builder(given, tmp_path, H200)
    executable = in_runner(given, tmp_path, artifact)
    assert [executable.call([torch.ones(1, 1)]).tolist() for _ in range(3)] == [[[3.0]]] * 3
    assert not executable.compiled


def test_a_source_without_anything_to_compile_is_not_run(tmp_path: Path) -> None:
    given = kernel("import os\nclass Model(nn.Module):\n    def forward(self, x):\n        return x\n")
    assert "dry_run" not in in_builder(given, tmp_path, H200).facts
