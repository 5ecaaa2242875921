"""Kernel type `torch`: entries, construction, contract arguments, faults."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from domain.fault import KernelFault
from domain.result import Status
from tests.backends.loading import built, kernel, loaded, refusal, tensor

RELU = """
class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)
"""

LINEAR = """
import torch.nn as nn

class Model(nn.Module):
    def __init__(self, features, out=3):
        super().__init__()
        self.linear = nn.Linear(features, out)

    def forward(self, x):
        return self.linear(x)
"""


def test_a_class_needs_no_import(tmp_path: Path) -> None:
    executable = loaded(kernel(RELU), tmp_path)
    assert executable.entry == "class Model"
    assert executable.call([torch.tensor([-1.0, 2.0])]).tolist() == [0.0, 2.0]


def test_the_sources_own_names_win_over_the_preseeded(tmp_path: Path) -> None:
    source = "F = 3\ndef kernel_fn(x):\n    return x * F"
    assert loaded(kernel(source), tmp_path).call([torch.ones(1)]).tolist() == [3.0]


@pytest.mark.parametrize(
    ("source", "metadata", "entry", "answer"),
    [
        ("class ModelNew(nn.Module):\n    def forward(self, x): return x + 1", {}, "class ModelNew", 2),
        ("def kernel_fn(x): return x + 2\ndef other(x): return x", {}, "function kernel_fn", 3),
        ("def scale(x): return x * 5\ndef get_inputs(): return [1]\ndef _f(x): pass", {}, "function scale", 5),
        ("def f(x): return x * 6\ndef g(x): return x", {"function_name": "f"}, "function f", 6),
        ("def f(x): return x * 6\ndef g(x): return x", {"entry_point": "f"}, "function f", 6),
        ("def f(x): return x\nclass Model:\n    def forward(self, x): return x * 7", {}, "class Model", 7),
        ("class A(nn.Module):\n    def forward(self, x): return x * 8", {"class_name": "A"}, "class A", 8),
        ("class A(nn.Module):\n    def forward(self, x): return x * 8", {"function_name": "A"}, "class A", 8),
        ("class Model(nn.Module):\n    def run(self, x): return x * 9", {"method_name": "run"}, "method Model.run", 9),
    ],
)
def test_entries(source: str, metadata: dict[str, str], entry: str, answer: int, tmp_path: Path) -> None:
    executable = loaded(kernel(source, **metadata), tmp_path)
    assert executable.entry == entry
    assert executable.call([torch.ones(1)]).tolist() == [answer]


@pytest.mark.parametrize("kernel_type", ["torch", "torch_cuda", "triton"])
@pytest.mark.parametrize(("is_reference", "entry"), [(False, "class ModelNew"), (True, "class Model")])
def test_of_two_classes_the_role_decides(kernel_type: str, is_reference: bool, entry: str, tmp_path: Path) -> None:
    source = RELU + RELU.replace("Model", "ModelNew")
    assert loaded(replace(kernel(source, kernel_type), is_reference=is_reference), tmp_path).entry == entry


@pytest.mark.parametrize(
    ("source", "metadata", "words"),
    [
        (
            "def f(x): return x\ndef g(x): return x",
            {},
            ["'Model' not found", "function f, function g", "function_name"],
        ),
        ("x = 5", {}, ["nothing callable"]),
        ("def f(x): return x", {"function_name": "g"}, ["Entry point 'g' not found", "function f"]),
        ("def f(x): return x", {"class_name": "Net"}, ["Entry point 'Net' not found"]),
        ("class Model(nn.Module):\n    def go(self): pass", {"method_name": "run"}, ["'Model.run' not found", "go"]),
        ("def f(x): return x", {"function_name": 3}, ["metadata.function_name has to be a string"]),
    ],
)
def test_a_missing_entry_is_named(source: str, metadata: dict[str, object], words: list[str], tmp_path: Path) -> None:
    fault = refusal(kernel(source, **metadata), tmp_path)
    assert fault.status is Status.COMPILE_ERROR
    for word in words:
        assert word in fault.message


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("def f(x)\n    return x", ["SyntaxError", "line 1", "def f(x)"]),
        ("import no_such_package", ["ModuleNotFoundError", "import no_such_package", "kernel.py", "line 1"]),
        ("x = 1\nboom = 1 / 0", ["ZeroDivisionError", "boom = 1 / 0", "line 2"]),
        ("raise SystemExit(3)", ["SystemExit: 3"]),
        ("raise KeyboardInterrupt", ["KeyboardInterrupt"]),
        ("class Own(BaseException): pass\nraise Own('x')", ["Own: x", "line 2"]),
        ("a = '\0'", ["null byte"]),
        ("```python\nx = 1\n```", ["SyntaxError", "Markdown"]),
        ("Here it is:\n```python\nx = 1\n```", ["SyntaxError", "Markdown"]),
        ("def f():\n" + "(" * 10000, ["SyntaxError"]),
    ],
)
def test_a_source_that_does_not_import(source: str, words: list[str], tmp_path: Path) -> None:
    fault = refusal(kernel(source), tmp_path)
    assert fault.status is Status.COMPILE_ERROR
    for word in words:
        assert word in fault.message + fault.log
    assert str(tmp_path) not in fault.message + fault.log
    assert "source.py" not in fault.log


def test_text_that_is_no_text(tmp_path: Path) -> None:
    assert refusal(kernel("x = '\ud800'"), tmp_path).status is Status.COMPILE_ERROR


def test_a_failed_import_leaves_no_module(tmp_path: Path) -> None:
    before = set(sys.modules)
    refusal(kernel("1 / 0"), tmp_path)
    assert not {name for name in set(sys.modules) - before if name.startswith("_submission")}


def test_the_source_can_be_inspected(tmp_path: Path) -> None:
    source = "import inspect\nfrom __future__ import annotations\n"
    assert refusal(kernel(source), tmp_path).status is Status.COMPILE_ERROR
    source = "from __future__ import annotations\nimport inspect\ndef f(x): return inspect.getsource(f)"
    executable = loaded(kernel(source), tmp_path)
    assert executable.call([1]) == "def f(x): return inspect.getsource(f)\n"


@pytest.mark.parametrize(
    "init",
    ["[4]", "(4, 3)", "{'features': 4}", "[[4], {'out': 3}]", "[[], {'features': 4}]", "[[4], {}]"],
)
def test_constructor_arguments_of_the_source(init: str, tmp_path: Path) -> None:
    executable = loaded(kernel(f"{LINEAR}\ndef get_init_inputs():\n    return {init}"), tmp_path, init=[1, 2, 3])
    assert executable.arguments().init is not None
    assert executable.call([torch.ones(2, 4)]).shape == (2, 3)


def test_a_list_and_a_dict_may_be_two_arguments(tmp_path: Path) -> None:
    source = """
    class Model(nn.Module):
        def __init__(self, sizes, options):
            super().__init__()
            self.answer = sizes[0] + options["b"]
        def forward(self, x):
            return x + self.answer
    def get_init_inputs():
        return [[1], {"b": 2}]
    """
    assert loaded(kernel(source), tmp_path).call([torch.zeros(1)]).tolist() == [3.0]


def test_constructor_arguments_of_the_reference(tmp_path: Path) -> None:
    executable = loaded(kernel(LINEAR), tmp_path, init=[4])
    assert executable.arguments().init is None
    assert executable.call([torch.ones(2, 4)]).shape == (2, 3)
    assert loaded(kernel(RELU), tmp_path, init=[4]).call([torch.ones(1)]).tolist() == [1.0]
    own = f"{LINEAR}\ndef get_init_inputs():\n    return [99]"
    assert loaded(kernel(own), tmp_path, init=[4]).call([torch.ones(2, 4)]).shape == (2, 3)


@pytest.mark.parametrize("own", ["[]", "[4, 2]", "[{'features': 4, 'out': 2}]"])
def test_a_source_with_another_number_of_constructor_arguments_gets_its_own(own: str, tmp_path: Path) -> None:
    source = LINEAR.replace("features, out=3", "features=4, out=3")
    executable = loaded(kernel(f"{source}\ndef get_init_inputs():\n    return {own}"), tmp_path, init=[7])
    assert executable.call([torch.ones(2, 4)]).shape[0] == 2


@pytest.mark.parametrize(
    "parameters", ["rows, columns", "columns, rows", "*, columns, rows", "rows, *, columns", "columns, depth=9, rows=0"]
)
@pytest.mark.parametrize("own", ["", "\ndef get_init_inputs(): return [8, 9]"])
def test_constructor_arguments_reach_the_parameters_of_their_names(parameters: str, own: str, tmp_path: Path) -> None:
    source = """
