"""Which headers a source is given besides the lean core."""

from __future__ import annotations

from pathlib import Path

import pytest

from backends.extensions import minimal_headers, toolchain
from backends.extensions.include_scan import includes_for

UMBRELLA = "#include <torch/extension.h>\n"


@pytest.fixture(scope="module")
def lean(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("lean")
    minimal_headers.write(folder, toolchain.torch_include())
    return folder


def needed(text: str, lean: Path, tmp_path: Path, *folders: Path) -> list[str] | None:
    source = tmp_path / "main.cpp"
    source.write_text(text)
    return includes_for(source, list(folders), lean, toolchain.torch_include())


def test_operators_and_factories_that_are_named(lean: Path, tmp_path: Path) -> None:
    found = needed(UMBRELLA + "auto y = torch::empty_like(x); at::relu(y); matmul(x, y); // at::cumsum", lean, tmp_path)
    assert found == [
        "ATen/ops/empty_like.h",
        "ATen/ops/matmul.h",
        "ATen/ops/relu.h",
        "kernel_eval/factories/empty_like.h",
    ]


def test_an_operators_other_forms_are_in_its_header(lean: Path, tmp_path: Path) -> None:
    found = needed(UMBRELLA + "at::relu_(x); at::add_out(y, x, x); torch::zeros_out(y, {1});", lean, tmp_path)
    assert found == ["ATen/ops/add.h", "ATen/ops/relu.h", "ATen/ops/zeros.h"]


def test_what_at_makes_is_not_wrapped(lean: Path, tmp_path: Path) -> None:
    assert needed(UMBRELLA + "at::zeros({1});", lean, tmp_path) == ["ATen/ops/zeros.h"]


def test_every_name_of_a_namespace_that_is_used_whole(lean: Path, tmp_path: Path) -> None:
    found = needed(UMBRELLA + "using namespace torch;\nauto f = &ones_like;", lean, tmp_path)
    assert found == ["ATen/ops/ones_like.h", "kernel_eval/factories/ones_like.h"]


@pytest.mark.parametrize(
    ("code", "header"),
    [
        ("PYBIND11_MODULE(a, m) {}", "kernel_eval/python.h"),
        ("py::object o;", "kernel_eval/python.h"),
        ("torch::autograd::AutogradContext* c;", "torch/csrc/autograd/custom_function.h"),
        ("TORCH_LIBRARY(a, m) {}", "torch/library.h"),
        ("x.index({torch::indexing::Slice()});", "ATen/TensorIndexing.h"),
        ("at::parallel_for(0, n, 1, f);", "ATen/Parallel.h"),
        ("std::mt19937 g; std::normal_distribution<float> d;", "random"),
        ("std::set<int> s;", "set"),
        ("using namespace std;\nset<int> s;", "set"),
        ("auto y = torch::cat({a, b});", "kernel_eval/lists.h"),
        ("at::meshgrid(parts); IValue v;", "kernel_eval/lists.h"),
        ("auto y = x.index({mask});", "kernel_eval/lists.h"),
        ("x.index_put_({mask}, 0);", "ATen/TensorIndexing.h"),
        ("at::globalContext().allowTF32CuBLAS();", "kernel_eval/context.h"),
        ("if (torch::hasCUDA()) f();", "kernel_eval/context.h"),
        ("at::CPUGeneratorImpl* g;", "kernel_eval/context.h"),
        ("#include <ATen/Context.h>\n", "kernel_eval/context.h"),
        ("c10::OptionalStreamGuard guard;", "c10/core/StreamGuard.h"),
        ("c10::Event event(kind);", "c10/core/Event.h"),
        ("std::cout << x;", "ATen/Formatting.h"),
    ],
)
def test_what_a_name_stands_for(code: str, header: str, lean: Path, tmp_path: Path) -> None:
    found = needed(UMBRELLA + code, lean, tmp_path)
    assert found is not None
    assert header in found


def test_lists_are_left_out_of_what_every_operator_includes(lean: Path) -> None:
    torchs = (toolchain.torch_include() / minimal_headers.GUARD).read_text()
    guard, lists = ((lean / name).read_text() for name in (minimal_headers.GUARD, minimal_headers.LISTS))
    assert "IListRef" in torchs and "ListRef" not in guard
    assert guard.count("inline std::optional<Device> device_of(") == 2
    assert "#include <ATen/core/IListRef.h>" in lists and "device_of(ITensorListRef t)" in lists


def test_hooks_are_left_out_of_what_every_operator_includes(lean: Path) -> None:
    context, torchs = ((lean / name).read_text() for name in ("ATen/Context.h", minimal_headers.CONTEXT))
    assert "HooksInterface.h" in torchs and "class TORCH_API Context" in torchs
    assert "Hooks" not in context and "#include <c10/util/irange.h>\n" in context


def test_a_guard_that_looks_otherwise_stays_as_torch_has_it(tmp_path: Path) -> None:
    torchs = toolchain.torch_include()
    other = tmp_path / "include"
    for name in (minimal_headers.GUARD, minimal_headers.TYPES, minimal_headers.FACTORIES, "ATen/Context.h"):
        (other / name).parent.mkdir(parents=True, exist_ok=True)
        (other / name).write_text((torchs / name).read_text().replace("ITensorListRef t)", "ITensorListRef tensors)"))
    minimal_headers.write(tmp_path / "lean", other)
    assert not (tmp_path / "lean" / minimal_headers.GUARD).exists()
    assert "ATen/core/IListRef.h" in (tmp_path / "lean" / minimal_headers.LISTS).read_text()


def test_a_launch_prints_nothing(lean: Path, tmp_path: Path) -> None:
    assert needed(UMBRELLA + "kernel<<<1, 32>>>(p);", lean, tmp_path) == []


@pytest.mark.parametrize(
    "text",
    [
        "int f() { return 1; }",
        UMBRELLA + "torch::nn::Linear layer(1, 2);",
        UMBRELLA + "namespace F = torch::nn::functional; torch::nn::ReLU relu; F::relu(x);",
        UMBRELLA + "torch::linalg::norm(x);",
        UMBRELLA + "#include <torch/script.h>\n",
    ],
)
def test_sources_for_the_stock_headers(text: str, lean: Path, tmp_path: Path) -> None:
    assert needed(text, lean, tmp_path) is None


def test_functions_come_with_the_operators_that_they_call(lean: Path, tmp_path: Path) -> None:
    found = needed(UMBRELLA + "torch::nn::functional::relu(x);", lean, tmp_path)
    assert found is not None and found[-1] == "torch/csrc/api/include/torch/nn/functional.h"
    assert {"ATen/ops/relu.h", "ATen/ops/layer_norm.h", "kernel_eval/context.h"} <= {*found}


def test_names_in_headers_of_its_own(lean: Path, tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "mine.h").write_text(UMBRELLA + "inline auto f(at::Tensor x) { return at::tanh(x); }")
    assert needed('#include "mine.h"\n', lean, tmp_path, tmp_path / "parts") == ["ATen/ops/tanh.h"]
