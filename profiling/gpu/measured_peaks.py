"""Peak rates of a card (memory, L2, arithmetic), measured once for each card and driver and stored in a file."""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

FORMAT = 6
"""Version in the file's name; raised when the measurement changes, so that older files are not used."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Ceilings:
    """Peak rates: bytes (read plus written) and floating-point operations a second; None or absent if unknown.

    `flops` is by wire name of the dtype, and "tf32" for float32 products in that mode. `launch_ms` is the card's usual
    time of a launch, in ms: the median over several contexts (sandbox.runner.launch_latency).
    """

    memory_bytes_per_s: float | None = None
    l2_bytes_per_s: float | None = None
    l2_bytes: int = 0
    flops: dict[str, float] = field(default_factory=dict)
    launch_ms: float | None = None


UNKNOWN = Ceilings()
"""The peaks of a host, or of a card that could not be measured: they make no time impossible."""


def ceilings(folder: Path, card: str, driver: str, measure: Callable[[], Ceilings]) -> Ceilings:
    """The card's peaks from a file in `folder`; measures and writes them if there is none. Needs the device's lease.

    `card` names the GPU model. An unreadable file leads to a new measurement, an unwritable one to a log line.
    """
    path = folder / f"ceilings-{FORMAT}-{card}-{driver}.json"
    stored = _read(path)
    if stored is not None:
        return stored
    measured = measure()
    if (
        measured.memory_bytes_per_s and measured.flops
    ):  # Otherwise memory was short, and the next process measures again.
        _write(path, measured)
    return measured


def _read(path: Path) -> Ceilings | None:
    try:
        return _parsed(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError) as error:
        log.warning("%s is not a record of the card's peak rates (%s): they are measured again", path, error)
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
        log.warning("the card's peak rates could not be written to %s: %s", path, error)
