"""Contracts: what the client makes, the service reads, and live arguments arrive with their values."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import kernel_eval_client
from api.schemas.kernel import KernelSchema
from domain.contract import IOContract as ServiceContract
from domain.dtype import ITEM_BYTES
from domain.kernel import KernelType as ServiceKernelType
from kernel_eval_client import (
    IOContract,
    IOContractBuilder,
    Kernel,
    KernelType,
    LaunchConfig,
    LaunchDim,
    Submission,
    TensorInit,
    TensorSpec,
    contract_from,
    create_arange_spec,
    create_full_spec,
    create_ones_spec,
    create_randn_spec,
    create_tensor_spec,
    create_uniform_spec,
    create_zeros_spec,
    cuda,
    errors,
    guess_type,
    load_from_file,
    multi_kernel,
    save_to_file,
    triton,
)
from kernel_eval_client.contract_from_args import DTYPES
from kernel_eval_client.kernel import entry_key
from stack.example import KERNELS, every_example
from tests.mutants.corpus import originals
from validation.compare.bitwise import identical
from validation.inputs.contract_inputs import ContractInputs

ADD = """
import triton
import triton.language as tl

@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    pass
"""


def accepted(io: IOContract, source: str = "", kernel_type: KernelType = KernelType.TORCH) -> ServiceContract:
    """The contract as the service understands it; raises where it refuses."""
    loaded = KernelSchema().load(Kernel(source, kernel_type, io).to_dict())
    return ServiceContract.from_wire(loaded["io"])


def raw(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().reshape(-1).view(torch.uint8)


def test_the_builder_says_what_the_service_reads() -> None:
    io = (
        IOContractBuilder()
        .add_input_tensor("x", create_randn_spec([8], seed=1, std=2.0))
        .add_inout_tensor("y", create_uniform_spec([8], low=-1))
        .add_output_tensor("out", [8], "float16")
        .add_scalar("n", "int", 8)
        .add_meta_param("BLOCK", 8)
        .set_grid("cdiv(n, BLOCK)")
        .set_num_warps(4)
        .set_num_stages(2)
        .build()
    )
    read = accepted(io, ADD, KernelType.TRITON)
    assert [(arg.name, arg.role, arg.is_meta) for arg in read.args] == [
        ("x", "input", False),
        ("y", "inout", False),
        ("out", "output", False),
        ("n", "input", False),
        ("BLOCK", "input", True),
    ]
    assert read.args[0].tensor_spec is not None and read.args[0].tensor_spec.init is not None
    assert read.args[0].tensor_spec.init.std == 2.0
    assert (read.launch.grid, read.launch.num_warps, read.launch.num_stages) == (("cdiv(n, BLOCK)", 1, 1), 4, 2)


@pytest.mark.parametrize(
    "spec",
    [
        create_tensor_spec([2, 3]),
        create_tensor_spec([2], "int32", "randint", 5, low=0, high=9),
        create_zeros_spec([4]),
        create_ones_spec([4], "bfloat16"),
        create_full_spec([4], 2.5),
        create_arange_spec([4], start=1, step=2),
        TensorSpec((2, 2), strides=(1, 2)),
    ],
)
def test_a_contract_survives_its_json(spec: TensorSpec, tmp_path: Path) -> None:
    launch = LaunchConfig(LaunchDim(2, "n"), LaunchDim(32), 4, 2, 1024)
    io = IOContractBuilder().add_input_tensor("x", spec).add_scalar("n", "int", 3).set_launch_config(launch).build()
    kernel = cuda("__global__ void k(){}", io, kernel_name="k")
    save_to_file(kernel, tmp_path / "kernel.json")
    assert load_from_file(tmp_path / "kernel.json", "KernelCode").to_dict() == kernel.to_dict()
    assert IOContract.from_dict(io.to_dict()).to_dict() == io.to_dict()
    accepted(io, kernel.source_code, KernelType.CUDA)


LIVE = [
    torch.randn(3, 5),
    torch.randn(5, 3).t(),
    torch.randn(4, 1).expand(4, 6),
    torch.randn(4, dtype=torch.bfloat16),
    torch.tensor(1.5),
    torch.zeros(0, 4),
    torch.tensor([True, False]),
    torch.tensor([1 + 2j]),
    torch.arange(6, dtype=torch.int64).reshape(2, 3),
    torch.randn(4).to(torch.float8_e4m3fn),
    torch.tensor([0.5, 2.0, 4.0]).to(torch.float8_e8m0fnu),
    torch.arange(6, dtype=torch.uint8).view(torch.float4_e2m1fn_x2).reshape(2, 3).t(),
    torch.randn(3, requires_grad=True),
    np.linspace(0, 1, 7),
    np.arange(12, dtype=np.int16).reshape(3, 4).T,
    np.arange(5, dtype=np.float16)[::-1],
    np.linspace(0, 1, 6, dtype=">f4").reshape(2, 3).T,
    torch.tensor([1 + 2j, 3j]).conj(),
    torch.tensor([1 + 2j, 3j]).conj().imag,
]


@pytest.mark.parametrize("value", LIVE, ids=lambda value: f"{type(value).__name__}-{value.dtype}-{tuple(value.shape)}")
def test_live_tensors_arrive_with_their_values(value: Any) -> None:
    io = accepted(contract_from([value], inline=True))
    native = value if isinstance(value, torch.Tensor) else torch.from_numpy(value.astype(value.dtype.name))
    expected = native.detach().resolve_conj().resolve_neg()
    (arrived,) = ContractInputs(io, "cpu", None).draw(0)
    assert (arrived.dtype, arrived.shape) == (expected.dtype, expected.shape)
    assert torch.equal(raw(arrived), raw(expected))
    if isinstance(value, torch.Tensor) and 0 not in value.shape:
        assert arrived.stride() == value.stride()


def test_scalars_roles_and_names_of_live_arguments() -> None:
    live = {
        "x": torch.ones(4),
        "out": torch.empty(4),
        "n": 4,
        "a": np.float32(2.5),
        "flag": True,
        "bias": None,
        "BLOCK": 128,
    }
    io = contract_from(live, outputs=["out"], meta=["BLOCK"], launch=LaunchConfig(LaunchDim(1)))
    found = [(arg.name, arg.type, arg.role, arg.value, arg.is_meta) for arg in io.args]
    assert found == [
        ("x", "tensor", "input", None, False),
        ("out", "tensor", "output", None, False),
        ("n", "int", "input", 4, False),
        ("a", "float", "input", 2.5, False),
        ("flag", "bool", "input", True, False),
        ("bias", "none", "input", None, False),
        ("BLOCK", "int", "input", 128, True),
    ]
    assert io.args[1].tensor_spec is not None and io.args[1].tensor_spec.data is None, "an output's values stay here"


def test_constants_of_live_arguments() -> None:
    io = contract_from([torch.ones(3, 2).t(), 4], constants=[0])
    assert io.args[0].is_constant and io.args[0].tensor_spec is not None and io.args[0].tensor_spec.strides is None
    built = IOContractBuilder().add_constant("taps", create_randn_spec([3])).build()
    assert [argument.name for argument in accepted(built).constants] == ["taps"] and len(accepted(io).constants) == 1


def test_index_sets_are_drawn_by_the_rule_that_they_follow() -> None:
    live = {
        "values": torch.randn(10, 4),
        "offsets": torch.tensor([0, 3, 3, 10], dtype=torch.int32),
        "lengths": torch.tensor([3, 0, 7]),
        "ids": np.repeat(np.arange(3), [3, 0, 7]),
        "order": torch.tensor([2, 0, 1, 3]),
        "rows": torch.arange(10),
        "ascending": torch.tensor([0, 1, 5]),
        "chosen": torch.tensor([3, 1, 2, 0]),
        "strided": torch.tensor([0, 9, 4, 9, 10, 9])[::2],
    }
    specs = {arg.name: arg.tensor_spec for arg in contract_from(live, inline=["chosen"]).args}
    assert [name for name, spec in specs.items() if spec and spec.data] == ["rows", "ascending", "chosen", "strided"]
    assert [specs[name].init for name in ("offsets", "lengths", "ids", "order")] == [  # type: ignore[union-attr]
        TensorInit("offsets", low=0, high=7, total=10),
        TensorInit("lengths", of="offsets"),
        TensorInit("segments", of="offsets"),
        TensorInit("distinct"),
    ]
    io = accepted(contract_from(live))
    _, offsets, lengths, ids, order, *_ = ContractInputs(io, "cpu", "00" * 16).draw(1)
    assert torch.equal(offsets.long().diff(), lengths) and len(ids) == 10 and sorted(order.tolist()) == [0, 1, 2, 3]
    all_sent = contract_from(live, inline=True).args
    assert all(arg.tensor_spec is not None and arg.tensor_spec.data is not None for arg in all_sent)


def test_without_values_only_shapes_are_sent() -> None:
    io = contract_from([torch.randn(1 << 20, 8)], inline=False)
    assert len(str(io.to_dict())) < 300
    accepted(io)


def test_floats_are_drawn_anew_and_what_is_no_number_to_draw_is_sent() -> None:
    generator = torch.Generator().manual_seed(0)
    live = {
        "x": torch.randn(4096, generator=generator) * 3 + 1,
        "probabilities": np.linspace(0.25, 1.0, 64),
        "scales": torch.tensor([0.5, 1.0, 4.0]).to(torch.float8_e8m0fnu),
        "packed": torch.zeros(64, dtype=torch.uint8).view(torch.float4_e2m1fn_x2),
        "low": (torch.rand(64, generator=generator) - 2).to(torch.bfloat16),
        "ones": torch.ones(8, dtype=torch.float16),
        "one": torch.tensor(2.5),
        "none": torch.zeros(0, 4),
        "index": torch.arange(6),
        "flags": torch.tensor([True, False]),
        "mask": torch.tensor([0.0, -math.inf]),
        "table": torch.randn(4, generator=generator),
    }
    specs = {arg.name: arg.tensor_spec for arg in contract_from(live, inline=["table"]).args}
    assert [name for name, spec in specs.items() if spec and spec.data] == ["index", "flags", "mask", "table"]
    inits = {name: spec.init for name, spec in specs.items() if spec and spec.init}
    assert inits["x"].kind == "randn"
    assert inits["x"].mean == pytest.approx(1, abs=0.2) and inits["x"].std == pytest.approx(3, abs=0.2)
    assert inits["probabilities"] == TensorInit("uniform", low=0.25, high=1.0)
    assert (inits["scales"], inits["packed"]) == (TensorInit("uniform", low=0.5, high=4.0), TensorInit("randn"))
    assert inits["low"].kind == "uniform" and (inits["low"].high or 0) <= -1
    assert [(inits[name].kind, inits[name].fill_value) for name in ("ones", "one")] == [("full", 1.0), ("full", 2.5)]
    assert inits["none"] == TensorInit("randn")
    io = accepted(contract_from(live))
    first, second = (ContractInputs(io, "cpu", "00" * 16).draw(number) for number in (1, 2))
    new = {name for name, a, b in zip(live, first, second, strict=True) if not identical(a, b)}
    assert new == {"x", "probabilities", "scales", "packed", "low", "table"}, "an answer that is remembered is wrong"


@pytest.mark.parametrize(
    ("given", "wire"),
    [
        (64, {"x": 64, "y": 1, "z": 1}),
        ("cdiv(n, 64)", {"x": "cdiv(n, 64)", "y": 1, "z": 1}),
        ([8, "n"], {"x": 8, "y": "n", "z": 1}),
        ((1, 2, 3), {"x": 1, "y": 2, "z": 3}),
        ({"y": 2}, {"x": 1, "y": 2, "z": 1}),
        (LaunchDim(2), {"x": 2, "y": 1, "z": 1}),
    ],
)
def test_a_launch_takes_every_form_of_the_wire(given: Any, wire: dict[str, Any]) -> None:
    assert LaunchConfig(grid=given, block=given).to_dict() == {"grid": wire, "block": wire}
    assert LaunchConfig.from_dict({"grid": given}) == LaunchConfig(grid=given)
    with pytest.raises(ValueError, match="one to three dimensions, not 4"):
        LaunchConfig(grid=[1, 2, 3, 4])


def test_what_cannot_be_sent_is_said_with_its_name() -> None:
    with pytest.raises(TypeError, match="'arg1' is a dict"):
        contract_from([1, {}])
    with pytest.raises(ValueError, match="dtype '<U1' is not known"):
        contract_from([np.array(["a"])])
    with pytest.raises(ValueError, match="inline=False"):
        contract_from([torch.zeros(5 << 20, dtype=torch.int32)])
    with pytest.raises(ValueError, match="none of the 1 arguments"):
        contract_from({"x": 1}, outputs=["y"])


def test_importing_it_loads_no_array_library_and_no_server() -> None:
    code = "import sys, kernel_eval_client; print(*{'torch', 'numpy', 'flask', 'api', 'domain'} & sys.modules.keys())"
    folder = Path(kernel_eval_client.__file__).parents[1]
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stdout.split() == []


def test_the_kernel_types_and_dtypes_are_the_services() -> None:
    assert [kind.value for kind in KernelType] == [kind.value for kind in ServiceKernelType]
    assert set(ITEM_BYTES) == DTYPES


def test_builders_take_text_and_files(tmp_path: Path) -> None:
    path = tmp_path / "kernel.py"
    path.write_text(ADD)
    io = IOContract()
    assert triton(path, io) == triton(ADD, io)
    assert multi_kernel(ADD, io, entry_point="run").to_dict()["metadata"] == {"entry_point": "run"}


def test_a_mistaken_name_or_path_is_told_at_once() -> None:
    io = IOContract()
    assert kernel_eval_client.torch(ADD, io) == kernel_eval_client.torch(ADD, io=io)
    assert kernel_eval_client.torch_cuda(ADD, io).io is io
    with pytest.raises(TypeError, match="functon_name is no metadata of a kernel: did you mean function_name"):
        kernel_eval_client.torch(ADD, functon_name="add")
    with pytest.raises(TypeError, match=r"it has .*kernel_name"):
        cuda(ADD, io, num_warps=4)
    for name in ("kernel.py", "some folder/kernel.cu"):
        with pytest.raises(ValueError, match=r"give pathlib\.Path\("):
            triton(name)


def test_types_are_guessed_as_they_are_declared() -> None:
    known = [
        (example.body[key]["kernel_type"], example.body[key]["source_code"])
        for example in every_example()
        for key in KERNELS
        if key in example.body
    ]
    known += [(original.kernel_type, original.source) for original in originals().values()]
    assert len(known) > 30
    wrong = [(kind, source) for kind, source in known if kind != "multi_kernel" and guess_type(source) != kind]
    assert wrong == []
    assert guess_type("", "kernel.cu") is KernelType.CUDA
    assert guess_type("torch::Tensor run(torch::Tensor x);", "kernel.cu") is KernelType.TORCH_CUDA


def test_an_entry_of_a_cuda_file_is_a_kernel_or_the_function_that_launches() -> None:
    source = """
    template <class T> __global__ void scale(T* x) { }
    extern "C" void solve(float* x) { scale<float><<<1, 1>>>(x); }
    """
    entries = ("solve", "scale<float>", "of_a_macro")
    assert [entry_key(KernelType.CUDA, source, entry) for entry in entries] == [
        "entry_point",
        "kernel_name",
        "kernel_name",
    ]
    other = (KernelType.TRITON, KernelType.MULTI_KERNEL, KernelType.TORCH_CUDA)
    assert [entry_key(kind, source, "solve") for kind in other] == ["kernel_name", "entry_point", "function_name"]


def test_bodies_of_every_form_are_the_requests_that_they_stand_for() -> None:
    old = json.loads(Submission.from_dict({"ref_code": "a", "custom_code": "b", "num_trials": 7, "more": 1}).body())
    assert old == {
        "ref_kernel": {"source_code": "a", "kernel_type": "torch"},
        "custom_kernel": {"source_code": "b", "kernel_type": "torch_cuda"},
        "num_trials": 7,
    }
    for example in every_example():
        submission = Submission.from_dict(example.body)
        assert (submission.path, json.loads(submission.body())) == (example.endpoint, example.body)
    with pytest.raises(errors.CallerError, match="needs a kernel"):
        Submission.from_dict({})