class {}(nn.Module):
    def __init__(self, {}):
        super().__init__()
        self.shape = rows, columns
    def forward(self, x): return x.expand(self.shape)
"""
    reference = source.format("Model", "rows, columns") + "def get_init_inputs(): return [2, 3]"
    given = kernel(source.format("ModelNew", parameters) + own)
    executable = loaded(given, tmp_path, like=loaded(kernel(reference), tmp_path))
    assert executable.call([torch.ones(1)]).shape == (2, 3)


def test_other_names_get_constructor_arguments_by_position(tmp_path: Path) -> None:
    reference = loaded(kernel(f"{LINEAR}\ndef get_init_inputs(): return [4, 2]"), tmp_path)
    own = LINEAR.replace("features, out=3", "size, to").replace("Linear(features, out)", "Linear(size, to)")
    assert loaded(kernel(own), tmp_path, like=reference).call([torch.ones(1, 4)]).shape == (1, 2)


def test_a_constructor_that_fails(tmp_path: Path) -> None:
    fault = refusal(kernel(LINEAR), tmp_path)
    assert fault.status is Status.RUNTIME_ERROR
    assert "constructing class Model" in fault.message
    assert "'features'" in fault.message
    assert fault.compiled


def test_the_same_layers_start_from_the_same_weights(tmp_path: Path) -> None:
    source = f"{LINEAR}\ndef get_init_inputs():\n    return [4]"
    first = loaded(kernel(source), tmp_path)
    torch.rand(3)
    second = loaded(kernel(source), tmp_path)
    assert torch.equal(first.state()["linear.weight"], second.state()["linear.weight"])


def test_weights_are_copied_where_all_names_and_shapes_match(tmp_path: Path) -> None:
    source = f"{LINEAR}\ndef get_init_inputs():\n    return [4]"
    executable, other = loaded(kernel(source), tmp_path), loaded(kernel(RELU), tmp_path)
    weights = {name: torch.full_like(value, 2.0) for name, value in executable.state().items()}
    assert executable.load_state(weights)
    assert executable.call([torch.ones(1, 4)]).tolist() == [[10.0] * 3]
    assert not executable.load_state({**weights, "more": torch.ones(1)})
    assert not executable.load_state({**weights, "linear.bias": torch.ones(9)})
    assert executable.call([torch.ones(1, 4)]).tolist() == [[10.0] * 3]
    assert not other.load_state(weights)


def test_weights_are_copied_beside_what_a_module_has_of_its_own(tmp_path: Path) -> None:
    own = "\n        self.register_buffer('mine', torch.zeros(3))\n        self.more = nn.Parameter(torch.ones(2))\n"
    source = LINEAR.replace("out)\n", f"out){own}") + "\ndef get_init_inputs():\n    return [4]"
    executable = loaded(kernel(source), tmp_path)
    assert executable.load_state({"linear.weight": torch.full((3, 4), 2.0), "linear.bias": torch.full((3,), 2.0)})
    assert executable.call([torch.ones(1, 4)]).tolist() == [[10.0] * 3]
    assert executable.state()["mine"].tolist() == [0.0] * 3 and executable.state()["more"].tolist() == [1.0] * 2


@pytest.mark.parametrize(
    ("own", "copied"), [("int8", False), ("bool", False), ("complex64", False), ("bfloat16", True), ("float64", True)]
)
def test_weights_of_another_kind_of_dtype_are_not_copied(own: str, copied: bool, tmp_path: Path) -> None:
    buffers = f"self.a = nn.Parameter(torch.ones(2)); self.register_buffer('b', torch.ones(2, dtype=torch.{own}))"
    source = f"class Model(nn.Module):\n    def __init__(self):\n        super().__init__(); {buffers}\n"
    executable = loaded(kernel(source + "    def forward(self, x): return x"), tmp_path)
    assert executable.load_state({"a": torch.full((2,), 0.5), "b": torch.full((2,), 0.5)}) is copied
    assert executable.state()["a"].tolist() == [0.5 if copied else 1.0] * 2


def test_weights_are_copied_into_expanded_buffers_and_lazy_modules(tmp_path: Path) -> None:
    expanded = "self.register_buffer('mask', torch.ones(1, 3).expand(2, 3))"
    module = "import torch\nfrom torch import nn\nclass Model(nn.Module):\n"
    module += "    def __init__(self):\n        super().__init__()\n"
    forward = "\n    def forward(self, x):\n        return "
    executable = loaded(kernel(f"{module}        {expanded}{forward}x * self.mask"), tmp_path)
    assert executable.load_state({"mask": torch.tensor([[1.0, 2.0, 3.0]] * 2)})
    assert executable.call([torch.ones(2, 3)]).tolist() == [[1, 2, 3]] * 2
    lazy = loaded(kernel(f"{module}        self.linear = nn.LazyLinear(3){forward}self.linear(x)"), tmp_path)
    assert lazy.state() == {}
    assert not lazy.load_state({"linear.weight": torch.ones(3, 2)})
    assert lazy.load_state({"linear.weight": torch.ones(3, 2), "linear.bias": torch.ones(3)})
    assert lazy.call([torch.ones(1, 2)]).tolist() == [[3] * 3]


def test_a_call_that_differentiates_is_told_how(tmp_path: Path) -> None:
    source = "def kernel_fn(x):\n    x.requires_grad_()\n    return torch.autograd.grad((x * x).sum(), x)[0]"
    with pytest.raises(KernelFault, match=r"under torch.no_grad\(\): .*torch.enable_grad\(\)"):
        loaded(kernel(source), tmp_path).call([torch.ones(3)])
    inside = source.replace("\n    ", "\n        ").replace("(x):", "(x):\n    with torch.enable_grad():")
    assert loaded(kernel(inside), tmp_path).call([torch.ones(3)]).tolist() == [2.0] * 3


def test_own_inputs_follow_the_seed(tmp_path: Path) -> None:
    source = f"import random\n{RELU}\ndef get_inputs():\n    return torch.rand(3), random.random()"
    executable = loaded(kernel(source), tmp_path)
    first, again, other = executable.own_inputs(1), executable.own_inputs(1), executable.own_inputs(2)
    assert first is not None and again is not None and other is not None
    assert torch.equal(first[0], again[0]) and first[1] == again[1]
    assert not torch.equal(first[0], other[0]) and first[1] != other[1]


@pytest.mark.parametrize(
    "decorator", ["@staticmethod\n    def get_inputs():", "def get_inputs(self):", "def get_inputs():"]
)
def test_own_inputs_as_a_method(decorator: str, tmp_path: Path) -> None:
    executable = loaded(kernel(f"{RELU}\n    {decorator}\n        return torch.ones(3)"), tmp_path)
    inputs = executable.own_inputs(1)
    assert inputs is not None
    assert [item.tolist() for item in inputs] == [[1.0] * 3]


def test_own_inputs_without_a_return_say_so(tmp_path: Path) -> None:
    executable = loaded(kernel(f"{RELU}\ndef get_inputs():\n    [torch.ones(2)]"), tmp_path)
    with pytest.raises(KernelFault, match=r"get_inputs\(\) returned None; end it with `return"):
        executable.own_inputs(1)


def test_no_own_inputs(tmp_path: Path) -> None:
    assert loaded(kernel(RELU), tmp_path).own_inputs(1) is None


@pytest.mark.parametrize(
    "source",
    [
        f"{RELU}\ndef get_inputs():\n    return [torch.ones(2).cuda()]",
        f"{RELU}\ndef get_inputs():\n    return [torch.ones(2, device='cuda')]",
        f"{RELU}\ndef get_inputs():\n    return [torch.ones(2).normal_(generator=torch.Generator('cuda'))]",
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_inputs_on_a_gpu_that_is_not_there(source: str, tmp_path: Path) -> None:
    executable = loaded(kernel(source), tmp_path)
    with pytest.raises(KernelFault) as caught:
        executable.own_inputs(1)
    assert caught.value.status is Status.UNSUPPORTED
    assert "this worker has no GPU" in caught.value.message


@pytest.mark.parametrize(
    "line",
    [
        "x = torch.ones(1).cuda()",
        "assert torch.cuda.is_available()",
        "torch.cuda._compile_kernel('__global__ void f() {}', 'f')",
        "import cupy; cupy.ones(1)",
        pytest.param(
            "from torch._C import _cuda_getCurrentRawStream",
            marks=pytest.mark.skipif(torch.version.cuda is not None, reason="a torch with CUDA has this function"),
        ),
        "torch.empty(1, device=torch.accelerator.current_device_index())",
        "assert torch.ones(1).is_cuda, 'on the host'",
        "x = torch.ones(1); assert x.is_cuda == True",
        "if not torch.ones(1).is_cuda: raise ValueError('x must be a CUDA tensor')",
        "raise RuntimeError('this kernel requires a GPU')",
        "raise ValueError('x must be a CUDA tensor')",
        "raise RuntimeError('CUDA is not available')",
    ],
)
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_source_that_insists_on_a_gpu(line: str, tmp_path: Path) -> None:
    fault = refusal(kernel(f"{line}\n{RELU}"), tmp_path)
    assert fault.status is Status.UNSUPPORTED, fault.message
    assert not fault.compiled


@pytest.mark.parametrize(
    "line",
    [
        "raise ValueError('boom')  # cuda",
        "raise ValueError('a bad cuda thing')",
        "raise ValueError('the gpu_id of it')  # there must be one",
        pytest.param(f"raise ValueError('{'; raise gpu' * 5000}')", id="a long line"),
    ],
)
def test_the_word_alone_is_no_check_for_a_gpu(line: str, tmp_path: Path) -> None:
    fault = refusal(kernel(f"{line}\n{RELU}"), tmp_path)
    assert fault.status is Status.COMPILE_ERROR, fault.message


def test_an_error_that_is_its_own_cause_is_reported(tmp_path: Path) -> None:
    source = "try: 1 / 0\nexcept ZeroDivisionError as error: raise error from error"
    assert "ZeroDivisionError: division by zero" in refusal(kernel(source), tmp_path).message


OPERATOR = """
import torch

