"""What a linter cannot say: names, sizes, and that the lists of kernel types agree."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kernel_eval_client
from backends.base import Backend
from backends.registry import BACKENDS, backend
from domain.kernel import KernelType
from domain.paths import ROOT
from stack.example import KERNELS, every_example
from tests.private_access import private_accesses

PACKAGES = sorted(path.parent.name for path in ROOT.glob("*/__init__.py"))
MODULES = sorted(path.stem for path in ROOT.glob("*.py"))
SOURCES = sorted(path for package in PACKAGES for path in (ROOT / package).rglob("*.py"))
CLIENT = sorted((ROOT / "client").rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))

MAX_LINES = 500
MAX_MODULES = 24

SUBMISSIONS = ("tests/exploits/submissions/", "tests/honest/submissions/")
"""Programs that are judged; reaching into private state is what some of them are for."""
NOT_OURS = {
    "_exit": "os._exit has no public name",
    "_replace": "public in spite of its name: a method of every named tuple",
    "_sleep": "torch.cuda._sleep is torch's only way to occupy a device for a number of cycles",
}
"""Private names of libraries that every test may use, and why."""
ALLOWED = {
    ("tests/backends/python/test_float64_mode.py", "_scaled_mm"): "torch's operator, which references call",
    (
        "tests/sandbox/protocol/test_call_layout.py",
        "_base",
    ): "torch tells a view from a tensor of its own in no other way",
    ("tests/sandbox/runner/test_parameter_noise.py", "_no_grad_fill_"): "torch's; the patch of it has to be taken back",
    ("tests/tasks/broker.py", "_pool"): "Celery keeps a closed pool, and has no public call that forgets it",
    ("tests/tasks/broker.py", "_producer_pool"): "as above",
    ("tests/validation/evidence/test_weak_reference.py", "_comparison"): "torch has no public table of its tolerances",
}
"""Private names of libraries that one file may use, and why. A private name of ours has no place here."""
CEILINGS = {
    "tests/profiling/": 11,
    "tests/tasks/correctness/": 8,
    "tests/tasks/diagnostics/": 8,
    "tests/tasks/evaluation/": 4,
    "tests/tasks/runtime/": 16,
    "tests/tasks/timing/": 16,
}
"""How many private accesses are left in a folder; lower the number with each that goes, and drop a folder at zero."""

VAGUE = re.compile(r"tmp_.*|.*_(old|new|backup|refactored)|utils?|helpers?|common|misc")


def relative(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("name", PACKAGES + MODULES)
def test_no_name_of_ours_hides_one_of_the_standard_library(name: str) -> None:
    assert name not in sys.stdlib_module_names, (
        f"Python {sys.version_info.major}.{sys.version_info.minor} has a standard library module {name!r}, which ours "
        "would hide: run on Python below 3.15 (see requires-python in pyproject.toml)"
    )


@pytest.mark.parametrize("path", SOURCES + CLIENT, ids=relative)
def test_a_file_is_short_and_says_what_it_is_for(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert text.count("\n") <= MAX_LINES, "split it: one noun per file"
    docstring = ast.get_docstring(ast.parse(text))
    assert docstring, "begins with a docstring of one sentence"
    assert docstring.split("\n\n")[0].endswith("."), "the docstring's first paragraph is a sentence"


@pytest.mark.parametrize(
    "folder", sorted({path.parent for path in SOURCES if "benchmarks" not in path.parts}), ids=relative
)
def test_a_folder_has_few_modules(folder: Path) -> None:
    assert len(list(folder.glob("*.py"))) <= MAX_MODULES, "give what belongs together a folder of its own"


@pytest.mark.parametrize("path", SOURCES + CLIENT + TESTS, ids=relative)
def test_a_name_says_what_is_inside(path: Path) -> None:
    vague = [part for part in path.relative_to(ROOT).with_suffix("").parts if VAGUE.fullmatch(part)]
    assert not vague


def accesses(path: Path) -> list[str]:
    """What the file may not use, as `file:line name`."""
    found = private_accesses(path.read_text(encoding="utf-8"))
    file = relative(path)
    return [
        f"{file}:{one.line} {one.name}" for one in found if one.name not in NOT_OURS and (file, one.name) not in ALLOWED
    ]


@pytest.mark.parametrize(("file", "name"), ALLOWED)
def test_an_allowed_private_access_is_made(file: str, name: str) -> None:
    assert name in {one.name for one in private_accesses((ROOT / file).read_text(encoding="utf-8"))}, "drop its line"


@pytest.mark.parametrize(
    "path", [path for path in TESTS if not relative(path).startswith((*SUBMISSIONS, *CEILINGS))], ids=relative
)
def test_a_test_file_accesses_no_private_state(path: Path) -> None:
    assert accesses(path) == [], "observe public behaviour, or give the product the smallest seam that does"


@pytest.mark.parametrize("folder", CEILINGS)
def test_a_folder_accesses_no_more_private_state_than_before(folder: str) -> None:
    found = [one for path in TESTS if relative(path).startswith(folder) for one in accesses(path)]
    assert len(found) <= CEILINGS[folder], "\n".join(found)


@pytest.mark.parametrize(
    ("source", "names"),
    [
        ("pool._waiting", ["_waiting"]),
        ("self.pool._waiting = 1", ["_waiting"]),
        ("from a import _b, c", ["_b"]),
        ("monkeypatch.setattr(a, '_b', 1)", ["_b"]),
        ("monkeypatch.setattr('a._b', 1)", ["_b"]),
        ("getattr(a, '_b')", ["_b"]),
        ("A.__new__(A)", ["__new__"]),
        ("a = SimpleNamespace(b=1)", ["SimpleNamespace"]),
        ("a = types.SimpleNamespace(b=1)", ["SimpleNamespace"]),
        ("self._b; cls._b; super()._b; a.__name__; _b; setattr(a, 'b', 1)", []),
    ],
)
def test_private_accesses_finds_each_form(source: str, names: list[str]) -> None:
    assert [one.name for one in private_accesses(source)] == names


@pytest.mark.parametrize("path", CLIENT, ids=relative)
def test_the_client_is_written_for_python_3_10(path: Path) -> None:
    ast.parse(path.read_text(encoding="utf-8"), feature_version=(3, 10))


@pytest.mark.parametrize("kernel_type", KernelType)
def test_every_list_names_the_kernel_type(kernel_type: KernelType) -> None:
    lists = {
        "backends/registry.py: a line in BACKENDS": BACKENDS,
        "client/kernel_eval_client/kernel.py: a member of KernelType": list(kernel_eval_client.KernelType),
        "client/kernel_eval_client/agents/arguments.py: a word in Type": re.findall(
            # Read as text: the import needs an extra of the client, which an offline GPU box lacks.
            r'"(\w+)"',
            _between("client/kernel_eval_client/agents/arguments.py", "\nType = ", "\n]"),
        ),
        "docs/api.md: a row of the table Kernel types": re.findall(
            r"^\| `(\w+)` \|", _between("docs/api.md", "\n## Kernel types\n", "\n## "), re.MULTILINE
        ),
        "examples/: a folder": _types_in_examples(),
        "tests/backends/: a test that names the type": _types_in_backend_tests(),
    }
    missing = [where for where, names in lists.items() if kernel_type.value not in names]
    assert not missing, f"{kernel_type} is missing in {'; '.join(missing)} (see CONTRIBUTING.md, Adding a kernel type)"
    assert isinstance(backend(kernel_type), Backend)


@pytest.mark.parametrize(
    "module", ["api", "celeryconfig", "domain.settings", "stack.serve", "tasks.app", "tasks.worker.build_worker"]
)
def test_it_loads_no_gpu_library(module: str) -> None:
    loaded = f"import sys, {module}; print(*{{'torch', 'triton', 'cupy'}} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", loaded], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def _between(path: str, begin: str, end: str) -> str:
    """The part of a file from `begin` to the next `end`."""
    return (ROOT / path).read_text(encoding="utf-8").partition(begin)[2].partition(end)[0]


def _types_in_examples() -> set[str]:
    return {example.body[key]["kernel_type"] for example in every_example() for key in KERNELS if key in example.body}


def _types_in_backend_tests() -> set[str]:
    tests = [
        path for path in TESTS if path.is_relative_to(ROOT / "tests" / "backends") and path.name.startswith("test_")
    ]
    return {word for path in tests for word in re.findall(r'"(\w+)"', path.read_text(encoding="utf-8"))}
