"""NVIDIA's device nodes that a runner needs: the driver's common nodes, and those of its own card or MIG slice."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ANY_CARDS = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
"""Not nvidia-modeset, which is for screens, and not the links between cards, which the node's manager configures."""

SLICE = "MIG-"


@dataclass(frozen=True)
class GpuNodes:
    """`cards` names the nodes of cards among `nodes`; `excess_reason` says why there are more than needed, if so."""

    nodes: tuple[Path, ...] = ()
    cards: tuple[str, ...] = ()
    excess_reason: str | None = None


def gpu_nodes(visible: str | None, dev: Path = Path("/dev"), driver: Path = Path("/proc/driver/nvidia")) -> GpuNodes:
    """The nodes for the value of CUDA_VISIBLE_DEVICES. If it does not identify one card, the nodes of every card."""
    name = visible or ""
    every = sorted(node for node in dev.glob("nvidia*") if node.name.removeprefix("nvidia").isdigit())
    minor = _minor_of(name, driver, only=len(every) == 1)
    own = [node for node in every if node.name == f"nvidia{minor}"]
    excess_reason = None if own or len(every) <= 1 else _why_untold(name)
    capabilities: list[Path] = []
    if name.startswith(SLICE):
        capabilities, unsure = _of_slice(name, minor, dev / "nvidia-caps", driver)
        excess_reason = excess_reason or unsure
    shared = [dev / node for node in ANY_CARDS]
    cards = own or every
    nodes = (node for node in (*shared, *cards, *capabilities) if node.exists())
    return GpuNodes(tuple(nodes), tuple(card.name for card in cards), excess_reason)


def _minor_of(name: str, driver: Path, *, only: bool) -> int | None:
    """The minor number of the card's node; `only` if there is one card. A slice's older names have its UUID."""
    cards = [_read_fields(information) for information in sorted((driver / "gpus").glob("*/information"))]
    uuid = name.removeprefix(SLICE).partition("/")[0]
    if "," not in name and uuid.startswith("GPU-"):
        cards = [card for card in cards if card.get("GPU UUID", "").startswith(uuid)]
    elif not (only and len(cards) == 1):
        return None
    minors = [card.get("Device Minor", "") for card in cards]
    return int(minors[0]) if len(minors) == 1 and minors[0].isdigit() else None


def _of_slice(name: str, minor: int | None, folder: Path, driver: Path) -> tuple[list[Path], str | None]:
    """The capability nodes of a slice, and why there are more than its own; None if there are not."""
    _, *numbers = name.split("/")
    instance, compute = numbers if len(numbers) == 2 else ("*", "*")
    card = driver / "capabilities" / f"gpu{minor}" / "mig"
    own = _capabilities(card.glob(f"gi{instance}/access")), _capabilities(card.glob(f"gi{instance}/ci{compute}/access"))
    if not all(own):
        return [folder], f"the driver does not say which nodes are those of {name}"
    excess_reason = (
        None if all(len(minors) == 1 for minors in own) else "the driver does not distinguish the slices of its card"
    )
    return [folder / f"nvidia-cap{number}" for minors in own for number in minors], excess_reason


def _capabilities(paths: Iterable[Path]) -> list[str]:
    numbers = [_read_fields(place).get("DeviceFileMinor", "") for place in sorted(paths)]
    return [number for number in numbers if number.isdigit()]


def _read_fields(place: Path) -> dict[str, str]:
    """The driver's fields in a file, one a line; empty if the file cannot be read."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        lines = (line.partition(":") for line in place.read_text(encoding="ascii").splitlines())
        return {name.strip(): value.strip() for name, _, value in lines}
    return {}


def _why_untold(name: str) -> str:
    if not name or name.isdigit() or "," in name:
        return f"CUDA_VISIBLE_DEVICES={name} names no one card by its UUID (nvidia-smi -L)"
    return f"the driver does not say which node is that of {name} (/proc/driver/nvidia/gpus)"
