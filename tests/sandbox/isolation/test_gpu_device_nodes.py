"""A submission is given the nodes that drive every card and its own card's, by what the driver says of them."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from backends.base import Target
from domain.kernel import Kernel, KernelType
from sandbox.isolation import landlock
from sandbox.isolation.gpu_device_nodes import GpuNodes, gpu_nodes
from sandbox.supervisor.session import Session
from sandbox.supervisor.zygote_client import Zygote
from stack.devices import installed

FIRST, SECOND = "GPU-11111111-aaaa-bbbb-cccc-000000000000", "GPU-11111111-dddd-bbbb-cccc-000000000000"
DRIVES_ALL = {"nvidiactl", "nvidia-uvm", "nvidia-uvm-tools"}
OTHERS = ("nvidia-modeset", "nvidia-nvswitch0", "nvidia-nvswitchctl", "nvidia-nvlink", "nvidia-caps-imex-channels")
OPENS = """
import os
for node in {nodes}:
    try:
        os.close(os.open("/dev/" + node, os.O_RDWR))
        print(node, "opened")
    except OSError as error:
        print(node, error.strerror)

def kernel_fn(x):
    return x
"""


class Machine:
    """A /dev and a /proc/driver/nvidia of cards whose nodes are not in the order of their addresses."""

    def __init__(self, base: Path, *minors: int, told: bool = True) -> None:
        self.dev, self.driver = base / "dev", base / "driver"
        (self.dev / "nvidia-caps").mkdir(parents=True)
        for name in (*DRIVES_ALL, *OTHERS, *(f"nvidia{minor}" for minor in minors), "null"):
            (self.dev / name).touch()
        for number in range(1, 10):
            (self.dev / "nvidia-caps" / f"nvidia-cap{number}").touch()
        for place, (minor, uuid) in enumerate(zip(minors, (FIRST, SECOND), strict=False)):
            card = self.driver / "gpus" / f"0000:{place:02}:00.0"
            card.mkdir(parents=True)
            lines = ["Model: \t\t NVIDIA H200", f"GPU UUID: \t {uuid}", "Bus Location: \t 0000:00:00.0"]
            lines += [f"Device Minor: \t {minor}"] if told else []
            (card / "information").write_text("\n".join(lines) + "\n")

    def sliced(self, minor: int, *slices: tuple[int, int]) -> None:
        """Slices by instance and compute instance, with the capabilities 1 and 2, 3 and 4, …"""
        for place, (instance, compute) in enumerate(slices):
            inner = self.driver / "capabilities" / f"gpu{minor}" / "mig" / f"gi{instance}" / f"ci{compute}"
            inner.mkdir(parents=True)
            for folder, number in ((inner.parent, 2 * place + 1), (inner, 2 * place + 2)):
                (folder / "access").write_text(f"DeviceFileMinor: {number}\nDeviceFileMode: 292\n")

    def nodes(self, visible: str | None) -> tuple[set[str], GpuNodes]:
        found = gpu_nodes(visible, self.dev, self.driver)
        return {str(node.relative_to(self.dev)) for node in found.nodes}, found


@pytest.mark.parametrize(("visible", "own"), [(FIRST, "nvidia1"), (SECOND, "nvidia0"), (SECOND[:14], "nvidia0")])
def test_a_card_has_its_own_node(tmp_path: Path, visible: str, own: str) -> None:
    names, found = Machine(tmp_path, 1, 0).nodes(visible)
    assert names == {*DRIVES_ALL, own}
    assert (found.cards, found.excess_reason) == ((own,), None)


@pytest.mark.parametrize("visible", ["0", None, "GPU-", FIRST[:10], f"{FIRST},{SECOND}", "GPU-99", "MIG-1234"])
def test_a_card_that_cannot_be_told_from_others_has_the_nodes_of_all(tmp_path: Path, visible: str | None) -> None:
    names, found = Machine(tmp_path, 1, 0).nodes(visible)
    assert {"nvidia0", "nvidia1", *DRIVES_ALL} <= names
    assert not names & set(OTHERS)
    assert found.excess_reason
    assert ("CUDA_VISIBLE_DEVICES" in found.excess_reason) == (visible in ("0", None, f"{FIRST},{SECOND}"))


@pytest.mark.parametrize("visible", ["0", None, FIRST, "GPU-99"])
@pytest.mark.parametrize("told", [True, False])
def test_an_only_card_is_its_own(tmp_path: Path, visible: str | None, told: bool) -> None:
    names, found = Machine(tmp_path, 3, told=told).nodes(visible)
    assert (names, found.excess_reason) == ({*DRIVES_ALL, "nvidia3"}, None)


def test_where_the_driver_tells_no_numbers_every_card_is_given(tmp_path: Path) -> None:
    names, found = Machine(tmp_path, 1, 0, told=False).nodes(FIRST)
    assert names == {*DRIVES_ALL, "nvidia0", "nvidia1"}
    assert found.excess_reason and "/proc/driver/nvidia/gpus" in found.excess_reason


def test_a_slice_has_its_own_capabilities(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1, 0)
    machine.sliced(1, (3, 0), (4, 0))
    names, found = machine.nodes(f"MIG-{FIRST}/4/0")
    assert names == {*DRIVES_ALL, "nvidia1", "nvidia-caps/nvidia-cap3", "nvidia-caps/nvidia-cap4"}
    assert found.excess_reason is None


def test_a_slice_by_its_own_name_is_told_where_it_is_the_only_one(tmp_path: Path) -> None:
    machine = Machine(tmp_path, 1)
    machine.sliced(1, (3, 0))
    names, found = machine.nodes("MIG-1234")
    assert names == {*DRIVES_ALL, "nvidia1", "nvidia-caps/nvidia-cap1", "nvidia-caps/nvidia-cap2"}
    assert found.excess_reason is None
    machine.sliced(1, (5, 0))
    assert machine.nodes("MIG-1234")[1].excess_reason == "the driver does not distinguish the slices of its card"


def test_without_nvidia_there_is_nothing(tmp_path: Path) -> None:
    assert gpu_nodes(None, tmp_path, tmp_path) == GpuNodes()


@pytest.mark.gpu
def test_another_cards_node_cannot_be_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cards = installed()
    own = gpu_nodes(cards[0].uuid)
    others = sorted({node.name for node in Path("/dev").glob("nvidia[0-9]*")} - set(own.cards))
    if landlock.abi() < landlock.OLDEST_ABI or own.excess_reason or not others:
        pytest.skip(f"needs Landlock, and two cards that can be told apart: {own.excess_reason or 'there is one'}")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", cards[0].uuid)
    zygote = Zygote(tmp_path, arch="sm_90", memory_limit=8 << 30)
    try:
        folder = zygote.private_folder(tmp_path / "job")
        runner = zygote.runner(folder, gpu=True, deadline=time.monotonic() + 60, cancelled=lambda: False)
        session = Session(runner, Target("cuda", "sm_90"), 1 << 20)
        try:
            session.build(Kernel(OPENS.format(nodes=[*own.cards, *others]), KernelType.TORCH))
            told = session.runner.output.text().splitlines()
        finally:
            session.close()
    finally:
        zygote.close()
    assert told == [f"{own.cards[0]} opened", *(f"{node} Permission denied" for node in others)]
