"""The arguments of a contract, and a reference's inputs mapped onto a candidate's contract."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest
import torch

from domain.contract import Argument, IOContract, TensorInit, TensorSpec
from domain.dtype import COMPLEX, FLOATS
from domain.fault import KernelFault
from domain.paths import ROOT
from domain.result import Status
from validation.compare.bitwise import identical
from validation.inputs import poison_fill
from validation.inputs.contract_inputs import GROUP, GROUP_BYTES, ContractInputs, arguments_for
from validation.inputs.tensor_source import TensorSource


def tensor(
    name: str,
    *shape: int,
    role: str = "input",
    dtype: str = "float32",
    strides: tuple[int, ...] | None = None,
    **init: Any,
) -> Argument:
    content = TensorInit(**init) if init else None
    return Argument(name, "tensor", tensor_spec=TensorSpec(shape, dtype, strides, content), role=role)


def contract(*args: Argument) -> IOContract:
    return IOContract(args)


def draw(io: IOContract, fresh: int = 0, secret: int = 11) -> list[Any]:
    return ContractInputs(io, "cpu", secret).draw(fresh)


N = Argument("n", "int", value=4)
ADD = contract(tensor("x", 4), tensor("y", 4), tensor("out", 4, role="output"), N)


def test_a_draw_has_every_argument_in_order() -> None:
    x, y, out, n = draw(ADD)
    assert n == 4
    assert not identical(x, y)
    assert poison_fill.unwritten_fraction(out) == 1.0
    assert x.isfinite().all()
    assert all(identical(one, other) for one, other in zip(draw(ADD)[:2], [x, y], strict=True))


def test_scalars_and_outputs_with_content_come_as_declared() -> None:
    flag, text = Argument("flag", "bool", value=True), Argument("mode", "str", value="sum")
    io = contract(flag, tensor("total", 2, role="output", kind="zeros"), text, tensor("acc", 2, role="inout"))
    drawn = draw(io)
    assert drawn[0] is True
    assert drawn[1].tolist() == [0, 0]
    assert drawn[2] == "sum"
    assert drawn[3].isfinite().all()


def test_contract_seeds_hold_in_the_first_set_only() -> None:
    io = contract(tensor("x", 64, seed=42))
    first = draw(io, secret=1)[0]
    assert identical(first, torch.randn(64, generator=torch.Generator().manual_seed(42)))
    assert identical(first, draw(io, secret=2)[0])
    assert not identical(draw(io, fresh=1, secret=1)[0], draw(io, fresh=1, secret=2)[0])


@pytest.mark.parametrize(
    ("io", "repeats"),
    [
        (ADD, False),
        (contract(tensor("x", 4, kind="ones"), tensor("y", 4, kind="arange")), True),
        (contract(tensor("x", 4, kind="ones"), tensor("y", 4, seed=3)), False),
        (contract(tensor("x", 4, kind="ones"), tensor("out", 4, role="output", kind="randn")), True),
        (contract(tensor("x", 0), tensor("y", 2, 0)), True),
        (contract(N), True),
        (contract(), True),
    ],
)
def test_repeats_says_whether_fresh_sets_are_equal(io: IOContract, repeats: bool) -> None:
    inputs = ContractInputs(io, "cpu", 11)
    assert inputs.repeats is repeats
    indexes = [index for index, argument in enumerate(io.args) if argument.is_tensor and argument.role == "input"]
    first, second = inputs.draw(0), inputs.draw(1)
    assert all(identical(first[index], second[index]) for index in indexes) is repeats


def test_the_size_of_a_set_is_known_before_it_is_drawn() -> None:
    assert ContractInputs(ADD, "cpu", None).nbytes == 3 * 16
    assert ContractInputs(contract(tensor("x", 3, 5, dtype="complex128")), "cpu", None).nbytes == 240
    assert ContractInputs(contract(tensor("x", 3, 4, strides=(8, 2))), "cpu", None).nbytes == (2 * 8 + 3 * 2 + 1) * 4
    assert ContractInputs(contract(tensor("x", 1000, 4, strides=(0, 1))), "cpu", None).nbytes == 4 * 4


@pytest.mark.parametrize(
    ("elements", "together"), [(4, GROUP), (GROUP_BYTES // 3 // 4 // 5, 5), (GROUP_BYTES // 3 // 4 + 1, 1)]
)
def test_as_many_sets_are_drawn_together_as_all_of_their_tensors_have_room(
    monkeypatch: pytest.MonkeyPatch, elements: int, together: int
) -> None:
    asked: list[int] = []

    class Asked(TensorSource):
        def __init__(self, *spec: Any, group: int, **more: Any) -> None:
            asked.append(group)
            super().__init__(*spec, group=group, **more | {"blank": True})  # Nothing has to be drawn.

    monkeypatch.setattr("validation.inputs.contract_inputs.TensorSource", Asked)
    ContractInputs(contract(*(tensor(name, elements) for name in "xyz")), "cpu", 1).draw(1)
    assert asked == [together] * 3


def test_a_dtype_that_nobody_knows_is_the_contracts_fault() -> None:
    with pytest.raises(KernelFault, match="argument 'x': unknown dtype 'float12'") as fault:
        draw(contract(tensor("x", 4, dtype="float12")), fresh=1)
    assert fault.value.status is Status.CONTRACT_MISMATCH


def test_a_faulty_spec_is_refused_by_the_arguments_name() -> None:
    with pytest.raises(KernelFault, match="argument 'weights': 300 is outside int8") as fault:
        draw(contract(tensor("weights", 2, dtype="int8", kind="full", fill_value=300)))
    assert fault.value.status is Status.CONTRACT_MISMATCH
    with pytest.raises(KernelFault, match="argument 'steps': cannot convert float infinity") as fault:
        draw(contract(tensor("steps", 4, dtype="int16", kind="arange", step=1e308)))
    assert fault.value.status is Status.CONTRACT_MISMATCH
    with pytest.raises(KernelFault, match="argument 'x' is a tensor: give it a tensor_spec"):
        draw(contract(Argument("x", "tensor")))


def test_what_does_not_fit_in_memory_is_the_contracts_fault() -> None:
    with pytest.raises(
        KernelFault, match=r"argument 'x', shape \[10000000000000\] of dtype float32, does not fit"
    ) as fault:
        draw(contract(tensor("x", 10**13)))
    assert fault.value.status is Status.OUT_OF_MEMORY


def mapped(candidate: IOContract, reference: IOContract, fresh: int = 1) -> tuple[list[Any], list[Any]]:
    """The candidate's arguments and the reference's, for one fresh set; the two have secrets of their own."""
    given = draw(reference, fresh)
    return arguments_for(candidate, draw(candidate, fresh, secret=99), reference, given), given


def test_inputs_go_by_name_whatever_their_order() -> None:
    candidate = contract(tensor("y", 4), N, tensor("x", 4), tensor("out", 4, role="output"))
    arguments, given = mapped(candidate, ADD)
    assert arguments[0] is given[1]
    assert arguments[2] is given[0]
    assert arguments[1] == 4
    assert poison_fill.unwritten_fraction(arguments[3]) == 1.0


def test_inputs_go_by_position_when_the_names_differ() -> None:
    arguments, given = mapped(contract(tensor("out", 4, role="output"), tensor("a", 4), tensor("b", 4)), ADD)
    assert arguments[1] is given[0]
    assert arguments[2] is given[1]


def test_named_inputs_are_placed_first_and_the_rest_in_order() -> None:
    candidate = contract(tensor("y", 4), tensor("a", 4))
    arguments, given = mapped(candidate, ADD)
    assert arguments[0] is given[1]
    assert arguments[1] is given[0]


def test_a_reference_without_a_contract_gives_its_tensors_in_order() -> None:
    a, b = torch.randn(4), torch.randn(4)
    arguments = arguments_for(ADD, draw(ADD), None, [3, {"a": a}, "text", [b, None]])
    assert arguments[0] is a
    assert arguments[1] is b


def test_inputs_come_in_the_candidates_layout() -> None:
    candidate = contract(tensor("x", 3, 2, strides=(1, 3)), tensor("y", 3, 2))
    reference = contract(tensor("x", 3, 2), tensor("y", 3, 2, strides=(1, 3)))
    arguments, given = mapped(candidate, reference)
    assert arguments[0].stride() == (1, 3)
    assert arguments[1].is_contiguous()
    assert all(identical(one, other) for one, other in zip(arguments, given, strict=True))


def test_own_draws_stay_as_they_were() -> None:
    candidate = contract(tensor("x", 3, 2, strides=(1, 3)))
    own = draw(candidate)
    before = own[0].clone()
    arguments_for(candidate, own, contract(tensor("x", 3, 2)), draw(contract(tensor("x", 3, 2)), 5))
    assert identical(own[0], before)


def test_accumulators_and_work_spaces_need_no_counterpart() -> None:
    reference = contract(tensor("data", 8))
    for extra in (
        tensor("bins", 3, role="inout", kind="zeros"),
        tensor("work", 3, kind="empty"),
        tensor("table", 3, kind="arange"),
    ):
        for candidate in (contract(extra, tensor("values", 8)), contract(tensor("values", 8), extra)):
            arguments, given = mapped(candidate, reference)
            place = next(index for index, argument in enumerate(candidate.args) if argument is not extra)
            assert arguments[place] is given[0]
            assert identical(arguments[1 - place], draw(candidate)[1 - place])


def test_inout_tensors_take_the_references_content() -> None:
    reference = contract(tensor("state", 4, role="inout"))
    arguments, given = mapped(contract(tensor("state_ptr", 4, role="inout")), reference)
    assert arguments[0] is given[0]


@pytest.mark.parametrize(
    ("candidate", "message"),
    [
        (contract(tensor("x", 5), tensor("y", 4)), r"'x' .*shape \[5\] .*'x' has shape \[4\]"),
        (contract(tensor("x", 4), tensor("y", 2, 2)), r"'y' .*shape \[2, 2\] .*'y' has shape \[4\]"),
        (contract(tensor("x", 4, dtype="float16"), tensor("y", 4)), "'x' .*float16.*float32"),
        (contract(tensor("a", 4), tensor("b", 4, dtype="int32")), "'b' .*int32.*reference's 'y'.*float32"),
        (contract(tensor("a", 4), tensor("b", 4), tensor("c", 4)), "takes 3 input tensors, the reference has 2.*'c'"),
        (contract(tensor("a", 4)), "takes 1 input tensors, the reference has 2"),
    ],
)
def test_conflicts_are_refused_with_both_sides(candidate: IOContract, message: str) -> None:
    with pytest.raises(KernelFault, match=message) as fault:
        mapped(candidate, ADD)
    assert fault.value.status is Status.CONTRACT_MISMATCH


def test_a_candidate_may_leave_out_inputs_that_the_names_tell() -> None:
    arguments, given = mapped(contract(tensor("y", 4)), ADD)
    assert arguments[0] is given[1]


@pytest.mark.parametrize("name", sorted(FLOATS | COMPLEX))
def test_an_output_begins_as_nan_and_as_a_number_in_turn(name: str) -> None:
    """Else what is right as NaN need not be written."""
    given = ContractInputs(contract(tensor("out", 8, role="output", dtype=name)), "cpu", 1)
    sets = [given.draw(fresh)[0] for fresh in range(4)]
    assert [bool(each.to(torch.complex128).isfinite().all()) for each in sets] == [False, True, False, True]
    assert [poison_fill.unwritten_fraction(each) for each in sets] == [1.0] * 4


SHORT_OF_MEMORY = """
import resource, sys
import torch
from domain.contract import Argument, IOContract, TensorSpec
from domain.fault import InfrastructureFault, KernelFault
from validation.inputs.contract_inputs import ContractInputs

torch.ones(8).sum()
io = IOContract((Argument("x", "tensor", tensor_spec=TensorSpec((int(sys.argv[1]),))),))
used = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (used + (64 << 20), resource.RLIM_INFINITY))
try:
    ContractInputs(io, "cpu", 7).draw(0)
except (InfrastructureFault, KernelFault) as fault:
    print(type(fault).__name__)
"""


@pytest.mark.parametrize(
    ("elements", "whose"), [(64 << 20, "InfrastructureFault"), (1 << 42, "KernelFault")], ids=["256 MiB", "16 TiB"]
)
def test_memory_that_the_host_has_and_others_took_is_not_the_contracts_fault(elements: int, whose: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", SHORT_OF_MEMORY, str(elements)],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.stdout.strip(), done.returncode) == (whose, 0), done.stderr
