"""The best rates that a card has been seen to reach, measured once for each card and driver and kept in a file."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

FORMAT = 6
"""Part of the file's name; raised when the way of measuring changes, so that older figures are not used."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ceilings:
    """Bytes (read plus written) and floating-point operations a second; None or absent: not known.

    `flops` is by wire name of the dtype, and "tf32" for float32 products in that mode. `launch_ms` is no ceiling but
    the card's usual time a launch, the middle of several contexts' (sandbox.runner.launch_latency).
    """

    memory_bytes_per_s: float | None = None
    l2_bytes_per_s: float | None = None
    l2_bytes: int = 0
    flops: dict[str, float] = field(default_factory=dict)
    launch_ms: float | None = None


UNKNOWN = Ceilings()
"""For a host, or a card on which nothing could be measured: it makes no time impossible."""


def ceilings(folder: Path, card: str, driver: str, measure: Callable[[], Ceilings]) -> Ceilings:
    """The card's ceilings out of `folder`; measured and written there when it has none. Needs the device's lease.

    `card` is the GPU's UUID. A file that cannot be read is measured anew, one that cannot be written is logged.
    """
    path = folder / f"ceilings-{FORMAT}-{card}-{driver}.json"
    known = _read(path)
    if known is not None:
        return known
    measured = measure()
    if measured.memory_bytes_per_s and measured.flops:  # Else for lack of memory: whoever comes next measures again.
        _write(path, measured)
    return measured


def _read(path: Path) -> Ceilings | None:
    try:
        return _parsed(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        log.warning("%s is not a record of ceilings (%s): they are measured anew", path, error)
        return None


def _parsed(wire: dict[str, object]) -> Ceilings:
    memory, l2, size, flops = (wire[key] for key in ("memory_bytes_per_s", "l2_bytes_per_s", "l2_bytes", "flops"))
    if not isinstance(size, int) or not isinstance(flops, dict):
        raise TypeError("l2_bytes is a number of bytes and flops a mapping")
    rates = {str(name): float(rate) for name, rate in flops.items()}
    return Ceilings(_rate(memory), _rate(l2), size, rates, _rate(wire["launch_ms"]))


def _rate(value: object) -> float | None:
    if value is None or (isinstance(value, float | int) and value > 0):
        return None if value is None else float(value)
    raise ValueError(f"{value!r} is not a rate")


def _write(path: Path, measured: Ceilings) -> None:
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(json.dumps(asdict(measured)), encoding="utf-8")
        draft.replace(path)
    except OSError as error:
        log.warning("the card's ceilings could not be kept in %s: %s", path, error)
