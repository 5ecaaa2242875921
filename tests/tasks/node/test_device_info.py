"""The device that a worker judges on: what its card is called for short."""

from __future__ import annotations

import pytest

from tasks.node.device_info import GPU_TYPES, Device, type_of


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("NVIDIA A100-SXM4-80GB", "a100"),
        ("NVIDIA A100 80GB PCIe", "a100"),
        ("NVIDIA H100 80GB HBM3", "h100"),
        ("NVIDIA H200 NVL", "h200"),
        ("NVIDIA GH200 480GB", "gh200"),
        ("NVIDIA GB200", "gb200"),
        ("NVIDIA GB300", "gb300"),
        ("NVIDIA L40S", "l40s"),
        ("NVIDIA A10", "a10"),
        ("NVIDIA RTX A1000", None),
        ("NVIDIA A10G", None),
        ("NVIDIA L40", None),
    ],
)
def test_a_card_has_its_own_short_name_and_no_others(name: str, short: str | None) -> None:
    assert type_of(name) == short
    device = Device("GPU-1", gpu_index=0, gpu_name=name, gpu_type=type_of(name))
    assert device.model == (short or name.lower().removeprefix("nvidia ").replace(" ", "-"))
    assert (device.model in GPU_TYPES) is (short is not None)
