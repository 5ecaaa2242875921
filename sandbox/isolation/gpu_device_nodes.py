"""NVIDIA's device nodes that a stranger needs: those that drive every card, and its own card's or slice's."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

ANY_CARDS = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
"""Not nvidia-modeset, which is for screens, nor the switches and links between cards, which the node's manager sets."""

SLICE = "MIG-"


@dataclass(frozen=True)
class GpuNodes:
    """`cards` names the cards' nodes among `nodes`; `untold` is why there are more than it needs, or None."""

    nodes: tuple[Path, ...] = ()
    cards: tuple[str, ...] = ()
    untold: str | None = None


def gpu_nodes(visible: str | None, dev: Path = Path("/dev"), driver: Path = Path("/proc/driver/nvidia")) -> GpuNodes:
    """Of what CUDA_VISIBLE_DEVICES names. Where that cannot be told from the rest, of every card."""
    name = visible or ""
    every = sorted(node for node in dev.glob("nvidia*") if node.name.removeprefix("nvidia").isdigit())
    minor = _minor_of(name, driver, only=len(every) == 1)
    own = [node for node in every if node.name == f"nvidia{minor}"]
    untold = None if own or len(every) <= 1 else _why_untold(name)
    capabilities: list[Path] = []
    if name.startswith(SLICE):
        capabilities, unsure = _of_slice(name, minor, dev / "nvidia-caps", driver)
        untold = untold or unsure
    shared = [dev / node for node in ANY_CARDS]
    cards = own or every
    nodes = (node for node in (*shared, *cards, *capabilities) if node.exists())
    return GpuNodes(tuple(nodes), tuple(card.name for card in cards), untold)


def _minor_of(name: str, driver: Path, *, only: bool) -> int | None:
    """The number of the card's node; `only` there is one. Of a slice, its card's, which its older names begin with."""
    cards = [_told(information) for information in sorted((driver / "gpus").glob("*/information"))]
    uuid = name.removeprefix(SLICE).partition("/")[0]
    if "," not in name and uuid.startswith("GPU-"):
        cards = [card for card in cards if card.get("GPU UUID", "").startswith(uuid)]
    elif not (only and len(cards) == 1):
        return None
    minors = [card.get("Device Minor", "") for card in cards]
    return int(minors[0]) if len(minors) == 1 and minors[0].isdigit() else None


def _of_slice(name: str, minor: int | None, folder: Path, driver: Path) -> tuple[list[Path], str | None]:
    """The nodes of its capabilities, and why they are more than its own, if they are."""
    _, *numbers = name.split("/")
    instance, compute = numbers if len(numbers) == 2 else ("*", "*")
    card = driver / "capabilities" / f"gpu{minor}" / "mig"
    own = _capabilities(card.glob(f"gi{instance}/access")), _capabilities(card.glob(f"gi{instance}/ci{compute}/access"))
    if not all(own):
        return [folder], f"the driver does not say which nodes are those of {name}"
    untold = None if all(len(found) == 1 for found in own) else "the slices of its card are not told apart"
    return [folder / f"nvidia-cap{number}" for found in own for number in found], untold


def _capabilities(places: Iterable[Path]) -> list[str]:
    numbers = [_told(place).get("DeviceFileMinor", "") for place in sorted(places)]
    return [number for number in numbers if number.isdigit()]


def _told(place: Path) -> dict[str, str]:
    """What the driver says there, line by line; nothing where it cannot be read."""
    with contextlib.suppress(OSError, UnicodeDecodeError):
        lines = (line.partition(":") for line in place.read_text(encoding="ascii").splitlines())
        return {name.strip(): value.strip() for name, _, value in lines}
    return {}


def _why_untold(name: str) -> str:
    if not name or name.isdigit() or "," in name:
        return f"CUDA_VISIBLE_DEVICES={name} names no one card by its UUID (nvidia-smi -L)"
    return f"the driver does not say which node is that of {name} (/proc/driver/nvidia/gpus)"