@torch.library.custom_op("judged::{name}", mutates_args=(), device_types="{device}")
def double(x: torch.Tensor) -> torch.Tensor:
    return torch.stack(2 * x)

def kernel_fn(x):
    return double(x)
"""


@pytest.mark.parametrize(("device", "status"), [("cuda", Status.UNSUPPORTED), ("cpu", Status.RUNTIME_ERROR)])
@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_an_operator_for_cuda_only_asks_for_a_gpu(device: str, status: Status, tmp_path: Path) -> None:
    source = OPERATOR.format(name=f"double_on_{device}", device=device)
    with pytest.raises(KernelFault) as caught:
        loaded(kernel(source), tmp_path).call([torch.ones(3)])
    assert caught.value.status is status, caught.value.message


LENGTH = {"name": "n", "type": "int", "value": 2}


def test_outputs_are_left_out_where_the_signature_has_no_room(tmp_path: Path) -> None:
    io = {"args": [tensor("x", 2), tensor("out", 2, role="output"), {"name": "n", "type": "int", "value": 3}]}
    x, out = torch.ones(2), torch.zeros(2)
    returning = loaded(kernel("def kernel_fn(x, n): return x * n", io=io), tmp_path)
    assert returning.call([x, out, 3]).tolist() == [3.0, 3.0]
    writing = loaded(kernel("def kernel_fn(x, out, n): out.copy_(x * n)", io=io), tmp_path)
    assert writing.call([x, out, 3]) is None
    assert out.tolist() == [3.0, 3.0]


def test_scalars_are_left_out_where_the_signature_names_none_of_them(tmp_path: Path) -> None:
    io = {"args": [tensor("x", 2), tensor("y", 2), tensor("out", 2, role="output"), LENGTH]}
    x, y, out = torch.ones(2), torch.ones(2), torch.zeros(2)
    reading = loaded(kernel("def kernel_fn(a, b): return a + b", io=io), tmp_path)
    assert reading.call([x, y, out, 2]).tolist() == [2.0, 2.0]
    with pytest.raises(KernelFault, match="takes 2 positional arguments but"):
        loaded(kernel("def kernel_fn(x, n): return x * n", io=io), tmp_path).call([x, y, out, 2])


def test_another_kernels_scalars_are_left_out_where_the_tensors_are_all_it_takes(tmp_path: Path) -> None:
    x, y = torch.ones(2), torch.ones(2)
    assert loaded(kernel("def kernel_fn(a, b): return a + b"), tmp_path).call([x, y, 2]).tolist() == [2.0, 2.0]
    assert loaded(kernel("def kernel_fn(a, b, n): return (a + b) * n"), tmp_path).call([x, y, 2]).tolist() == [4.0, 4.0]
    source = "def kernel_fn(a): return a\ndef get_inputs(): return [torch.ones(2), 2]"
    with pytest.raises(KernelFault, match="takes 1 positional argument but 2 were given"):
        loaded(kernel(source), tmp_path).call([x, 2])


def test_too_few_parameters_for_the_contract(tmp_path: Path) -> None:
    executable = loaded(kernel("def kernel_fn(x): return x", io={"args": [tensor("x", 2), tensor("y", 2)]}), tmp_path)
    with pytest.raises(KernelFault) as caught:
        executable.call([torch.ones(2), torch.ones(2)])
    assert caught.value.status is Status.RUNTIME_ERROR
    assert "takes 1 positional argument but 2 were given" in caught.value.message


def test_a_call_that_fails_shows_the_sources_line(tmp_path: Path) -> None:
    executable = loaded(kernel("def kernel_fn(x):\n    return x @ torch.ones(5, 5)"), tmp_path)
    with pytest.raises(KernelFault) as caught:
        executable.call([torch.ones(3, 3)])
    assert "shapes cannot be multiplied" in caught.value.message
    assert 'File "kernel.py", line 2' in caught.value.log
    assert "python_source.py" not in caught.value.log


def test_out_of_memory(tmp_path: Path) -> None:
    executable = loaded(kernel("def kernel_fn(x): return torch.empty(1 << 50)"), tmp_path)
    with pytest.raises(KernelFault) as caught:
        executable.call([torch.ones(1)])
    assert caught.value.status is Status.OUT_OF_MEMORY


@pytest.mark.parametrize(
    "text",
    [
        "CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`",
        "cuFFT error: CUFFT_ALLOC_FAILED",
        "cuDNN error: CUDNN_STATUS_INTERNAL_ERROR_DEVICE_ALLOCATION_FAILED",
    ],
)
def test_a_library_that_finds_no_memory_is_out_of_memory(tmp_path: Path, text: str) -> None:
    executable = loaded(kernel(f"def kernel_fn(x): raise RuntimeError({text!r})"), tmp_path)
    with pytest.raises(KernelFault) as caught:
        executable.call([torch.ones(1)])
    assert caught.value.status is Status.OUT_OF_MEMORY


def test_no_gradient_is_recorded(tmp_path: Path) -> None:
    source = f"{LINEAR}\ndef get_init_inputs():\n    return [4]"
    assert not loaded(kernel(source), tmp_path).call([torch.ones(2, 4)]).requires_grad


def test_a_triton_kernel_may_be_defined_inside(tmp_path: Path) -> None:
    source = """
    import triton
    import triton.language as tl

    @triton.jit
    def copy(x, y, n: tl.constexpr):
        i = tl.arange(0, n)
        tl.store(y + i, tl.load(x + i))

    def kernel_fn(x):
        return copy.fn.__name__
    """
    assert loaded(kernel(source), tmp_path).call([1]) == "copy"


def test_what_a_build_says(tmp_path: Path) -> None:
    artifact = built(kernel(RELU), tmp_path)
    assert artifact.facts["entry"] == "class Model"
    assert artifact.deferred is None


def test_inputs_by_name_come_in_calling_order(tmp_path: Path) -> None:
    source = """
    def kernel_fn(x, scale=2.0, y=None): return x * scale + y
    def get_inputs(): return {"y": torch.ones(2), "x": torch.zeros(2)}
    """
    executable = loaded(kernel(source), tmp_path)
    inputs = executable.own_inputs(1)
    assert inputs is not None and [len(inputs), inputs[1]] == [3, 2.0]
    assert executable.call(inputs).tolist() == [1.0, 1.0]


@pytest.mark.parametrize("signature", ["(batch)", "(batch, *, x=1)", "(batch, **options)"])
def test_a_dict_that_names_no_parameters_is_an_argument(signature: str, tmp_path: Path) -> None:
    source = f"""
    def kernel_fn{signature}: return 1
    def get_inputs(): return {{"x": torch.ones(2), "y": 1}}
    """
    inputs = loaded(kernel(source), tmp_path).own_inputs(1)
    assert inputs is not None and len(inputs) == 1 and isinstance(inputs[0], dict)


def test_a_class_that_is_only_callable(tmp_path: Path) -> None:
    executable = loaded(kernel("class Model:\n    def __call__(self, x): return x + 1"), tmp_path)
    assert (executable.entry, executable.call([1])) == ("class Model", 2)


def test_a_module_without_forward_is_a_missing_entry(tmp_path: Path) -> None:
    found = refusal(kernel("class Model(nn.Module):\n    def run(self, x): return x"), tmp_path)
    assert found.status is Status.COMPILE_ERROR
    assert found.message == "Entry point 'Model.forward' not found; class Model has: run"


def test_a_constructor_that_lacks_its_arguments_says_where_they_come_from(tmp_path: Path) -> None:
    source = (
        "class Model(nn.Module):\n    def __init__(self, width): super().__init__()\n    def forward(self, x): return x"
    )
    assert "no get_init_inputs() to give its arguments, and none of" in refusal(kernel(source), tmp_path).message
    with pytest.raises(KernelFault, match="and the reference's 3 do not fit"):
        loaded(kernel(source), tmp_path, init=[1, 2, 3])
    with pytest.raises(KernelFault, match="constructing class Model: TypeError"):
        loaded(kernel(source.replace("super().__init__()", "len(width)")), tmp_path, init=[1])


def test_an_exception_that_cannot_say_what_it_is(tmp_path: Path) -> None:
    source = """
    class Mute(Exception):
        def __str__(self): raise ValueError("no")
    def kernel_fn(x): raise Mute()
    """
    with pytest.raises(KernelFault, match=r"calling function kernel_fn: Mute: \(its text cannot be had: ValueError\)"):
        loaded(kernel(source), tmp_path).call([1])
    with pytest.raises(KernelFault, match="Mute"):
        loaded(kernel(source), tmp_path).inferred_inputs(1)
