"""Which GPUs the stack takes: what was asked for, or an error that says what is there."""

from __future__ import annotations

import pytest

from stack.devices import DeviceError, Gpu, chosen

A, B = Gpu(0, "GPU-aaaa-1", "NVIDIA H200"), Gpu(1, "GPU-bbbb-2", "NVIDIA H200")


@pytest.mark.parametrize(
    ("wanted", "taken"),
    [(None, [A, B]), ("", [A, B]), ("1", [B]), ("1, 0", [B, A]), ("0,0", [A]), ("GPU-bbbb", [B]), ("cpu", [])],
)
def test_chosen(wanted: str | None, taken: list[Gpu]) -> None:
    assert chosen([A, B], wanted) == taken


@pytest.mark.parametrize(
    ("gpus", "wanted", "visible", "taken"),
    [([A, B], None, "1", [B]), ([A, B], "0", "1", [A]), ([A, B], None, "", []), ([], None, "0", []), ([], "", "", [])],
)
def test_cuda_s_own_restriction_holds_where_nothing_is_wanted(
    gpus: list[Gpu], wanted: str | None, visible: str, taken: list[Gpu]
) -> None:
    assert chosen(gpus, wanted, visible) == taken


def test_a_gpu_that_is_not_there_is_an_error_not_another_gpu() -> None:
    with pytest.raises(DeviceError, match=r"'2'.*0 \(NVIDIA H200\), 1 \(NVIDIA H200\)"):
        chosen([A, B], "0,2")


def test_asking_for_a_gpu_where_there_is_none_is_an_error() -> None:
    with pytest.raises(DeviceError, match="leave GPU_DEVICE unset or say cpu"):
        chosen([], "0")
